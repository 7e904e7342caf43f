"""The analytic price of a training step against XLA's own count of the program that runs.

The analytic count leaves out normalization, activations, softmax and the optimizer, and includes the gradient
of the pixels, which isn't needed. With a few layers of B/16 and 8 examples a step this is at most 0.3%.
"""

import jax
import jax.numpy as jnp
import pytest

from jestlab.models.config import TrainConfig, TwoTowers
from jestlab.models.training.state import initial_state
from jestlab.models.training.step import build_step
from jestlab.models.two_towers import TwoTowerModel, initialize
from jestlab.platform.programs.pricing import step_of

JEST = {"rule": "joint", "reference": "r", "filtering_ratio": 0.8, "chunks": 2}


def shallow(depth: int) -> TwoTowers:
    """B/16 with fewer layers: they all cost the same, and each takes time to trace."""
    return TwoTowers.model_validate({"variant": "B/16", "vision": {"depth": depth}, "text": {"depth": depth}})


def xla_flops(config: TrainConfig, reference: TwoTowers) -> float:
    """FLOPs of a step; traced from shapes, never compiled."""
    B, size = config.super_batch_size, config.model.vision.image_size
    parameters = jax.eval_shape(lambda: initialize(config.model, jax.random.key(0)))
    state = jax.eval_shape(lambda p: initial_state(config, p, jax.random.key(0)), parameters)
    batch = {
        "image": jax.ShapeDtypeStruct((B, size, size, 3), jnp.uint8),
        "text": jax.ShapeDtypeStruct((B, config.model.text.length), jnp.int32),
        "index": jax.ShapeDtypeStruct((B,), jnp.uint32),
    }
    if config.uses_concepts:
        batch["concepts"] = jax.ShapeDtypeStruct((B, 4), jnp.int32)
    theirs = jax.eval_shape(lambda: initialize(reference, jax.random.key(0)))
    step: jax.stages.Wrapped = build_step(config, TwoTowerModel(reference))  # type: ignore[assignment]
    counted = step.lower(state, batch, theirs if config.needs_reference else None).cost_analysis()
    assert counted is not None
    return float(counted["flops"])


@pytest.mark.parametrize(
    "sections",
    [
        # ACED, approximately
        {"selection": JEST, "approximation": {"score": True, "share": 0.5}, "loss": "distilled"},
        *(
            pytest.param(sections, marks=pytest.mark.full)
            for sections in (
                {},
                {"selection": JEST},
                {"selection": JEST, "runtime": {"reuse_scoring": True}},
                {"selection": JEST | {"rule": "highest"}},  # RHO-LOSS
                {"selection": {"rule": "concept_diversity", "concepts": ["label"]}},  # CABS-DM
                {"selection": JEST, "loss": "drrho"},
            )
        ),
    ],
)
def test_a_step_costs_what_xla_counts(sections):
    """By a reference that is larger than the learner."""
    config = TrainConfig.model_validate({"schedule": {"batch_size": 8}, **sections})
    config, reference = config.model_copy(update={"model": shallow(2)}), shallow(3)
    price = (step_of(config, reference).cost() * config.batch_size).total("reference_scoring")
    assert xla_flops(config, reference) == pytest.approx(price, rel=0.005)
