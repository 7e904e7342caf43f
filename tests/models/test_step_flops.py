"""The analytic price of a training step against XLA's own count of the program that runs.

The analytic count leaves out normalisations, activations, softmax and the optimiser, and counts the gradient
of the pixels, which nobody needs. With two layers of B/16 and 8 examples a step this makes at most 0.3 %.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from tests.models.support.variants import shallow

from jestlab.models.config import TrainConfig
from jestlab.models.training.step import build_step, initial_state
from jestlab.models.two_towers import TwoTowerModel, initialize
from jestlab.platform.programs.pricing import cost

JEST = {"rule": "joint", "reference": "r", "filtering_ratio": 0.8, "chunks": 2}


def xla_flops(config: TrainConfig) -> float:
    """FLOPs of a step, the reference of the learner's architecture; traced from shapes, never compiled."""
    B, size = config.super_batch_size, config.model.vision.image_size
    parameters = jax.eval_shape(lambda: initialize(config.model, jax.random.key(0)))
    state = jax.eval_shape(
        lambda parameters: initial_state(config, parameters, jax.random.key(0)), parameters
    )
    batch = {
        "image": jax.ShapeDtypeStruct((B, size, size, 3), jnp.uint8),
        "text": jax.ShapeDtypeStruct((B, config.model.text.length), jnp.int32),
        "index": jax.ShapeDtypeStruct((B,), jnp.uint32),
    }
    step: jax.stages.Wrapped = build_step(config, TwoTowerModel(config.model))  # type: ignore[assignment]
    counted = step.lower(state, batch, parameters if config.needs_reference else None).cost_analysis()
    assert counted is not None
    return float(counted["flops"])


FLEXI = {"score": True, "share": 0.5}


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"selection": JEST},
        {"selection": JEST, "runtime": {"reuse_scoring": True}},
        {"selection": JEST, "approximation": FLEXI},
    ],
    ids=["uniform", "JEST", "JEST, scoring reused", "Flexi-JEST"],
)
def test_a_step_costs_what_xla_counts(sections):
    config = TrainConfig.model_validate({"schedule": {"batch_size": 8}, **sections})
    config = config.model_copy(update={"model": shallow("B/16")})
    price = cost(config, config.model, examples=config.batch_size).total("reference_scoring")
    assert xla_flops(config) == pytest.approx(price, rel=0.005)
