"""PatchDrop: how many tokens are kept, what decides which, and that it works with both poolings."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.support.parameters import random_vision_parameters

from jestlab.models.config import VisionTower
from jestlab.models.two_towers import ImageEncoder, View, drop_patches


def tokens(n, length):
    """Token l of example i holds the number 100 i + l."""
    return (100 * jnp.arange(n)[:, None] + jnp.arange(length))[..., None]


@pytest.mark.parametrize(
    ("patches", "keep", "kept"), [(256, 0.25, 64), (9, 0.5, 4), (7, 0.5, 4), (4, 0.01, 1)]
)
def test_share_is_rounded_and_never_zero(patches, keep, kept):
    rows = jax.ShapeDtypeStruct((2, patches, 1), jnp.float32)
    found = jax.eval_shape(lambda x: drop_patches(x, keep, jax.random.key(0)), rows)
    assert found.shape == (2, kept, 1)


@settings(max_examples=10)
@given(
    n=st.just(2),
    length=st.sampled_from([1, 9]),
    keep=st.sampled_from([0.05, 0.5, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_kept_tokens_are_distinct_tokens_of_the_same_example(n, length, keep, seed):
    kept = np.asarray(drop_patches(tokens(n, length), keep, jax.random.key(seed)))[..., 0]
    for example, row in enumerate(kept):
        assert len(set(row)) == len(row)
        assert set(row) <= set(range(100 * example, 100 * example + length))


def test_only_key_and_position_decide():
    many, few, other = (
        np.asarray(drop_patches(tokens(n, 16), 0.25, jax.random.key(seed)))
        for n, seed in ((8, 3), (3, 3), (8, 4))
    )
    np.testing.assert_array_equal(many[:3], few)
    assert not (many == other).all()
    rows = many[..., 0] % 100
    assert len({tuple(row) for row in rows}) > 1


def test_tokens_are_kept_about_equally_often():
    kept = np.asarray(drop_patches(tokens(4_000, 8), 0.25, jax.random.key(0)))[..., 0] % 100
    np.testing.assert_allclose(np.bincount(kept.reshape(-1)) / 4_000, 0.25, atol=0.04)


@pytest.mark.parametrize("pooling", ["mean", pytest.param("map", marks=pytest.mark.full)])
def test_towers_see_only_the_kept_patches(pooling):
    """By the gradient of the position embeddings; and all patches in another order are the whole image."""
    tower = VisionTower(image_size=8, patch_size=4, width=8, depth=1, heads=2, pooling=pooling)
    model = ImageEncoder(tower)
    images = jnp.asarray(np.random.default_rng(0).normal(size=(1, 8, 8, 3)), jnp.float32)
    parameters = random_vision_parameters(tower)
    key = jax.random.key(5)

    @partial(jax.jit, static_argnums=1)
    def embedding(parameters, keep):
        return model.apply(parameters, images, View(keep=keep), key)[0]

    gradient = jax.jit(jax.grad(lambda p: embedding(p, 0.5)[0, 0]))(parameters)["params"]["pos_embedding"][0]
    seen = np.flatnonzero(np.abs(gradient).max(axis=-1))
    expected = np.asarray(drop_patches(tokens(1, 4), 0.5, key)).reshape(-1)
    np.testing.assert_array_equal(seen, np.sort(expected))

    np.testing.assert_allclose(embedding(parameters, 0.9), embedding(parameters, 1.0), rtol=1e-5, atol=1e-6)


def test_rejects_a_missing_key():
    tower = VisionTower(image_size=8, patch_size=4, width=8, depth=1, heads=2)
    images = jnp.zeros((1, 8, 8, 3))
    with pytest.raises(ValueError, match=r"keeps 0\.5 of the patches needs a key"):
        ImageEncoder(tower).init(jax.random.key(0), images, View(keep=0.5))
