"""Figure 2: does joint example selection find more learnable batches?

    jestlab launch learnable_batches               # 12 runs, 7 min on two busy cores
    jestlab launch learnable_batches --scale mini  # 12 runs, 3.88 PFLOP; not run
    jestlab plan learnable_batches --scale paper   # 4 runs, 2,900 chip-hours of v5e; not run

A learner as it stands selects from super-batches of real data by every rule; nothing is trained on them.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import learnability

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale,
        question="Does joint example selection yield more learnable batches, as good as Gibbs sampling's?",
        paper="Figure 2",
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    study.runs.diagnosis = {
        "program": "diagnose",
        "learner": "uniform",
        "reference": base.cache(),
        "batch_size": base.of(scale).base["schedule"]["batch_size"],
    }
    study.reports = [learnability()]
    return study
