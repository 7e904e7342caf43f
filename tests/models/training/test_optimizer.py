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

PARAMETERS = {
    "img": {"Dense_0": {"kernel": jnp.full((2, 2), 3.0), "bias": jnp.full((2,), 3.0)}},
    "t": jnp.ones((1,)),
    "b": jnp.ones((1,)),
}


def updated(optimizer, *gradients):
    """The updates and the state after some steps."""
    state, update = optimizer.init(PARAMETERS), jax.jit(optimizer.update)
    for each in gradients:
        updates, state = update(each, state, PARAMETERS)
    return updates, state


def first_moments(state):
    [adam] = [part for part in state if isinstance(part, optax.ScaleByAdamState)]
    return jax.tree.leaves(adam.mu)


def assert_close(found, expected, rtol):
    for one, two in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol)


@pytest.mark.parametrize("decay", ["cosine", "constant"])
@pytest.mark.parametrize(("total", "percent", "warmup"), [(91_553, 1.0, 916), (240, 5.0, 12), (50, 0.0, 0)])
def test_the_schedule_is_the_published_one(total, percent, warmup, decay):
    """By big_vision's `create_learning_rate_schedule`, in float64."""
    config = Optimizer(learning_rate=1e-3, warmup_percent=percent, decay=decay)
    steps = np.linspace(0, total, 200).astype(int)
    ours = jax.jit(learning_rate(config, total))(steps)
    np.testing.assert_allclose(learning_rate(config, total)(steps[7]), ours[7], rtol=1e-6)
    progress = np.clip((steps - warmup) / (total - warmup), 0.0, 1.0) if decay == "cosine" else 0.0
    warming = np.minimum(1.0, steps / warmup) if warmup else 1.0
    expected = 1e-3 * 0.5 * (1.0 + np.cos(np.pi * progress)) * warming
    np.testing.assert_allclose(ours, expected, atol=2e-10)


def test_a_pattern_selects_the_parameters_that_decay():
    names = {"img": {"Dense_0": {"kernel": 0, "bias": 0}}, "txt": {"Embed_0": {"embedding": 0}}, "t": 0}
    for pattern, marked in ((".*/kernel$", [0, 1, 0, 0]), ("(img|txt)/.*", [1, 1, 0, 1])):
        assert jax.tree.leaves(decayed(names, pattern)) == marked  # bias, kernel, t, embedding
    with pytest.raises(ValueError, match=r"'kernel' matches no parameter's name"):
        decayed(names, "kernel")
    with pytest.raises(ValidationError, match="not a valid regular expression"):
        Optimizer(decay_parameters="(")


@pytest.mark.parametrize("clip_norm, expected", [(None, 1e4), (1.0, 1 / np.sqrt(8))])
def test_gradients_are_clipped_by_their_global_norm(clip_norm, expected):
    gradients = jax.tree.map(lambda x: jnp.full_like(x, 1e4), PARAMETERS)  # 8 numbers
    optimizer = build_optimizer(Optimizer(clip_norm=clip_norm, warmup_percent=0, weight_decay=0), 10)
    [mu] = first_moments(updated(optimizer, gradients)[1])
    np.testing.assert_allclose(mu, 0.1 * expected, rtol=1e-5)


def test_a_small_model_is_updated_as_a_large_one(monkeypatch):
    rng = np.random.default_rng(0)
    gradients = [jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), PARAMETERS)] * 2
    found = []
    for small, arrays in ((8, 1), (7, 4)):
        monkeypatch.setattr(module, "_SMALL", small)
        updates, state = updated(build_optimizer(Optimizer(warmup_percent=0), 10), *gradients)
        assert len(first_moments(state)) == arrays
        found.append(updates)
    assert_close(found[0], found[1], rtol=1e-6)


def test_decay_is_adamw_with_the_decay_over_the_rate_and_touches_kernels_alone():
    config = Optimizer(learning_rate=1e-3, weight_decay=1e-4, warmup_percent=0, clip_norm=1e9, beta2=0.95)
    adamw = optax.adamw(
        optax.cosine_decay_schedule(1e-3, 100),
        b2=0.95,
        weight_decay=0.1,
        mask={"img": {"Dense_0": {"kernel": True, "bias": False}}, "t": False, "b": False},
    )
    gradients = PARAMETERS | {"img": {"Dense_0": {"kernel": jnp.full((2, 2), 0.3), "bias": jnp.ones(2)}}}
    ours, theirs = (updated(each, *[gradients] * 3)[0] for each in (build_optimizer(config, 100), adamw))
    assert_close(ours, theirs, rtol=1e-5)


def test_multiplier_scales_the_updates_of_temperature_and_bias_alone():
    plain, scaled = (
        updated(build_optimizer(Optimizer(temperature_multiplier=m, warmup_percent=0), 10), PARAMETERS)[0]
        for m in (1.0, 10.0)
    )
    assert_close(scaled, plain | {name: 10 * plain[name] for name in "tb"}, rtol=1e-6)
