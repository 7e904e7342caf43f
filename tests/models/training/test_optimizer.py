"""The optimiser against the algebra of the paper's appendix."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from pydantic import ValidationError

from jestlab.models.config import Optimizer
from jestlab.models.training import optimizer as module
from jestlab.models.training.optimizer import build_optimizer, decayed, learning_rate


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


def published_cosine(step, *, base, warmup, total):
    """big_vision's `create_learning_rate_schedule`, decay_type "cosine", in float64."""
    progress = np.clip((step - warmup) / float(total - warmup), 0.0, 1.0)
    rate = base * 0.5 * (1.0 + np.cos(np.pi * progress))
    return rate * np.minimum(1.0, step / warmup) if warmup else rate


@pytest.mark.parametrize(("total", "percent", "warmup"), [(91_553, 1.0, 916), (240, 5.0, 12), (50, 0.0, 0)])
def test_the_schedule_is_the_published_one(total, percent, warmup):
    schedule = learning_rate(Optimizer(learning_rate=1e-3, warmup_percent=percent), total)
    steps = np.unique(np.linspace(0, total, 200).astype(int))
    ours = np.array([float(schedule(step)) for step in steps])
    theirs = published_cosine(steps, base=1e-3, warmup=warmup, total=total)
    np.testing.assert_allclose(ours, theirs, atol=2e-10)


def test_a_constant_rate_stays_after_its_warm_up():
    schedule = learning_rate(Optimizer(learning_rate=1e-3, warmup_percent=10, decay="constant"), 100)
    assert [float(schedule(step)) for step in (0, 5, 10, 60, 100)] == pytest.approx(
        [0, 5e-4, 1e-3, 1e-3, 1e-3]
    )


def test_what_decays_is_a_field():
    names = {"img": {"Dense_0": {"kernel": 0, "bias": 0}}, "txt": {"Embed_0": {"embedding": 0}}, "t": 0}
    assert decayed(names, ".*/kernel$") == {
        "img": {"Dense_0": {"kernel": True, "bias": False}},
        "txt": {"Embed_0": {"embedding": False}},
        "t": False,
    }
    assert decayed(names, "(img|txt)/.*")["txt"]["Embed_0"]["embedding"]
    with pytest.raises(ValueError, match=r"'kernels' matches no parameter's name"):
        decayed(names, "kernels")
    with pytest.raises(ValidationError, match="not a valid regular expression"):
        Optimizer(decay_parameters="(")


def test_without_a_norm_nothing_is_clipped():
    gradients = {"img": {"kernel": jnp.full((4,), 1e4)}}
    for clip_norm, expected in ((None, 1e4), (1.0, 0.5)):
        optimizer = build_optimizer(Optimizer(clip_norm=clip_norm, warmup_percent=0), 10)
        _, state = optimizer.update(gradients, optimizer.init(gradients), gradients)
        [adam] = [part for part in state if isinstance(part, optax.ScaleByAdamState)]
        [mu] = jax.tree.leaves(adam.mu)
        np.testing.assert_allclose(mu, 0.1 * expected, rtol=1e-5)


def test_a_small_model_is_updated_as_a_large_one(monkeypatch):
    keys = jax.random.split(jax.random.key(0), 6)
    trees = [
        {"img": {"kernel": jax.random.normal(keys[i], (3, 2)), "bias": jax.random.normal(keys[i + 1], (2,))}}
        for i in (0, 2, 4)
    ]
    found = []
    for small, arrays in ((8, 1), (7, 2)):
        monkeypatch.setattr(module, "_SMALL", small)
        optimizer = build_optimizer(Optimizer(warmup_percent=0), 10)
        state = optimizer.init(trees[0])
        [adam] = [part for part in state if isinstance(part, optax.ScaleByAdamState)]
        assert len(jax.tree.leaves(adam.mu)) == arrays
        for gradients in trees[1:]:
            updates, state = optimizer.update(gradients, state, trees[0])
        found.append(updates)
    for one, two in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)


def test_the_length_of_the_schedule_may_be_traced():
    config = Optimizer(learning_rate=1e-3, warmup_percent=10)
    steps = jnp.arange(31)
    traced = jax.jit(lambda total: learning_rate(config, total)(steps))(jnp.int32(30))
    np.testing.assert_allclose(traced, learning_rate(config, 30)(steps), rtol=1e-6, atol=1e-12)


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
