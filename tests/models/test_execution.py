"""Towers: their initialization; rematerialized, scanned or in bfloat16 the same parameters and values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from tests.models.support.parameters import random_parameters

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.losses import sigmoid_loss
from jestlab.models.transformer import Encoder, Execution
from jestlab.models.two_towers import FULL, TwoTowerModel, View, embed, initialize, temperature_and_bias

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
    return lambda p, images, tokens: sigmoid_loss(embed(model, p, images, tokens, view, jax.random.key(7)))


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
    assert z.image.dtype == z.text.dtype == jnp.float32
    assert z.image.shape == z.text.shape == (3, 12)
    for rows in (z.image, z.text):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    assert float((z.image * full.image).sum(axis=1).min()) > 0.999
    assert float((z.text * full.text).sum(axis=1).min()) > 0.999
    gradients = jax.eval_shape(jax.grad(loss_of(Execution("dots", True), config=config)), *inputs)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradients)} == {jnp.dtype("float32")}
