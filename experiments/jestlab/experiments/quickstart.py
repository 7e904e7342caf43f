"""JEST in miniature: a reference learns from curated data, then guides what its learners train on.

    jestlab launch quickstart     # 12 runs, 4 min on two cores; joint .52, independent .39, uniform .17

The web is noisy and holds many near-duplicates; a learner sees 15,360 pairs, chosen from five times as many.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, pareto, table

SCALES = ("smoke",)


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale, question="Does choosing batches jointly, by learnability, make learning faster?"
    )
    study.runs.reference = base.reference("curated") | {"schedule.examples_seen": 30_720}
    study.runs.uniform = {"selection.rule": "uniform"}
    study.runs.independent = {"selection.rule": "independent", "selection.reference": "reference"}
    study.runs.joint = {"selection.rule": "joint", "selection.reference": "reference"}
    study.seeds = 3
    study.reports = [table(baseline="uniform"), curves(), pareto()]
    return study
