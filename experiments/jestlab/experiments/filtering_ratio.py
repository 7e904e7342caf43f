"""Figure 3, left and middle: does joint selection learn faster the more it filters?

    jestlab launch filtering_ratio               # 27 runs, 3 core-minutes
    jestlab launch filtering_ratio --scale mini  # 27 runs, 28.1 PFLOP; not run
    jestlab plan filtering_ratio --scale paper   # 9 runs, 34,500 chip-hours of v5e; not run

The comparison is independent selection by the same scores, whose batches fill with similar examples.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference 48.8; uniform 10.3; joint 19.4 (f = .5), 26.6 (f
= .8), 27.5 (f = .9); independent 18.9 (f = .5), 21.5 (f = .8), 17.7 (f = .9).
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, grid, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does joint selection learn faster the more it filters, and independent selection not?",
        paper="Figure 3, left and middle",
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    study.runs.joint = base.selecting("joint")
    study.runs.independent = base.selecting("independent")
    study.axes = {("joint", "independent"): grid({"selection.filtering_ratio": (0.5, 0.8, 0.9)})}
    claim = base.claims_of(scale, "Fig. 3, middle")
    study.claims = [
        *(
            claim(
                f"At f = {ratio}, joint selection passes the end of uniform training after {share} of it",
                of={"of": f"joint filtering_ratio={ratio}", "measure": f"score_after_{after}"},
                above="uniform",
                source="Fig. 3, left",
                toy="a small web is learned in few steps, of which the first warm up",
            )
            for ratio, share, after in ((0.5, "2/3", 0.667), (0.8, "1/3", 0.333), (0.9, "2/9", 0.222))
        ),
        claim(
            "Joint selection learns more than uniform training, averaged over all f",
            of="joint",
            above="uniform",
            source="Fig. 3, left",
            toy="a web without noise leaves nothing to select",
        ),
        claim(
            "Joint selection learns more than independent selection, averaged over f = 0.8 and 0.9",
            of=["joint filtering_ratio=0.8", "joint filtering_ratio=0.9"],
            above=["independent filtering_ratio=0.8", "independent filtering_ratio=0.9"],
            toy="where few pairs are near-duplicates, independent batches are as diverse",
        ),
        claim(
            "Independent selection learns more than uniform training, averaged over f = 0.5 and 0.8",
            of=["independent filtering_ratio=0.5", "independent filtering_ratio=0.8"],
            above="uniform",
            toy="near-duplicates fill the batches",
        ),
        claim(
            "Joint selection gains more at f = 0.9 than at f = 0.5",
            of="joint filtering_ratio=0.9",
            above="joint filtering_ratio=0.5",
            toy="a toy web has few kinds of examples: five sub-batches hold them all",
        ),
        claim(
            "Independent selection gains less at f = 0.9 than at f = 0.8",
            of="independent filtering_ratio=0.9",
            below="independent filtering_ratio=0.8",
            toy="where few pairs are near-duplicates, independent batches are as diverse",
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("filtering_ratio"), curves(), pareto()]
    return study
