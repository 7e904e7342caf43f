"""The whole paper: every study, each run once.

    jestlab launch paper
    jestlab report paper
    jestlab plan paper --scale paper

The page of it tells, claim by claim, what holds at the scale that was run.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import (
    approximation,
    base,
    batch_size,
    comparison,
    contrastive_loss,
    criteria,
    curation,
    curation_scaling,
    filtering_ratio,
    laion_transfer,
    learnable_batches,
    longer_training,
    multi_resolution,
    optimisation,
    raw_vs_filtered,
    references,
    specialists,
)
from jestlab.platform.spec import union

SCALES = base.SCALES

STUDIES = {
    "learnable_batches": learnable_batches,
    "filtering_ratio": filtering_ratio,
    "criteria": criteria,
    "multi_resolution": multi_resolution,
    "references": references,
    "curation": curation,
    "curation_scaling": curation_scaling,
    "comparison": comparison,
    "laion_transfer": laion_transfer,
    "raw_vs_filtered": raw_vs_filtered,
    "longer_training": longer_training,
    "specialists": specialists,
    "optimisation": optimisation,
    "batch_size": batch_size,
    "contrastive_loss": contrastive_loss,
    "approximation": approximation,
}
"""In the paper's order."""


def get_config(scale: str = "smoke") -> ConfigDict:
    """The union of all studies at a scale."""
    return union(
        question="Does joint example selection accelerate multimodal learning, and what does it depend on?",
        studies={name: study.get_config(scale) for name, study in STUDIES.items()},
    )
