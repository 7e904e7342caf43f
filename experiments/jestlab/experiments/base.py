"""What studies share: the config beneath them, their references, the filters that curate data."""

from __future__ import annotations

import copy
from typing import Any

from ml_collections import ConfigDict

from jestlab.platform import spec
from jestlab.platform.spec import at_scale

CURATION = {
    "raw": None,
    "curated": "similarity > 0.25 and aesthetic > 4.3 and text_quality > 0.45 and uniqueness > 0.45",
}
"""Name of a curation → the filter over the metadata that makes it."""

SMOKE: dict[str, Any] = {
    "model": {
        "vision": {"width": 64, "depth": 2, "mlp_dim": 128, "pooling": "mean"},
        "text": {"width": 64, "depth": 1, "mlp_dim": 128, "pooling": "mean"},
        "embedding_dim": 64,
    },
    "data.train.noise.near_duplicate": 0.3,  # joint selection avoids them, independent selection does not
    "optimizer": {
        "learning_rate": 2e-3,
        "warmup_percent": 5.0,
        "temperature_multiplier": 10.0,  # at this rate Adam hardly moves t and b in a few hundred steps
    },
    "schedule": {"batch_size": 64, "examples_seen": 15_360},
    "evaluation.points": 8,
    "runtime.diagnostics.every_steps": 40,
}
"""Minutes on two CPU cores: 16-pixel images of shapes, towers of 140,000 parameters, 240 steps."""


def study(scale: str, *, question: str, paper: str | None = None) -> ConfigDict:
    """An empty study on the base config of a scale.

    Args:
        scale: "smoke".
        question: What the study asks.
        paper: The figure or table that it reproduces.

    Raises:
        UserError: There is no such scale.
    """
    config = spec.study(question=question, paper=paper)
    config.base = copy.deepcopy(at_scale(scale, smoke=SMOKE))
    return config


def reference(curation: str) -> dict[str, Any]:
    """A reference run: uniform training on the curated part of the data, from parameters of its own."""
    return {"selection.rule": "uniform", "data.filter": CURATION[curation], "initialization": 1}
