"""The analytic costs against XLA's own count of the lowered code: every variant, forward and training.

XLA counts every addition and multiplication, of normalisations, activations and softmax too; the costs count
products of matrices alone. So XLA's count is the larger one, by what is elementwise. Batches are such
that the work of a batch as a whole (resizing kernels and positions) is spread over its examples.
"""

from typing import get_args

import jax
import jax.numpy as jnp
import pytest
from tests.models.support.variants import shallow

from jestlab.analysis.costs import text_forward, vision_forward
from jestlab.models.config import Variant
from jestlab.models.losses import sigmoid_loss
from jestlab.models.two_towers import FULL, TwoTowerModel, View, embed, initialize

BATCH = 64


def xla_flops(config, function, *arguments):
    """FLOPs an example of `function(parameters, *arguments)`, as lowered, not compiled."""
    parameters = jax.eval_shape(lambda: initialize(config, jax.random.key(0)))
    counted = jax.jit(function).lower(parameters, *arguments).cost_analysis()
    assert counted is not None
    return counted["flops"] / BATCH


def image_cost(config, patch_size=None):
    v = config.vision
    return vision_forward(
        image_size=v.image_size,
        patch_size=patch_size or v.patch_size,
        width=v.width,
        depth=v.depth,
        mlp_dim=v.mlp_dim or 4 * v.width,
        pooling=v.pooling,
        embedding_dim=None if v.width == config.embedding_dim else config.embedding_dim,
    )


def text_cost(config):
    t = config.text
    sizes = {"length": t.length, "width": t.width, "depth": t.depth, "mlp_dim": t.mlp_dim or 4 * t.width}
    return text_forward(**sizes, embedding_dim=config.embedding_dim)


def inputs(config):
    size, length = config.vision.image_size, config.text.length
    images = jax.ShapeDtypeStruct((BATCH, size, size, 3), jnp.uint8)
    return images, jax.ShapeDtypeStruct((BATCH, length), jnp.int32)


@pytest.mark.parametrize("variant", get_args(Variant))
def test_forward_passes_cost_what_xla_counts(variant):
    config = shallow(variant)
    model = TwoTowerModel(config)
    images, tokens = inputs(config)

    def embed_images(view):
        return lambda p, x: model.apply({"params": p}, x, view, method=TwoTowerModel.embed_images)

    def embed_texts(p, x):
        return model.apply({"params": p}, x, method=TwoTowerModel.embed_texts)

    twice = 2 * config.vision.patch_size
    assert xla_flops(config, embed_images(FULL), images) == pytest.approx(image_cost(config), rel=0.02)
    if config.vision.image_size % twice == 0:
        seen = xla_flops(config, embed_images(View(patch_size=twice)), images)
        assert seen == pytest.approx(image_cost(config, twice), rel=0.02)
    assert xla_flops(config, embed_texts, tokens) == pytest.approx(text_cost(config), rel=0.02)


def test_a_training_step_costs_three_forward_passes():
    config = shallow("B/16")
    model = TwoTowerModel(config)

    def loss(parameters, images, tokens):
        return sigmoid_loss(embed(model, parameters, images, tokens))

    seen = xla_flops(config, jax.value_and_grad(loss), *inputs(config))
    assert seen == pytest.approx(3 * (image_cost(config) + text_cost(config)), rel=0.02)
