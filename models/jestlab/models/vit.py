"""The image tower: a Vision Transformer at any patch size, with learned position embeddings.

Vision Transformer: Dosovitskiy et al., 2021. Other patch sizes are FlexiViT (Beyer et al., 2023, Sec. 3.4):
the parameters are kept at the tower's own patch size and resized in every forward pass, so that the gradients
of all patch sizes update the same parameters. Resizing an already resized kernel would lose information.

Letters: n examples, L patches, p side of a patch in pixels, g patches along a side, D width, E embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models.config import VisionTower
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
