"""JEST in miniature: a reference learns from curated data, then guides the selection of its learners.

    jestlab launch quickstart               # 15 runs, 2 min on two cores
    jestlab launch quickstart --scale mini  # 15 runs, 11.0 PFLOP; not run
    jestlab plan quickstart --scale paper   # 5 runs, 12,500 chip-hours of v5e; not run

The web is noisy and has many near-duplicates. Learners see 14,400 pairs, selected from five times as many.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference 48.8; uniform 10.3; independent 21.5; joint
26.6.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, curves, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale, question="Does choosing batches jointly, by learnability, make learning faster?"
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    study.runs.independent = base.selecting("independent")
    study.runs.joint = base.selecting("joint")
    study.claims = [
        claim(
            "After equally many examples, joint selection by learnability scores above uniform sampling",
            of="joint",
            above="uniform",
            unless="the learners are too small to gain from their reference",
        )
    ]
    study.reports = [table(baseline="uniform"), curves(), pareto()]
    return study
