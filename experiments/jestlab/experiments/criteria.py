"""Figure 3, right, and the appendix: by which criterion should batches be selected?

    jestlab launch criteria               # 63 runs, 5 core-minutes
    jestlab launch criteria --scale mini  # 63 runs, 61.4 PFLOP; not run
    jestlab plan criteria --scale paper   # 21 runs, 77,400 chip-hours of v5e; not run

Easy-reference uses only the reference's loss, hard-learner only the learner's, and learnability uses both.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference 48.8; uniform 10.3; learnability-joint 19.4 (f =
.5), 26.6 (f = .8), 27.5 (f = .9); easy-joint 19.7 (f = .5), 28.7 (f = .8), 30.0 (f = .9); hard-joint 5.4 (f =
.5), 4.5 (f = .8), 4.3 (f = .9); learnability-independent 18.9 (f = .5), 21.5 (f = .8), 17.7 (f = .9);
easy-independent 19.9 (f = .5), 23.3 (f = .8), 22.4 (f = .9); hard-independent 6.8 (f = .5), 5.5 (f = .8), 4.5
(f = .9).
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, grid, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does joint selection also improve criteria other than learnability?",
        paper="Figure 3, right; appendix, hard-learner",
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    for rule in ("joint", "independent"):
        study.runs[f"learnability-{rule}"] = base.selecting(rule)
        study.runs[f"easy-{rule}"] = base.selecting(rule, criterion="easy_reference")
        study.runs[f"hard-{rule}"] = {"selection": {"rule": rule, "criterion": "hard_learner"}}
    selecting = tuple(name for name in study.runs if name.endswith(("-joint", "-independent")))
    study.axes = {selecting: grid({"selection.filtering_ratio": (0.5, 0.8, 0.9)})}
    claim = base.claims_of(scale, "Fig. 3, right")
    study.claims = [
        claim(
            "By easy-reference, joint selection learns more than independent, averaged over f = 0.8 and 0.9",
            of=["easy-joint filtering_ratio=0.8", "easy-joint filtering_ratio=0.9"],
            above=["easy-independent filtering_ratio=0.8", "easy-independent filtering_ratio=0.9"],
            toy="where few pairs are near-duplicates, independent batches are as diverse",
        ),
        claim(
            "By easy-reference, independent selection learns less at f = 0.9 than at f = 0.8",
            of="easy-independent filtering_ratio=0.9",
            below="easy-independent filtering_ratio=0.8",
            toy="where few pairs are near-duplicates, independent batches are as diverse",
        ),
        claim(
            "At f = 0.9, joint selection learns more by learnability than by easy-reference",
            of="learnability-joint filtering_ratio=0.9",
            above="easy-joint filtering_ratio=0.9",
            toy="after a short run, examples that are easy for the reference are still hard",
        ),
        claim(
            "Selecting what is hard for the learner hurts at f = 0.9, averaged over joint and independent",
            of=["hard-joint filtering_ratio=0.9", "hard-independent filtering_ratio=0.9"],
            below="uniform",
            source="App., Fig. 10",
            toy="uniform training has learned too little to be harmed",
        ),
        claim(
            "Selecting what is hard for the learner helps a little at f = 0.5, averaged over both rules",
            of=["hard-joint filtering_ratio=0.5", "hard-independent filtering_ratio=0.5"],
            above="uniform",
            source="App., Fig. 10",
            toy="half of this web is noise, which is hard; WebLI had been filtered",
        ),
        claim(
            "Joint selection of what is hard hurts more than independent selection at f = 0.9",
            of="hard-joint filtering_ratio=0.9",
            below="hard-independent filtering_ratio=0.9",
            source="App., Fig. 10",
            toy="neither has learned anything",
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("filtering_ratio"), curves()]
    return study
