"""The model: an image tower and a text tower with the sigmoid loss's temperature and bias."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from jestlab.models.config import TextTower, TwoTowers
from jestlab.models.transformer import Encoder, Execution
from jestlab.models.vit import FULL, View, VisionTransformer


class TextTransformer(nn.Module):
    """The text tower: a transformer without causal or padding mask, as in SigLIP; one vector per sequence.

    Attributes:
        config: Sizes of the tower.
        embedding_dim: Width of the dense head.
        dtype: Of the activations; parameters and results are float32.
        execution: How the encoder is computed.
    """

    config: TextTower
    embedding_dim: int
    dtype: str = "float32"
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Encode tokens: int32 [n, L] → embedding float32 [n, E], not normalised."""
        cfg = self.config
        # Only the rows looked up are converted, not the whole table.
        x = nn.Embed(cfg.vocabulary_size, cfg.width)(tokens).astype(self.dtype)
        _, length, width = x.shape
        positions = self.param(
            "pos_embedding", nn.initializers.normal(stddev=width**-0.5), (1, length, width)
        )
        x = x + positions.astype(self.dtype)
        mlp_dim = cfg.mlp_dim or 4 * cfg.width
        x = Encoder(cfg.depth, cfg.heads, mlp_dim, self.dtype, self.execution, name="Encoder_0")(x)
        x = x[:, -1] if cfg.pooling == "last" else x.mean(axis=1)
        return nn.Dense(self.embedding_dim, dtype=self.dtype, name="head")(x).astype(jnp.float32)


Parameters = dict[str, Any]
"""The tree `{img: …, txt: …, t: [1], b: [1]}`; t is stored as its logarithm, as big_vision does."""


class Embeddings(NamedTuple):
    """A batch in the shared space, with the t and b of the logits z_img · z_txt · t + b."""

    image: jax.Array  # float32 [n, E], unit length
    text: jax.Array  # float32 [n, E], unit length
    temperature: jax.Array  # float32 [], t
    bias: jax.Array  # float32 [], b


def _normalize(z: jax.Array) -> jax.Array:
    """Return z / (‖z‖ + 1e-8) along the last axis, as in SigLIP's public code."""
    normalized: jax.Array = z / (jnp.linalg.norm(z, axis=-1, keepdims=True) + 1e-8)
    return normalized


class TwoTowerModel(nn.Module):
    """The whole model; `embed_images`, `embed_texts` and `features` are its parts for evaluation.

    The parameter tree depends on the sizes in the config alone: not on `compute_dtype`, execution or view.

    Attributes:
        config: Sizes, and the dtype of the towers' activations.
        execution: How the encoders are computed.
    """

    config: TwoTowers
    execution: Execution = Execution()

    def setup(self) -> None:
        """Name the parts as big_vision names them."""
        cfg = self.config
        head = None if cfg.vision.width == cfg.embedding_dim else cfg.embedding_dim
        self.img = VisionTransformer(cfg.vision, head, cfg.compute_dtype, self.execution)
        self.txt = TextTransformer(cfg.text, cfg.embedding_dim, cfg.compute_dtype, self.execution)
        self.t = self.param("t", nn.initializers.constant(jnp.log(cfg.initial_temperature)), (1,))
        self.b = self.param("b", nn.initializers.constant(cfg.initial_bias), (1,))

    def __call__(
        self, images: jax.Array, tokens: jax.Array, view: View = FULL, key: jax.Array | None = None
    ) -> Embeddings:
        """Embed pairs of images and texts.

        Args:
            images: uint8 [n, h, h, 3], as decoded.
            tokens: int32 [n, L].
            view: How closely to look at the images.
            key: Draws the patches of a view that keeps less than all.

        Returns:
            Normalised embeddings with t and b.
        """
        z_image, z_text = self.embed_images(images, view, key), self.embed_texts(tokens)
        return Embeddings(z_image, z_text, *self.temperature_and_bias())

    def embed_images(self, images: jax.Array, view: View = FULL, key: jax.Array | None = None) -> jax.Array:
        """Embed images: uint8 [n, h, h, 3] → float32 [n, E], unit length."""
        return _normalize(self.img(_to_unit_range(images), view, key)[0])

    def embed_texts(self, tokens: jax.Array) -> jax.Array:
        """Embed texts: int32 [n, L] → float32 [n, E], unit length."""
        return _normalize(self.txt(tokens))

    def features(self, images: jax.Array) -> jax.Array:
        """Compute pooled image features before the head: uint8 [n, h, h, 3] → float32 [n, D]."""
        features: jax.Array = self.img(_to_unit_range(images))[1]
        return features

    def temperature_and_bias(self) -> tuple[jax.Array, jax.Array]:
        """Return t and b, both float32 []."""
        return jnp.exp(self.t[0]), self.b[0]


def _to_unit_range(images: jax.Array) -> jax.Array:
    """Map pixels from uint8 0…255 to float32 −1…1."""
    return images.astype(jnp.float32) / 127.5 - 1.0


def embed(
    model: TwoTowerModel,
    parameters: Parameters,
    images: jax.Array,
    tokens: jax.Array,
    view: View = FULL,
    key: jax.Array | None = None,
) -> Embeddings:
    """Apply `model(images, tokens, view, key)` with given parameters."""
    return cast(Embeddings, model.apply({"params": parameters}, images, tokens, view, key))


def temperature_and_bias(parameters: Parameters) -> tuple[jax.Array, jax.Array]:
    """t and b, float32 [], of whole parameters or of these two alone."""
    return jnp.exp(parameters["t"][0]), parameters["b"][0]


def initialize(config: TwoTowers, key: jax.Array) -> Parameters:
    """Create fresh parameters, float32, from a PRNG key."""
    images = jnp.zeros((1, config.vision.image_size, config.vision.image_size, 3), jnp.uint8)
    tokens = jnp.zeros((1, config.text.length), jnp.int32)
    parameters: Parameters = _initializer(config)(key, images, tokens)["params"]
    return parameters


@functools.cache
def _initializer(config: TwoTowers) -> Callable[..., Any]:
    """Compile one function: initialising operation by operation would compile a hundred small ones."""
    return jax.jit(TwoTowerModel(config).init)
