"""Untrained towers: the shapes and lengths of embeddings, and what initialization depends on."""

import jax
import numpy as np
import pytest

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.two_towers import TwoTowerModel, embed, initialize

SMALL = TwoTowers(
    vision=VisionTower(image_size=16, patch_size=8, width=32, depth=2, heads=2),
    text=TextTower(vocabulary_size=64, length=6, width=24, depth=1, heads=2),
    embedding_dim=16,
)


@pytest.fixture(scope="module")
def parameters():
    return initialize(SMALL, jax.random.key(0))


def test_embeddings_have_unit_length_and_initial_temperature_and_bias(parameters):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 16, 16, 3)).astype(np.uint8)
    tokens = rng.integers(0, 64, (5, 6)).astype(np.int32)
    z = jax.jit(lambda *inputs: embed(TwoTowerModel(SMALL), *inputs))(parameters, images, tokens)
    assert z.image.shape == z.text.shape == (5, 16)
    np.testing.assert_allclose(np.linalg.norm(z.image, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(z.text, axis=1), 1, rtol=1e-5)
    assert float(z.temperature) == pytest.approx(10)
    assert float(z.bias) == -10


def test_initialization_depends_only_on_the_key(parameters):
    same, other = (initialize(SMALL, jax.random.key(seed)) for seed in (0, 1))
    jax.tree.map(np.testing.assert_array_equal, same, parameters)
    assert not np.allclose(other["img"]["embedding"]["kernel"], parameters["img"]["embedding"]["kernel"])
