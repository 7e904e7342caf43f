"""The analytic price of a training step against XLA's own count of the program that runs.

The analytic count leaves out normalisations, activations, softmax and the optimiser, and counts the gradient
of the pixels, which nobody needs. With two layers of B/16 and 8 examples a step this makes at most 0.3 %.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from tests.models.support.variants import shallow

from jestlab.models.config import TrainConfig, TwoTowers
from jestlab.models.training.step import build_step, initial_state
from jestlab.models.two_towers import TwoTowerModel, initialize
from jestlab.platform.programs.pricing import cost

JEST = {"rule": "joint", "reference": "r", "filtering_ratio": 0.8, "chunks": 2}


def xla_flops(config: TrainConfig, reference: TwoTowers | None = None) -> float:
    """FLOPs of a step, the reference like the learner if not given; traced from shapes, never compiled."""
    reference = reference or config.model
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
    if config.selection.looks_at_concepts({}):
        batch["concepts"] = jax.ShapeDtypeStruct((B, 4), jnp.int32)
    theirs = jax.eval_shape(lambda: initialize(reference, jax.random.key(0)))
    step: jax.stages.Wrapped = build_step(config, TwoTowerModel(reference))  # type: ignore[assignment]
    counted = step.lower(state, batch, theirs if config.needs_reference else None).cost_analysis()
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
        {"selection": JEST | {"rule": "highest"}},
        {"selection": {"rule": "concept_diversity", "concepts": ["label"]}},
        {"selection": {"rule": "concept_frequency", "concepts": ["label"]}},
        {"selection": JEST, "loss": "distilled"},
        {"selection": JEST, "loss": "distilled", "approximation": FLEXI},
        {"selection": {"reference": "r"}, "loss": "distilled"},
        {"selection": {"reference": "r"}, "loss": "drrho"},
        {"selection": JEST, "loss": "drrho", "runtime": {"reuse_scoring": True}},
    ],
    ids=[
        "uniform",
        "JEST",
        "JEST, scoring reused",
        "Flexi-JEST",
        "RHO-LOSS",
        "CABS-DM",
        "CABS-FM",
        "ACED",
        "ACED, approximately",
        "Softmax-KD",
        "DRRho",
        "DRRho of chosen batches, scoring reused",
    ],
)
def test_a_step_costs_what_xla_counts(sections):
    config = TrainConfig.model_validate({"schedule": {"batch_size": 8}, **sections})
    config = config.model_copy(update={"model": shallow("B/16")})
    price = cost(config, config.model, examples=config.batch_size).total("reference_scoring")
    assert xla_flops(config) == pytest.approx(price, rel=0.005)


@pytest.mark.parametrize("loss", ["sigmoid", "distilled"])
def test_a_reference_that_is_larger_than_the_learner_costs_what_xla_counts(loss):
    """ACID, and ACED."""
    config = TrainConfig.model_validate({"schedule": {"batch_size": 8}, "selection": JEST, "loss": loss})
    config, reference = config.model_copy(update={"model": shallow("S/16")}), shallow("B/16")
    price = cost(config, reference, examples=config.batch_size).total("reference_scoring")
    assert xla_flops(config, reference) == pytest.approx(price, rel=0.005)


def test_steps_that_select_and_those_that_do_not_cost_what_xla_counts():
    tree = {"schedule": {"batch_size": 8, "examples_seen": 80}, "selection": JEST | {"until": 0.3}}
    config = TrainConfig.model_validate(tree).model_copy(update={"model": shallow("B/16")})
    uniform = config.model_copy(update={"selection": config.selection.model_copy(update={"rule": "uniform"})})
    found = 3 * xla_flops(config) + 7 * xla_flops(uniform)
    price = cost(config, config.model, examples=80).total("reference_scoring")
    assert found == pytest.approx(price, rel=0.005)
