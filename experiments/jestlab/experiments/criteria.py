"""Figure 3, right, and the appendix: by which criterion should batches be selected?

    jestlab launch criteria

Easy-reference asks the reference alone, hard-learner the learner alone, learnability both.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, curves, figure, grid, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale,
        question="Does joint selection improve other criteria than learnability, too?",
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
    study.claims = [
        claim(
            "Joint selection improves on independent selection by easy-reference",
            of=["easy-joint filtering_ratio=0.8", "easy-joint filtering_ratio=0.9"],
            above=["easy-independent filtering_ratio=0.8", "easy-independent filtering_ratio=0.9"],
            source="Fig. 3, right",
        ),
        claim(
            "Learnability scales better with filtering than easy-reference: at f = 0.9 it learns more",
            of="learnability-joint filtering_ratio=0.9",
            above="easy-joint filtering_ratio=0.9",
            source="Fig. 3, right",
            unless="in a short run on few classes the reference's easy examples are not learned yet",
        ),
        claim(
            "Selecting what is hard for the learner harms at f = 0.9",
            of=["hard-joint filtering_ratio=0.9", "hard-independent filtering_ratio=0.9"],
            below="uniform",
            source="App., hard-learner",
        ),
        claim(
            "It gains a little at f = 0.5",
            of=["hard-joint filtering_ratio=0.5", "hard-independent filtering_ratio=0.5"],
            above="uniform",
            source="App., hard-learner",
            unless="60% of this web is noise, which is what is hard; WebLI had been filtered before",
        ),
        claim(
            "Joint selection makes it worse at f = 0.9",
            of="hard-joint filtering_ratio=0.9",
            below="hard-independent filtering_ratio=0.9",
            source="App., hard-learner",
            unless="both are near the floor already",
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("filtering_ratio"), curves()]
    return study
