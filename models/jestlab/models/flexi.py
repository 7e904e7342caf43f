"""FlexiViT: one set of parameters at any patch size (Beyer et al., 2023, Sec. 3.4).

The parameters are kept at the tower's own patch size and resized in every forward pass, so that gradients of
all patch sizes meet in the same parameters; resizing a resized kernel would lose what it holds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def bilinear_matrix(old: int, new: int) -> np.ndarray:
    """The matrix R that resizes a line of `old` pixels to `new`: bilinear, half-pixel centres, no antialias.

    Args:
        old: Number of pixels.
        new: Number of pixels wanted.

    Returns:
        float64 [new, old]; rows sum to 1.
    """
    centres = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    return np.maximum(0.0, 1.0 - np.abs(centres[:, None] - np.arange(old)))


def resize_kernel(kernel: jax.Array, patch_size: int) -> jax.Array:
    """Resize a patch embedding so that resized patches embed as the patches did, as nearly as can be.

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
