"""Forward passes of the towers, from their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .products import FLOPS_PER_MULTIPLY_ACCUMULATE

_RGB = 3


@dataclass(frozen=True, slots=True)
class Forward:
    """F: FLOPs of a forward pass on one example.

    Attributes:
        image: Of the image tower.
        text: Of the text tower.
    """

    image: float
    text: float

    @property
    def total(self) -> float:
        """Of both towers."""
        return self.image + self.text

    def __mul__(self, share: float) -> Forward:
        """A·F: a pass that costs a share of this one, of both towers alike."""
        return Forward(self.image * share, self.text * share)


def encoder_forward(*, length: int, width: int, depth: int, mlp_dim: int) -> int:
    """FLOPs of a transformer encoder on one sequence.

    Args:
        length: Tokens n.
        width: D; the heads share it, so their number changes nothing.
        depth: Blocks.
        mlp_dim: M.

    Returns:
        2 · depth · (4nD² + 2n²D + 2nDM).
    """
    projections = 4 * length * width * width  # query, key, value, out
    attention = 2 * length * length * width  # query · key, weights · value
    mlp = 2 * length * width * mlp_dim
    return FLOPS_PER_MULTIPLY_ACCUMULATE * depth * (projections + attention + mlp)


def vision_forward(
    *,
    image_size: int,
    patch_size: int,
    width: int,
    depth: int,
    mlp_dim: int,
    pooling: Literal["map", "mean"],
    embedding_dim: int | None,
    keep: float = 1.0,
) -> int:
    """FLOPs of the image tower on one image.

    Args:
        image_size: Side in pixels; square, three channels.
        patch_size: Side in pixels; divides the image size.
        width: D.
        depth: Blocks.
        mlp_dim: M, of the blocks and of the MAP head.
        pooling: "map" for attention pooling by one probe with an MLP behind it, "mean" for the tokens' mean.
        embedding_dim: E of the dense head after pooling; None where there is no head.
        keep: Share of the patches that pass the encoder, at least one of them; the others are embedded and
            dropped ("PatchDrop").

    Returns:
        Patch embedding + encoder + pooling + head. ViT-B/16 at 256 px: 46.82 GFLOP. At another patch size
        than its own a tower resizes its patch kernel and positions once a pass: a product that does not grow
        with the images and is left out (FlexiViT; B/16 at 32 px: 0.06 GFLOP a pass).

    Raises:
        ValueError: If the patch does not divide the image or the pooling is unknown.
    """
    if image_size % patch_size:
        raise ValueError(f"patch_size {patch_size} does not divide image_size {image_size}")
    if pooling not in ("map", "mean"):
        raise ValueError(f"pooling {pooling!r} is unknown: choose map or mean")
    patches = (image_size // patch_size) ** 2
    embedding = patches * (_RGB * patch_size * patch_size) * width
    length = patches if keep == 1.0 else max(1, round(keep * patches))
    if pooling == "map":
        # key and value of every token; query and out of the probe; its two attention products; its MLP
        pool = 2 * length * width * width + 2 * width * width + 2 * length * width + 2 * width * mlp_dim
    else:
        pool = 0
    head = 0 if embedding_dim is None else width * embedding_dim
    encoder = encoder_forward(length=length, width=width, depth=depth, mlp_dim=mlp_dim)
    return encoder + FLOPS_PER_MULTIPLY_ACCUMULATE * (embedding + pool + head)


def text_forward(*, length: int, width: int, depth: int, mlp_dim: int, embedding_dim: int) -> int:
    """FLOPs of the text tower on one caption.

    Args:
        length: Tokens n; padding is computed like any other token.
        width: D.
        depth: Blocks.
        mlp_dim: M.
        embedding_dim: E of the dense head on the pooled token.

    Returns:
        Encoder + head; looking tokens up multiplies nothing. SigLIP's B tower at 64 tokens: 11.02 GFLOP.
    """
    encoder = encoder_forward(length=length, width=width, depth=depth, mlp_dim=mlp_dim)
    return encoder + FLOPS_PER_MULTIPLY_ACCUMULATE * width * embedding_dim
