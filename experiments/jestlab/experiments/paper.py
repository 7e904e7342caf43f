"""The whole paper: every study, each run once.

    jestlab launch paper
    jestlab report paper
    jestlab plan paper --scale paper

The report lists all claims, and whether they hold at the scale of the runs.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import union

SCALES = base.SCALES

STUDIES = (
    "learnable_batches",
    "filtering_ratio",
    "criteria",
    "multi_resolution",
    "references",
    "curation",
    "curation_scaling",
    "comparison",
    "laion_transfer",
    "raw_vs_filtered",
    "longer_training",
    "specialists",
    "optimisation",
    "batch_size",
    "contrastive_loss",
    "approximation",
)
"""All studies of the paper, in its order."""

FAMILY = {"rate": 0.05, "test": "signed_rank"}
"""How the claims are judged. With 55 claims, no wrong verdict at all (family-wise error) would take 11 seeds
of every run; at most 5% wrong verdicts take about half. The signed-rank test assumes symmetric differences:
if the runs of both sides have the same distribution, so do the differences and their negatives."""


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the union of all studies at a scale."""
    return union(
        question="Does joint example selection accelerate multimodal learning, and what does it depend on?",
        studies=STUDIES,
        family=FAMILY,
    )
