"""The optimiser against the algebra of the paper's appendix."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jestlab.models.config import Optimizer
from jestlab.models.training.optimizer import build_optimizer, learning_rate


def tree():
    return {
        "img": {"Dense_0": {"kernel": jnp.full((2, 2), 3.0), "bias": jnp.full((2,), 3.0)}},
        "t": jnp.ones((1,)),
        "b": jnp.ones((1,)),
    }


def test_schedule_warms_up_linearly_and_ends_at_zero():
    schedule = learning_rate(Optimizer(learning_rate=1e-3, warmup_percent=1.0), 91_553)
    assert float(schedule(0)) == 0
    assert float(schedule(458)) == pytest.approx(0.5e-3, rel=1e-3)
    assert float(schedule(916)) == pytest.approx(1e-3, rel=1e-4)
    halfway = 916 + (91_553 - 916) // 2
    assert float(schedule(halfway)) == pytest.approx(0.5e-3, rel=1e-3)
    assert float(schedule(91_553)) == pytest.approx(0, abs=1e-9)


def test_without_warm_up_the_first_step_has_the_peak_rate():
    assert float(learning_rate(Optimizer(learning_rate=2e-3, warmup_percent=0), 100)(0)) == pytest.approx(
        2e-3
    )


def test_decay_is_adamw_with_the_decay_over_the_rate_and_touches_kernels_alone():
    config = Optimizer(learning_rate=1e-3, weight_decay=1e-4, warmup_percent=0, clip_norm=1e9, beta2=0.95)
    ours = build_optimizer(config, 100)
    theirs = optax.adamw(
        optax.cosine_decay_schedule(1e-3, 100),
        b2=0.95,
        weight_decay=0.1,
        mask={"img": {"Dense_0": {"kernel": True, "bias": False}}, "t": False, "b": False},
    )
    parameters = tree()
    gradients = {
        "img": {"Dense_0": {"kernel": parameters["img"]["Dense_0"]["kernel"] * 0.1, "bias": jnp.ones(2)}},
        "t": jnp.ones(1),
        "b": -jnp.ones(1),
    }
    ours_state, theirs_state = ours.init(parameters), theirs.init(parameters)
    for _ in range(3):
        mine, ours_state = ours.update(gradients, ours_state, parameters)
        other, theirs_state = theirs.update(gradients, theirs_state, parameters)
        np.testing.assert_allclose(
            mine["img"]["Dense_0"]["kernel"], other["img"]["Dense_0"]["kernel"], rtol=1e-5
        )
        np.testing.assert_allclose(mine["img"]["Dense_0"]["bias"], other["img"]["Dense_0"]["bias"], rtol=1e-5)
        np.testing.assert_allclose(mine["t"], other["t"], rtol=1e-5)


def test_multiplier_scales_the_updates_of_temperature_and_bias_alone():
    parameters = tree()
    gradients = tree()

    def update(multiplier):
        optimizer = build_optimizer(Optimizer(temperature_multiplier=multiplier, warmup_percent=0), 10)
        return optimizer.update(gradients, optimizer.init(parameters), parameters)[0]

    plain, scaled = update(1.0), update(10.0)
    np.testing.assert_allclose(scaled["t"], 10 * plain["t"], rtol=1e-6)
    np.testing.assert_allclose(scaled["b"], 10 * plain["b"], rtol=1e-6)
    np.testing.assert_array_equal(scaled["img"]["Dense_0"]["kernel"], plain["img"]["Dense_0"]["kernel"])


def test_gradients_are_clipped_by_their_global_norm():
    """Adam's first update hides scale; two steps of different size show it: clipped, they look alike."""
    optimizer = build_optimizer(Optimizer(clip_norm=1.0, warmup_percent=0, weight_decay=0), 1_000_000)
    parameters = {"w": jnp.zeros(4)}
    state = optimizer.init(parameters)
    _, state = optimizer.update({"w": jnp.full(4, 10.0)}, state, parameters)
    update, _ = optimizer.update({"w": jnp.full(4, 1000.0)}, state, parameters)
    np.testing.assert_allclose(update["w"], -1e-3, rtol=1e-3)
