"""Small data and configs that the models' tests share."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jestlab.models.config import TrainConfig
from jestlab.models.data.datasets import ensure_benchmark, ensure_web
from jestlab.models.selection import Embeddings

TINY: dict[str, Any] = {
    "model": {
        "vision": {"width": 16, "depth": 1, "heads": 2, "patch_size": 8, "pooling": "mean"},
        "text": {"width": 16, "depth": 1, "heads": 2, "length": 8, "pooling": "mean"},
        "embedding_dim": 16,
    },
    "data": {
        "train": {"examples": 512, "image_size": 16, "shard_size": 256},
        "benchmark": {"classification_examples": 96, "retrieval_examples": 32, "image_size": 16},
    },
    "schedule": {"batch_size": 16, "examples_seen": 16 * 12},
    "evaluation": {"points": 3, "shots": 2, "shot_seeds": 1},
    "runtime": {"log_every_steps": 2, "checkpoint_every_steps": 4},
}


@pytest.fixture(scope="session")
def data_cache(tmp_path_factory):
    """A folder that holds the tiny web and benchmark."""
    cache = tmp_path_factory.mktemp("data")
    config = TrainConfig.model_validate(TINY)
    ensure_web(config, cache)
    ensure_benchmark(config.data.benchmark, cache)
    return cache


@pytest.fixture(scope="session")
def tiny():
    """A config tree of a run that takes a second; copy before changing."""
    return TINY


@pytest.fixture(scope="session")
def embeddings():
    """A maker of random `Embeddings` of n pairs on the unit sphere."""

    def make(n, width=16, seed=0, temperature=10.0, bias=-10.0):
        rng = np.random.default_rng(seed)
        pairs = [rng.normal(size=(n, width)) for _ in range(2)]
        image, text = (jnp.asarray(z / np.linalg.norm(z, axis=1, keepdims=True), jnp.float32) for z in pairs)
        return Embeddings(image, text, jnp.float32(temperature), jnp.float32(bias))

    return make
