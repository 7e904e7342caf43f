"""Shapes of the towers, and their matrix products counted from the traced code against the analytic costs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jestlab.analysis.costs import text_forward, vision_forward
from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.two_towers import TwoTowerModel, embed, initialize

SMALL = TwoTowers(
    vision=VisionTower(image_size=16, patch_size=8, width=32, depth=2, heads=2),
    text=TextTower(vocabulary_size=64, length=6, width=24, depth=1, heads=2),
    embedding_dim=16,
)
B16 = TwoTowers(
    vision=VisionTower(image_size=256, patch_size=16, width=768, depth=12, heads=12),
    text=TextTower(vocabulary_size=32_000, length=64, width=768, depth=12, heads=12),
    embedding_dim=768,
)


def matmul_flops(jaxpr):
    """2 × multiply–accumulate of every dot product and convolution in a jaxpr, sub-jaxprs included."""
    total = 0
    for equation in jaxpr.eqns:
        out = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            total += 2 * out * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        elif equation.primitive.name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape  # h, w, in, out
            total += 2 * out * math.prod(kernel[:3])
        for value in equation.params.values():
            if isinstance(value, jax.extend.core.ClosedJaxpr):
                total += matmul_flops(value.jaxpr)
            elif isinstance(value, jax.extend.core.Jaxpr):
                total += matmul_flops(value)
    return total


def traced_flops(config, method, *inputs):
    model = TwoTowerModel(config)
    parameters = jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
    trace = jax.make_jaxpr(lambda p, *x: model.apply({"params": p}, *x, method=method))(parameters, *inputs)
    return matmul_flops(trace.jaxpr)


def vision_arguments(config):
    v = config.vision
    return {
        "image_size": v.image_size,
        "patch_size": v.patch_size,
        "width": v.width,
        "depth": v.depth,
        "mlp_dim": v.mlp_dim or 4 * v.width,
        "pooling": v.pooling,
        "embedding_dim": None if v.width == config.embedding_dim else config.embedding_dim,
    }


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        SMALL.model_copy(update={"vision": SMALL.vision.model_copy(update={"pooling": "mean"})}),
        B16,
        TwoTowers(),
    ],
    ids=["small", "small mean-pooled", "B/16", "default"],
)
def test_analytic_cost_is_what_the_code_multiplies(config):
    size, length = config.vision.image_size, config.text.length
    images = jax.ShapeDtypeStruct((1, size, size, 3), jnp.uint8)
    tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
    t = config.text
    assert traced_flops(config, TwoTowerModel.embed_images, images) == vision_forward(
        **vision_arguments(config)
    )
    assert traced_flops(config, TwoTowerModel.embed_texts, tokens) == text_forward(
        length=length,
        width=t.width,
        depth=t.depth,
        mlp_dim=t.mlp_dim or 4 * t.width,
        embedding_dim=config.embedding_dim,
    )


def test_b16_has_siglips_number_of_parameters():
    parameters = jax.eval_shape(lambda: initialize(B16, jax.random.key(0)))
    count = {
        name: sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(parameters[name])) for name in parameters
    }
    assert round(count["img"] / 1e6, 1) == 92.9
    assert round(sum(count.values()) / 1e6, 1) == 203.2


def test_parameter_names_are_big_visions():
    parameters = jax.eval_shape(lambda: initialize(B16, jax.random.key(0)))
    assert set(parameters) == {"img", "txt", "t", "b"}
    assert set(parameters["img"]) == {"embedding", "pos_embedding", "Transformer", "MAPHead_0"}
    block = parameters["img"]["Transformer"]["encoderblock_0"]
    assert set(block) == {"LayerNorm_0", "LayerNorm_1", "MultiHeadDotProductAttention_0", "MlpBlock_0"}
    assert block["MultiHeadDotProductAttention_0"]["query"]["kernel"].shape == (768, 12, 64)
    assert set(parameters["txt"]) == {"Embed_0", "pos_embedding", "Encoder_0", "head"}


def test_embeddings_have_unit_length_and_initial_temperature_and_bias():
    parameters = initialize(SMALL, jax.random.key(0))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 16, 16, 3)).astype(np.uint8)
    tokens = rng.integers(0, 64, (5, 6)).astype(np.int32)
    z = embed(TwoTowerModel(SMALL), parameters, jnp.asarray(images), jnp.asarray(tokens))
    assert z.image.shape == z.text.shape == (5, 16)
    np.testing.assert_allclose(np.linalg.norm(z.image, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(z.text, axis=1), 1, rtol=1e-5)
    assert float(z.temperature) == pytest.approx(10)
    assert float(z.bias) == -10


def test_initialisation_depends_on_the_key_alone():
    one, same, other = (initialize(SMALL, jax.random.key(seed)) for seed in (0, 0, 1))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), one, same))
    assert not (one["img"]["embedding"]["kernel"] == other["img"]["embedding"]["kernel"]).all()
