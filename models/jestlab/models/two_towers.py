"""The model: an image tower and a text tower with the sigmoid loss's temperature and bias.

The image tower is a Vision Transformer (Dosovitskiy et al., 2021) at any patch size. Other patch sizes than
its own are FlexiViT (Beyer et al., 2023, Sec. 3.4): the parameters are kept at the tower's own patch size and
resized in every forward pass, so that the gradients of all patch sizes update the same parameters. Resizing
an already resized kernel would lose information.

Letters: n examples, L tokens or patches, p side of a patch in pixels, g patches along a side, D width,
E embedding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models import extensions
from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.transformer import Encoder, Execution, MAPHead


def bilinear_matrix(old: int, new: int) -> np.ndarray:
    """Return the matrix R, float64 [new, old], that resizes a line of pixels; its rows sum to 1.

    Bilinear, with half-pixel centres, without antialias.
    """
    centres = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    return np.maximum(0.0, 1.0 - np.abs(centres[:, None] - np.arange(old)))


def resize_kernel(kernel: jax.Array, patch_size: int) -> jax.Array:
    """Resize a patch embedding so that resized patches embed as nearly as possible like the original patches.

    FlexiViT's w' = (Bᵀ)⁺ vec(w), with B the resize of whole patches. B is R ⊗ R, so for each input and output
    channel w' = P w Pᵀ with P = (Rᵀ)⁺. When patches grow, ⟨B x, w'⟩ = ⟨x, w⟩ for every patch x.

    Args:
        kernel: float32 [p, p, channels, D].
        patch_size: Side of the patches wanted, pixels.

    Returns:
        float32 [patch_size, patch_size, channels, D]; the kernel itself where it has that size.
    """
    old = kernel.shape[0]
    if old == patch_size:
        return kernel
    p = jnp.asarray(np.linalg.pinv(bilinear_matrix(old, patch_size).T), kernel.dtype)
    resized: jax.Array = jnp.einsum("ai,bj,ijcd->abcd", p, p, kernel, precision="highest")
    return resized


def resize_positions(embedding: jax.Array, grid: int) -> jax.Array:
    """Resize learned position embeddings to another number of patches: linear, with antialias.

    Args:
        embedding: float32 [1, g², D], of a g × g grid of patches, row by row.
        grid: Patches along a side.

    Returns:
        float32 [1, grid², D]; the embeddings themselves where they have that size.
    """
    _, length, width = embedding.shape
    old = round(length**0.5)
    if old == grid:
        return embedding
    resized: jax.Array = jax.image.resize(embedding.reshape(old, old, width), (grid, grid, width), "linear")
    return resized.reshape(1, grid * grid, width)


@dataclass(frozen=True)
class View:
    """How closely the tower looks at images; all views share the same parameters (the paper's Sec. 3.3).

    Attributes:
        patch_size: Side of a patch in pixels, a divisor of the image's side; None for the tower's own.
            Another one is FlexiViT.
        keep: Share of the patches that are looked at, drawn for every image. Below 1 this is PatchDrop (Li et
            al., 2023).
    """

    patch_size: int | None = None
    keep: float = 1.0


FULL = View()
"""All patches, of the tower's own size."""


def kept_patches(patches: int, keep: float) -> int:
    """Return how many of an image's patches a share is: rounded, at least one."""
    return max(1, round(keep * patches))


def example_keys(key: jax.Array, positions: jax.Array) -> jax.Array:
    """Derive a key for each example from the batch's key and its position in the whole batch, int [n]."""
    return jax.vmap(lambda position: jax.random.fold_in(key, position))(positions)


def drop_patches(x: jax.Array, keep: float, key: jax.Array) -> jax.Array:
    """Keep a random part of every example's tokens.

    Args:
        x: float [n, L, D].
        keep: Share of the tokens.
        key: Which are kept depends on it and on the example's position in the batch, and on nothing else; or
            [n], a key for each example, as `example_keys` makes them.

    Returns:
        float [n, `kept_patches(L, keep)`, D].
    """
    n, length, _ = x.shape
    keys = key if key.ndim else example_keys(key, jnp.arange(n))
    orders = jax.vmap(lambda own: jax.random.permutation(own, length))(keys)
    kept = orders[:, : kept_patches(length, keep)]
    return jnp.take_along_axis(x, kept[:, :, None], axis=1)


class PatchEmbedding(nn.Module):
    """A linear map of each patch: the convolution whose stride is its size, as a matrix product.

    Attributes:
        width: D.
        patch_size: p of the parameters.
        dtype: Of the product.
    """

    width: int
    patch_size: int
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
        y: jax.Array = x @ kernel.astype(self.dtype) + bias.astype(self.dtype)
        return y


class VisionTransformer(nn.Module):
    """The image tower: images to one vector each.

    Attributes:
        config: Sizes of the tower.
        embedding_dim: Width of a dense head after pooling; None for no head (SigLIP's own towers have none).
        dtype: Of the activations; parameters and results are float32.
        execution: How the encoder is computed.
    """

    config: VisionTower
    embedding_dim: int | None = None
    dtype: str = "float32"
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, images: jax.Array, view: View = FULL, key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Encode images.

        Args:
            images: float32 [n, h, h, 3] in [−1, 1].
            view: How closely to look.
            key: Draws the patches that a view keeps; needed where it keeps less than all.

        Returns:
            The embedding, float32 [n, E], not normalised, and the pooled features before the head
            ("pre-logits"), float32 [n, D], on which linear probes are trained.

        Raises:
            ValueError: If the patches do not divide the images, or a key is missing.
        """
        cfg = self.config
        mlp_dim = cfg.mlp_dim or 4 * cfg.width
        size, patch_size = images.shape[1], view.patch_size or cfg.patch_size
        if size % patch_size:
            raise ValueError(f"patch size {patch_size} does not divide images of {size} pixels")
        x = PatchEmbedding(cfg.width, cfg.patch_size, self.dtype, name="embedding")(images, patch_size)
        positions = self.param(
            "pos_embedding",
            nn.initializers.normal(stddev=cfg.width**-0.5),
            (1, (cfg.image_size // cfg.patch_size) ** 2, cfg.width),
        )
        x = x + resize_positions(positions, size // patch_size).astype(self.dtype)
        if view.keep < 1.0:
            if key is None:
                raise ValueError(f"a view that keeps {view.keep:g} of the patches needs a key to draw them")
            x = drop_patches(x, view.keep, key)
        x = Encoder(cfg.depth, cfg.heads, mlp_dim, self.dtype, self.execution, name="Transformer")(x)
        features = MAPHead(cfg.heads, mlp_dim, self.dtype)(x) if cfg.pooling == "map" else x.mean(axis=1)
        if self.embedding_dim is None:
            embedding = features
        else:
            embedding = nn.Dense(self.embedding_dim, dtype=self.dtype, name="head")(features)
        return embedding.astype(jnp.float32), features.astype(jnp.float32)


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


class OwnVision(nn.Module):
    """An image tower of one's own with the head, called as `VisionTransformer` is.

    The tower is what `architecture(config, **options)` returns: a Flax module from images float32
    [n, h, h, 3] in [−1, 1] to features [n, D], D being `config.width`.
    """

    config: VisionTower
    embedding_dim: int | None = None
    dtype: str = "float32"
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, images: jax.Array, view: View = FULL, key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Encode images: see `VisionTransformer`; ValueError for features of another shape, or a view."""
        if view != FULL:
            raise ValueError("an image tower of one's own sees whole images alone: leave out `approximation`")
        features = _own_features(self.config, images)
        head = self.embedding_dim
        embedding = features if head is None else nn.Dense(head, dtype=self.dtype, name="head")(features)
        return embedding.astype(jnp.float32), features.astype(jnp.float32)


class OwnText(nn.Module):
    """A text tower of one's own with the head, called as `TextTransformer` is.

    The tower is what `architecture(config, **options)` returns: a Flax module from tokens int32 [n, L] to
    features [n, D], D being `config.width`.
    """

    config: TextTower
    embedding_dim: int
    dtype: str = "float32"
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Encode tokens: see `TextTransformer`; ValueError for features of another shape."""
        features = _own_features(self.config, tokens)
        return nn.Dense(self.embedding_dim, dtype=self.dtype, name="head")(features).astype(jnp.float32)


def _own_features(config: VisionTower | TextTower, inputs: jax.Array) -> jax.Array:
    """Apply the tower of one's own that a config names, inside the module that calls this."""
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
    """The whole model; `images_and_features` and `embed_texts` are the parts that evaluations use.

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
        vision: Any = OwnVision if cfg.vision.is_custom else VisionTransformer
        text: Any = OwnText if cfg.text.is_custom else TextTransformer
        self.img = vision(cfg.vision, head, cfg.compute_dtype, self.execution)
        self.txt = text(cfg.text, cfg.embedding_dim, cfg.compute_dtype, self.execution)
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
        return self.images_and_features(images, view, key)[0]

    def images_and_features(
        self, images: jax.Array, view: View = FULL, key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Embed images, and return also their pooled features before the head, float32 [n, D]."""
        z, features = self.img(_to_unit_range(images), view, key)
        return _normalize(z), features

    def embed_texts(self, tokens: jax.Array) -> jax.Array:
        """Embed texts: int32 [n, L] → float32 [n, E], unit length."""
        return _normalize(self.txt(tokens))

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
    return _initializer(config)(key)


@functools.cache
def _initializer(config: TwoTowers) -> Callable[[jax.Array], Parameters]:
    """Compile one function: initialising operation by operation would compile a hundred small ones."""
    images = np.zeros((1, config.vision.image_size, config.vision.image_size, 3), np.uint8)
    tokens = np.zeros((1, config.text.length), np.int32)
    init = jax.jit(TwoTowerModel(config).init)

    def initializer(key: jax.Array) -> Parameters:
        parameters: Parameters = init(key, images, tokens)["params"]
        return parameters

    return initializer
