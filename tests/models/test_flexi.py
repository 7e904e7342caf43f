"""FlexiViT: kernels resized as published, and towers that see the same at other patch sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support.parameters import random_vision_parameters

from jestlab.models.config import VisionTower
from jestlab.models.two_towers import (
    ImageEncoder,
    View,
    bilinear_matrix,
    resize_kernel,
    resize_positions,
)

TOWER = VisionTower(image_size=16, patch_size=4, width=16, depth=1, heads=2)


@pytest.fixture(scope="module")
def parameters():
    return random_vision_parameters(TOWER)


@pytest.mark.parametrize(("old", "new"), [(16, 32), (16, 8), (8, 12), (14, 10)])
def test_kernel_is_resized_as_published(old, new):
    """The resize of whole patches as a matrix, column by column, its pseudo-inverse on flattened kernels."""
    pixels = jnp.eye(old * old).reshape(-1, old, old)
    patches = jax.image.resize(pixels, (old * old, new, new), "bilinear", antialias=False)
    inverse = np.linalg.pinv(patches.reshape(old * old, -1).astype(float))
    kernel = np.random.default_rng(0).normal(size=(old, old, 3, 5))
    expected = (inverse @ kernel.reshape(old * old, 15)).reshape(new, new, 3, 5)
    resized = resize_kernel(jnp.asarray(kernel, jnp.float32), new)
    np.testing.assert_allclose(resized, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_magnified_patches_give_the_same_embedding(parameters):
    """Twice the patch size on images whose patches were each resized to twice the size: nothing changes."""
    rng = np.random.default_rng(0)
    model, images = ImageEncoder(TOWER), rng.uniform(-1, 1, (2, 16, 16, 3))
    resize = bilinear_matrix(4, 8)
    patches = images.reshape(2, 4, 4, 4, 4, 3)
    magnified = np.einsum("ai,bj,nyixjc->nyaxbc", resize, resize, patches).reshape(2, 32, 32, 3)
    expected, _ = jax.jit(model.apply)(parameters, jnp.asarray(images, jnp.float32))
    apply = jax.jit(lambda *inputs: model.apply(*inputs, View(patch_size=8)))
    embedding, _ = apply(parameters, jnp.asarray(magnified, jnp.float32))
    np.testing.assert_allclose(embedding, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "patch_size", [8, *(pytest.param(size, marks=pytest.mark.full) for size in (1, 2, 16))]
)
def test_every_divisor_is_a_patch_size_and_trains_the_same_parameters(parameters, patch_size):
    model = ImageEncoder(TOWER)
    images = np.random.default_rng(1).normal(size=(2, 16, 16, 3)).astype(np.float32)

    def loss(parameters):
        return model.apply(parameters, images, View(patch_size=patch_size))[0].sum()

    gradients = jax.jit(jax.grad(loss))(parameters)
    assert jax.tree.map(jnp.shape, gradients) == jax.tree.map(jnp.shape, parameters)
    for name in ("embedding", "pos_embedding"):
        assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(gradients["params"][name]))


def test_rejects_a_patch_size_that_does_not_divide_the_image(parameters):
    with pytest.raises(ValueError, match="patch size 5 does not divide images of 16 pixels"):
        ImageEncoder(TOWER).apply(parameters, jnp.zeros((1, 16, 16, 3)), View(patch_size=5))


def test_positions_are_resized_with_antialias():
    """Halved, a line of positions 0 … 7 is smoothed over more than its two nearest neighbours."""
    rows = jnp.tile(jnp.arange(8.0)[:, None], (1, 8)).reshape(1, 64, 1)
    halved = resize_positions(rows, 4).reshape(4, 4)
    # The triangle of halfwidth 2 around 0.5: weights 1.5, 1.5, .5 on pixels 0, 1, 2 (½ outside is cut off).
    edge = (0.75 * 0 + 0.75 * 1 + 0.25 * 2) / 1.75
    np.testing.assert_allclose(halved[:, 0], [edge, 2.5, 4.5, 7 - edge], rtol=1e-5)
    assert resize_positions(rows, 8) is rows
