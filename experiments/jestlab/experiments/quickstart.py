"""JEST in miniature: a reference learns from curated data, then guides what its learners train on.

    jestlab launch quickstart     # 12 runs, 4 min on two cores; joint .52, independent .39, uniform .17

The web is noisy and holds many near-duplicates; a learner sees 15,360 pairs, chosen from five times as many.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale, question="Does choosing batches jointly, by learnability, make learning faster?"
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    study.runs.independent = base.selecting("independent")
    study.runs.joint = base.selecting("joint")
    study.reports = [table(baseline="uniform"), curves(), pareto()]
    return study
