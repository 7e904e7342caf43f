"""The model: an image tower and a text tower, with the temperature and bias of the sigmoid loss.

The image tower is a Vision Transformer (Dosovitskiy et al., 2021) that supports any patch size. Other patch
sizes than the configured one are FlexiViT (Beyer et al., 2023, Sec. 3.4): the parameters have the configured
patch size and are resized in every forward pass, so that the gradients of all patch sizes update the same
parameters. Resizing a resized kernel would lose information.

Custom towers need no edit here (docs/how-to/extend-training.md). To add a tower here, also edit
`config.towers` (name, sizes, `is_custom`), `config.train` (views, `reuse_scoring`), `weights.parameters`,
`weights.formats`, `analysis.flops`, and in platform/ `programs.pricing` and `planning.memory`.

Letters: n examples, L tokens or patches, p side of a patch in pixels, g patches along a side, D width,
E embedding.
"""

import functools
from dataclasses import dataclass
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models import extensions
from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.selection import Embeddings
from jestlab.models.transformer import Encoder, Execution, MAPHead


def bilinear_matrix(old: int, new: int) -> np.ndarray:
    """Return the matrix R, float64 [new, old], that resizes a line of pixels; its rows sum to 1.

    Bilinear, with half-pixel centers, without antialiasing.
    """
    centers = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    return np.maximum(0.0, 1.0 - np.abs(centers[:, None] - np.arange(old)))


def resize_kernel(kernel: jax.Array, patch_size: int) -> jax.Array:
    """Resize a patch embedding so that resized patches embed as nearly as possible like the original patches.

    FlexiViT's w' = (Bᵀ)⁺ vec(w), with B the resize of whole patches. B is R ⊗ R, so for each input and output
    channel w' = P w Pᵀ with P = (Rᵀ)⁺. When patches grow, ⟨B x, w'⟩ = ⟨x, w⟩ for every patch x.

    Args:
        kernel: float32 [p, p, channels, D].
        patch_size: The new side of a patch, in pixels.

    Returns:
        float32 [patch_size, patch_size, channels, D]; the same array if it has that size.
    """
    if kernel.shape[0] == patch_size:
        return kernel
    p = jnp.asarray(np.linalg.pinv(bilinear_matrix(kernel.shape[0], patch_size).T), kernel.dtype)
    return jnp.einsum("ai,bj,ijcd->abcd", p, p, kernel, precision="highest")


def resize_positions(embedding: jax.Array, grid: int) -> jax.Array:
    """Resize learned position embeddings to another number of patches: linear, with antialiasing.

    Args:
        embedding: float32 [1, g², D], of a g × g grid of patches, row by row.
        grid: The new number of patches along a side.

    Returns:
        float32 [1, grid², D]; the same array if it has that size.
    """
    _, length, width = embedding.shape
    old = round(length**0.5)
    if old == grid:
        return embedding
    resized: jax.Array = jax.image.resize(embedding.reshape(old, old, width), (grid, grid, width), "linear")
    return resized.reshape(1, grid * grid, width)


@dataclass(frozen=True)
class View:
    """The part and resolution of an image that a tower processes; all views share the parameters (Sec. 3.3).

    Attributes:
        patch_size: Side of a patch in pixels, a divisor of the image's side; None for the configured size.
            Another size is FlexiViT.
        keep: Share of the patches to process, drawn for every image. Below 1 this is PatchDrop (Li et al.,
            2023).
    """

    patch_size: int | None = None
    keep: float = 1.0


FULL = View()
"""All patches, of the configured size."""


def example_keys(key: jax.Array, positions: jax.Array) -> jax.Array:
    """Derive a key for each example from the batch's key and its position in the whole batch, int [n]."""
    return jax.vmap(lambda position: jax.random.fold_in(key, position))(positions)


def drop_patches(x: jax.Array, keep: float, keys: jax.Array) -> jax.Array:
    """Keep a random part of every example's tokens.

    Args:
        x: float [n, L, D].
        keep: Share of the tokens.
        keys: [n], a PRNG key for each example: see `example_keys`.

    Returns:
        float [n, keep · L, D], that number rounded, at least 1.
    """
    length = x.shape[1]
    orders = jax.vmap(lambda key: jax.random.permutation(key, length))(keys)
    kept = orders[:, : max(1, round(keep * length))]
    return jnp.take_along_axis(x, kept[:, :, None], axis=1)


class PatchEmbedding(nn.Module):
    """A linear map of each patch: the convolution whose stride is its size, as a matrix product."""

    width: int
    patch_size: int  # p of the parameters
    dtype: str

    @nn.compact
    def __call__(self, images: jax.Array, patch_size: int) -> jax.Array:
        """Embed images, patch by patch in rows: float [n, h, w, 3] → float [n, L, D]."""
        shape = (self.patch_size, self.patch_size, 3, self.width)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        n, h, w, channels = images.shape
        x = images.astype(self.dtype).reshape(
            n, h // patch_size, patch_size, w // patch_size, patch_size, channels
        )
        x = x.swapaxes(2, 3).reshape(n, -1, patch_size * patch_size * channels)
        kernel = resize_kernel(kernel, patch_size).reshape(-1, self.width)
        return x @ kernel.astype(self.dtype) + bias.astype(self.dtype)


class ImageEncoder(nn.Module):
    """The image tower: images to one vector each.

    A custom tower is the result of `architecture(config, **options)`: a Flax module from images float32
    [n, h, h, 3] in [−1, 1] to features [n, D].

    Attributes:
        config: Sizes of the tower, or the name of a custom one.
        embedding_dim: Width of a dense head after pooling; None for no head (SigLIP's towers have none).
        dtype: Of the activations; parameters and results are float32.
        execution: Memory and compile time of the built-in encoder.
    """

    config: VisionTower
    embedding_dim: int | None = None
    dtype: str = "float32"
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, images: jax.Array, view: View = FULL, keys: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Encode images.

        Args:
            images: float32 [n, h, h, 3] in [−1, 1].
            view: What the built-in tower processes; a custom tower processes everything.
            keys: [n], draw the patches of a view that keeps less than all: see `example_keys`.

        Returns:
            The embedding, float32 [n, E], not normalized, and the pooled features before the head
            ("pre-logits"), float32 [n, D], on which linear probes are trained.

        Raises:
            ValueError: The patches don't divide the images, keys are missing, or a custom tower returns
                another shape.
        """
        if self.config.is_custom:
            features = _custom_features(self.config, images)
        else:
            features = self._vision_transformer(images, view, keys)
        embedding = features
        if self.embedding_dim is not None:
            embedding = nn.Dense(self.embedding_dim, dtype=self.dtype, name="head")(features)
        return embedding.astype(jnp.float32), features.astype(jnp.float32)

    def _vision_transformer(self, images: jax.Array, view: View, keys: jax.Array | None) -> jax.Array:
        cfg = self.config
        mlp_dim = cfg.mlp_dim or 4 * cfg.width
        size, patch_size = images.shape[1], view.patch_size or cfg.patch_size
        if size % patch_size:
            raise ValueError(f"patch size {patch_size} does not divide images of {size} pixels")
        x = PatchEmbedding(cfg.width, cfg.patch_size, self.dtype, name="embedding")(images, patch_size)
        positions = _positions(self, (cfg.image_size // cfg.patch_size) ** 2, cfg.width)
        x = x + resize_positions(positions, size // patch_size).astype(self.dtype)
        if view.keep < 1.0:
            if keys is None:
                raise ValueError(f"a view that keeps {view.keep:g} of the patches needs keys to draw them")
            x = drop_patches(x, view.keep, keys)
        x = Encoder(cfg.depth, cfg.heads, mlp_dim, self.dtype, self.execution, name="Transformer")(x)
        return MAPHead(cfg.heads, mlp_dim, self.dtype)(x) if cfg.pooling == "map" else x.mean(axis=1)


class TextEncoder(nn.Module):
    """The text tower: a transformer without causal or padding mask, as in SigLIP; one vector per sequence.

    A custom tower is the result of `architecture(config, **options)`: a Flax module from tokens int32 [n, L]
    to features [n, D].

    The attributes are those of `ImageEncoder`.
    """

    config: TextTower
    embedding_dim: int
    dtype: str = "float32"
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Encode tokens: int32 [n, L] → embedding float32 [n, E], not normalized.

        Raises:
            ValueError: A custom tower returns another shape.
        """
        x = _custom_features(self.config, tokens) if self.config.is_custom else self._transformer(tokens)
        return nn.Dense(self.embedding_dim, dtype=self.dtype, name="head")(x).astype(jnp.float32)

    def _transformer(self, tokens: jax.Array) -> jax.Array:
        cfg = self.config
        # Only the rows looked up are converted, not the whole table.
        x = nn.Embed(cfg.vocabulary_size, cfg.width)(tokens).astype(self.dtype)
        x = x + _positions(self, x.shape[1], cfg.width).astype(self.dtype)
        mlp_dim = cfg.mlp_dim or 4 * cfg.width
        x = Encoder(cfg.depth, cfg.heads, mlp_dim, self.dtype, self.execution, name="Encoder_0")(x)
        return x[:, -1] if cfg.pooling == "last" else x.mean(axis=1)


def _positions(module: nn.Module, length: int, width: int) -> jax.Array:
    """Return the learned position embeddings of a tower, float32 [1, L, D]."""
    initializer = nn.initializers.normal(stddev=width**-0.5)
    return module.param("pos_embedding", initializer, (1, length, width))


def _custom_features(config: VisionTower | TextTower, inputs: jax.Array) -> jax.Array:
    """Apply the custom tower of a config, inside the module that calls this."""
    tower = extensions.load("tower", config.architecture)(config, **config.options)
    features: jax.Array = tower(inputs)
    if features.shape != (inputs.shape[0], config.width):
        raise ValueError(
            f"tower {config.architecture!r} must return features [n, {config.width}] (its config's width), "
            f"not {list(features.shape)}"
        )
    return features


Parameters = dict[str, Any]
"""The tree `{img: …, txt: …, t: [1], b: [1]}`; t is stored as its logarithm, as big_vision does."""


def _normalize(z: jax.Array) -> jax.Array:
    """Return z / (‖z‖ + 1e-8) along the last axis, as in SigLIP's public code."""
    normalized: jax.Array = z / (jnp.linalg.norm(z, axis=-1, keepdims=True) + 1e-8)
    return normalized


class TwoTowerModel(nn.Module):
    """The whole model; `images_and_features` and `embed_texts` are the parts that evaluations use.

    The parameter tree depends only on the sizes in the config, not on `compute_dtype`, execution, or view.
    """

    config: TwoTowers
    execution: Execution = Execution()

    def setup(self) -> None:
        """Name the parts as big_vision names them."""
        cfg = self.config
        head = None if cfg.vision.width == cfg.embedding_dim else cfg.embedding_dim
        self.img = ImageEncoder(cfg.vision, head, cfg.compute_dtype, self.execution)
        self.txt = TextEncoder(cfg.text, cfg.embedding_dim, cfg.compute_dtype, self.execution)
        self.t = self.param("t", nn.initializers.constant(jnp.log(cfg.initial_temperature)), (1,))
        self.b = self.param("b", nn.initializers.constant(cfg.initial_bias), (1,))

    def __call__(
        self, images: jax.Array, tokens: jax.Array, view: View = FULL, keys: jax.Array | None = None
    ) -> Embeddings:
        """Embed pairs of images and texts.

        Args:
            images: uint8 [n, h, h, 3], as decoded.
            tokens: int32 [n, L].
            view: What to process of the images.
            keys: See `ImageEncoder`.

        Returns:
            Normalized embeddings with t and b.
        """
        z_image, z_text = self.embed_images(images, view, keys), self.embed_texts(tokens)
        return Embeddings(z_image, z_text, *temperature_and_bias({"t": self.t, "b": self.b}))

    def embed_images(self, images: jax.Array, view: View = FULL, keys: jax.Array | None = None) -> jax.Array:
        """Embed images: uint8 [n, h, h, 3] → float32 [n, E], unit length."""
        return self.images_and_features(images, view, keys)[0]

    def images_and_features(
        self, images: jax.Array, view: View = FULL, keys: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Embed images, and return also their pooled features before the head, float32 [n, D]."""
        z, features = self.img(images.astype(jnp.float32) / 127.5 - 1.0, view, keys)
        return _normalize(z), features

    def embed_texts(self, tokens: jax.Array) -> jax.Array:
        """Embed texts: int32 [n, L] → float32 [n, E], unit length."""
        return _normalize(self.txt(tokens))


def embed(
    model: TwoTowerModel,
    parameters: Parameters,
    images: jax.Array,
    tokens: jax.Array,
    view: View = FULL,
    keys: jax.Array | None = None,
) -> Embeddings:
    """Apply `model(images, tokens, view, keys)` with given parameters."""
    return cast(Embeddings, model.apply({"params": parameters}, images, tokens, view, keys))


def temperature_and_bias(parameters: Parameters) -> tuple[jax.Array, jax.Array]:
    """Return t and b, float32 [], of the whole parameters or of a dict with these two."""
    return jnp.exp(parameters["t"][0]), parameters["b"][0]


@functools.partial(jax.jit, static_argnums=0)
def initialize(config: TwoTowers, key: jax.Array) -> Parameters:
    """Create fresh parameters, float32, from a PRNG key."""
    vision = config.vision
    images = jnp.zeros((1, vision.image_size, vision.image_size, 3), jnp.uint8)
    tokens = jnp.zeros((1, config.text.length), jnp.int32)
    parameters: Parameters = TwoTowerModel(config).init(key, images, tokens)["params"]
    return parameters
