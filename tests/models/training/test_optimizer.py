"""The optimizer against the algebra of the paper's appendix."""

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


def published_cosine(step, *, base, warmup, total):
    """big_vision's `create_learning_rate_schedule`, decay_type "cosine", in float64."""
    progress = np.clip((step - warmup) / float(total - warmup), 0.0, 1.0)
    rate = base * 0.5 * (1.0 + np.cos(np.pi * progress))
    return rate * np.minimum(1.0, step / warmup) if warmup else rate


@pytest.mark.parametrize(("total", "percent", "warmup"), [(91_553, 1.0, 916), (240, 5.0, 12), (50, 0.0, 0)])
def test_the_schedule_is_the_published_one(total, percent, warmup):
    """Also if its length is only known when the step runs."""
    config = Optimizer(learning_rate=1e-3, warmup_percent=percent)
    steps = np.linspace(0, total, 200).astype(int)
    ours = jax.jit(lambda total, steps: learning_rate(config, total)(steps))(total, steps)
    np.testing.assert_allclose(learning_rate(config, total)(steps[7]), ours[7], rtol=1e-6)
    theirs = published_cosine(steps, base=1e-3, warmup=warmup, total=total)
    np.testing.assert_allclose(ours, theirs, atol=2e-10)


def test_a_constant_rate_stays_after_its_warm_up():
    schedule = learning_rate(Optimizer(learning_rate=1e-3, warmup_percent=10, decay="constant"), 100)
    rates = schedule(np.array([0, 5, 10, 60, 100]))
    np.testing.assert_allclose(rates, [0, 5e-4, 1e-3, 1e-3, 1e-3], rtol=1e-6)


def test_a_pattern_selects_the_parameters_that_decay():
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


@pytest.mark.parametrize("clip_norm, expected", [(None, 1e4), (1.0, 0.5)])
def test_gradients_are_clipped_by_their_global_norm(clip_norm, expected):
    gradients = {"img": {"kernel": jnp.full((4,), 1e4)}}
    optimizer = build_optimizer(Optimizer(clip_norm=clip_norm, warmup_percent=0, weight_decay=0), 10)
    _, state = jax.jit(optimizer.update)(gradients, optimizer.init(gradients), gradients)
    [adam] = [part for part in state if isinstance(part, optax.ScaleByAdamState)]
    [mu] = jax.tree.leaves(adam.mu)
    np.testing.assert_allclose(mu, 0.1 * expected, rtol=1e-5)


def test_a_small_model_is_updated_as_a_large_one(monkeypatch):
    rng = np.random.default_rng(0)
    trees = [
        {"img": {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}}
        for shapes in [{"kernel": (3, 2), "bias": (2,)}] * 3
    ]
    found = []
    for small, arrays in ((8, 1), (7, 2)):
        monkeypatch.setattr(module, "_SMALL", small)
        optimizer = build_optimizer(Optimizer(warmup_percent=0), 10)
        state = optimizer.init(trees[0])
        [adam] = [part for part in state if isinstance(part, optax.ScaleByAdamState)]
        assert len(jax.tree.leaves(adam.mu)) == arrays
        update = jax.jit(optimizer.update)
        for gradients in trees[1:]:
            updates, state = update(gradients, state, trees[0])
        found.append(updates)
    for one, two in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)


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
    update_ours, update_theirs = jax.jit(ours.update), jax.jit(theirs.update)
    for _ in range(3):
        mine, ours_state = update_ours(gradients, ours_state, parameters)
        other, theirs_state = update_theirs(gradients, theirs_state, parameters)
        for one, two in zip(*map(jax.tree.leaves, (mine, other)), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5)


def test_multiplier_scales_the_updates_of_temperature_and_bias_alone():
    parameters = tree()
    gradients = tree()

    def update(multiplier):
        optimizer = build_optimizer(Optimizer(temperature_multiplier=multiplier, warmup_percent=0), 10)
        return jax.jit(optimizer.update)(gradients, optimizer.init(parameters), parameters)[0]

    plain, scaled = update(1.0), update(10.0)
    np.testing.assert_allclose(scaled["t"], 10 * plain["t"], rtol=1e-6)
    np.testing.assert_allclose(scaled["b"], 10 * plain["b"], rtol=1e-6)
    np.testing.assert_array_equal(scaled["img"]["Dense_0"]["kernel"], plain["img"]["Dense_0"]["kernel"])
