"""Towers: initialization, patch sizes (FlexiViT), dropped patches (PatchDrop), and ways of execution."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from tests.models.support.parameters import random_parameters, random_vision_parameters

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.losses import sigmoid_loss
from jestlab.models.transformer import Encoder, Execution
from jestlab.models.two_towers import (
    FULL,
    ImageEncoder,
    TwoTowerModel,
    View,
    bilinear_matrix,
    drop_patches,
    embed,
    example_keys,
    initialize,
    resize_kernel,
    resize_positions,
    temperature_and_bias,
)

CONFIG = TwoTowers(
    vision=VisionTower(image_size=8, patch_size=4, width=16, depth=2, heads=2, pooling="mean"),
    text=TextTower(vocabulary_size=32, length=5, width=8, depth=1, heads=2),
    embedding_dim=12,
)


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.integers(0, 256, (3, 8, 8, 3)), jnp.uint8)
    return random_parameters(CONFIG), images, jnp.asarray(rng.integers(0, 32, (3, 5)), jnp.int32)


def test_initialization_depends_only_on_the_key():
    one, same, other = (initialize(CONFIG, jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, same, one)
    assert not np.allclose(other["img"]["embedding"]["kernel"], one["img"]["embedding"]["kernel"])
    temperature, bias = temperature_and_bias(one)
    assert float(temperature) == pytest.approx(10) and float(bias) == -10


def loss_of(execution, view=FULL, config=CONFIG):
    model = TwoTowerModel(config, execution)
    return lambda p, images, tokens: sigmoid_loss(embed(model, p, images, tokens, view, keys(7, len(images))))


def equations(jaxpr):
    """Yield every equation of a jaxpr, those of sub-jaxprs included; a loop's body once."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            if isinstance(value, ClosedJaxpr | Jaxpr):
                yield from equations(value.jaxpr if isinstance(value, ClosedJaxpr) else value)


def products(function, *arguments):
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    return sum(equation.primitive.name == "dot_general" for equation in equations(jaxpr))


@pytest.mark.parametrize(
    ("execution", "view"),
    [
        (Execution("all", scan=True), View(keep=0.5)),
        pytest.param(Execution("dots", scan=True), View(patch_size=8), marks=pytest.mark.full),
        pytest.param(Execution("dots"), FULL, marks=pytest.mark.full),
    ],
)
def test_every_execution_gives_the_same_loss_and_gradients(inputs, execution, view):
    (loss, gradients), (same, ours) = (
        jax.jit(jax.value_and_grad(loss_of(one, view)))(*inputs) for one in (Execution(), execution)
    )
    np.testing.assert_allclose(same, loss, rtol=1e-5)
    for found, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(gradients), strict=True):
        # Relative to the largest of its array; some gradients are 0 except for rounding.
        atol = 2e-5 * float(np.abs(expected).max()) + 1e-6
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_parameters_are_the_same_under_every_execution_and_dtype():
    one, other = (
        jax.jit(Encoder(2, 2, 8, dtype, execution).init)(jax.random.key(0), jnp.zeros((1, 3, 8)))
        for dtype, execution in (("float32", Execution()), ("bfloat16", Execution("dots", scan=True)))
    )
    same = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7)
    jax.tree.map(same, other, one)


def test_a_scan_traces_one_block_and_rematerialization_multiplies_again(inputs):
    forward = {scan: products(loss_of(Execution("none", scan)), *inputs) for scan in (False, True)}
    # Each block has 8 products; the image tower's second block is not traced.
    assert forward[True] == forward[False] - 8
    none, dots, everything = (
        products(jax.grad(loss_of(Execution(remat))), *inputs) for remat in ("none", "dots", "all")
    )
    assert dots == none + 3 * 2  # attention's two products
    assert everything == none + 3 * 7  # all but the last, whose result no gradient needs


def test_bfloat16_multiplies_in_bfloat16_and_normalizes_in_float32(inputs):
    config = CONFIG.model_copy(update={"compute_dtype": "bfloat16"})
    model = TwoTowerModel(config)
    trace = jax.make_jaxpr(lambda *a: embed(model, *a))(*inputs).jaxpr
    dtypes: dict[str, set[str]] = {}
    for equation in equations(trace):
        dtypes.setdefault(equation.primitive.name, set()).add(str(equation.invars[0].aval.dtype))
    assert dtypes["dot_general"] == {"bfloat16"}
    assert dtypes["exp"] == dtypes["rsqrt"] == dtypes["sqrt"] == {"float32"}
    z, full = (jax.jit(lambda *a, m=m: embed(m, *a))(*inputs) for m in (model, TwoTowerModel(CONFIG)))
    for rows, exact in ((z.image, full.image), (z.text, full.text)):
        assert rows.dtype == jnp.float32 and rows.shape == (3, 12)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
        assert float((rows * exact).sum(axis=1).min()) > 0.999
    gradients = jax.eval_shape(jax.grad(loss_of(Execution("dots", True), config=config)), *inputs)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradients)} == {jnp.dtype("float32")}


FLEXI = VisionTower(image_size=16, patch_size=4, width=16, depth=1, heads=2)


@pytest.fixture(scope="module")
def parameters():
    return random_vision_parameters(FLEXI)


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
    model, images = ImageEncoder(FLEXI), rng.uniform(-1, 1, (2, 16, 16, 3))
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
    model = ImageEncoder(FLEXI)
    images = np.random.default_rng(1).normal(size=(2, 16, 16, 3)).astype(np.float32)

    gradient = jax.grad(lambda p: model.apply(p, images, View(patch_size=patch_size))[0].sum())
    gradients = jax.jit(gradient)(parameters)
    for name in ("embedding", "pos_embedding"):
        assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(gradients["params"][name]))


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (View(patch_size=5), "patch size 5 does not divide images of 16 pixels"),
        (View(keep=0.5), r"keeps 0\.5 of the patches needs keys"),
    ],
)
def test_rejects_views(parameters, view, message):
    with pytest.raises(ValueError, match=message):
        ImageEncoder(FLEXI).apply(parameters, jnp.zeros((1, 16, 16, 3)), view)


def test_positions_are_resized_with_antialias():
    """Halved, a line of positions 0 … 7 is smoothed over more than its two nearest neighbours."""
    rows = jnp.tile(jnp.arange(8.0)[:, None], (1, 8)).reshape(1, 64, 1)
    halved = resize_positions(rows, 4).reshape(4, 4)
    # The triangle of halfwidth 2 around 0.5: weights 1.5, 1.5, .5 on pixels 0, 1, 2 (½ outside is cut off).
    edge = (0.75 * 0 + 0.75 * 1 + 0.25 * 2) / 1.75
    np.testing.assert_allclose(halved[:, 0], [edge, 2.5, 4.5, 7 - edge], rtol=1e-5)
    assert resize_positions(rows, 8) is rows


def keys(seed, n):
    return example_keys(jax.random.key(seed), jnp.arange(n))


def tokens(n, length):
    """Token l of example i holds the number 1000 i + l."""
    return (1000 * jnp.arange(n)[:, None] + jnp.arange(length))[..., None]


@pytest.mark.parametrize(
    ("patches", "keep", "count"), [(256, 0.25, 64), (9, 0.5, 4), (7, 0.5, 4), (4, 0.01, 1), (9, 1.0, 9)]
)
def test_share_is_rounded_and_kept_tokens_are_distinct_tokens_of_the_same_example(patches, keep, count):
    kept = np.asarray(drop_patches(tokens(2, patches), keep, keys(0, 2)))
    assert kept.shape == (2, count, 1)
    for example, row in enumerate(kept[..., 0]):
        assert len({*row}) == count and {*row} <= {*range(1000 * example, 1000 * example + patches)}


def test_only_key_and_position_decide():
    many, few, other = (
        np.asarray(drop_patches(tokens(n, 16), 0.25, keys(seed, n))) for n, seed in ((8, 3), (3, 3), (8, 4))
    )
    np.testing.assert_array_equal(many[:3], few)
    assert not (many == other).all()
    # All tokens are kept about equally often.
    kept = np.asarray(drop_patches(tokens(4_000, 8), 0.25, keys(0, 4_000)))[..., 0] % 1000
    np.testing.assert_allclose(np.bincount(kept.reshape(-1)) / 4_000, 0.25, atol=0.04)


def test_towers_see_only_the_kept_patches(parameters):
    """By the gradient of the position embeddings; and all patches in another order are the whole image."""
    model, one = ImageEncoder(FLEXI), keys(5, 1)
    images = jnp.asarray(np.random.default_rng(0).normal(size=(1, 16, 16, 3)), jnp.float32)

    @functools.partial(jax.jit, static_argnums=1)
    def embedding(parameters, keep):
        return model.apply(parameters, images, View(keep=keep), one)[0]

    gradient = jax.jit(jax.grad(lambda p: embedding(p, 0.5)[0, 0]))(parameters)["params"]["pos_embedding"][0]
    seen = np.flatnonzero(np.abs(gradient).max(axis=-1))
    expected = np.asarray(drop_patches(tokens(1, 16), 0.5, one)).reshape(-1)
    np.testing.assert_array_equal(seen, np.sort(expected))

    np.testing.assert_allclose(embedding(parameters, 0.99), embedding(parameters, 1.0), rtol=1e-5, atol=1e-6)
