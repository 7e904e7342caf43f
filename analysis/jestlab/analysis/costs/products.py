"""Products of matrices: the towers' forward passes, the loss, and choosing a sub-batch by embeddings.

What is done to each product by itself, such as its sigmoid, is not counted.

Letters: B super-batch, b sub-batch, N chunks, E embedding width; n tokens, D width, M width of the MLP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

FLOPS_PER_MULTIPLY_ACCUMULATE = 2

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
        """FLOPs of both towers together."""
        return self.image + self.text

    def __mul__(self, share: float) -> Forward:
        """A·F: a pass that costs a share of this one, of both towers alike."""
        return Forward(self.image * share, self.text * share)


def encoder_forward(*, length: int, width: int, depth: int, mlp_dim: int) -> int:
    """Count the FLOPs of a transformer encoder on one sequence.

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
    """Count the FLOPs of the image tower on one image.

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
        raise ValueError(f"unknown pooling {pooling!r}: choose map or mean")
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
    """Count the FLOPs of the text tower on one caption.

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


def head_flops(width: int, embedding_dim: int | None) -> int:
    """Count the FLOPs of a dense head on one example: 2 D E; none where there is no head (None)."""
    return 0 if embedding_dim is None else FLOPS_PER_MULTIPLY_ACCUMULATE * width * embedding_dim


# ---- beyond the towers

RULES = ("uniform", "independent", "joint", "greedy", "gibbs")

_GRADIENTS = 2  # of a product: one for its left side, one for its right
_DIRECTIONS = 2  # images with texts and texts with images, each computed by itself in choosing


def loss_flops(*, batch_size: int, embedding_dim: int) -> int:
    """Count the FLOPs of the loss of a sub-batch, forward and backward.

    The logits of b² pairs, computed once for both directions, and their gradients by both sides. Sigmoid and
    softmax loss are the same. Over several devices the backward pass computes the logits again to save
    memory, which is not counted.

    Args:
        batch_size: b.
        embedding_dim: E.

    Returns:
        6 b² E.
    """
    forward = FLOPS_PER_MULTIPLY_ACCUMULATE * batch_size**2 * embedding_dim
    return (1 + _GRADIENTS) * forward


def selection_flops(
    rule: str,
    *,
    batch_size: int,
    super_batch_size: int,
    embedding_dims: Sequence[int],
    chunks: int = 1,
    sweeps: int = 1,
    traced: bool = False,
) -> int:
    """Count the FLOPs of choosing a sub-batch by embeddings that scoring has computed.

    Every candidate is multiplied with (meets) every chosen example in both directions, once that is chosen:
    4 Σ E FLOPs a meeting. Nothing is drawn after the last chunk, so its members meet nothing. That makes

        independent, uniform   0 meetings a candidate
        joint                  b − (the last chunk's size)
        greedy                 b − 1, chunks of one
        gibbs                  b − 1 at each of sweeps · b draws: all others anew

    and each candidate's own score another 2 Σ E, once. Both losses are the same: softmax sums other functions
    of the same products.

    Args:
        rule: One of `RULES`.
        batch_size: b.
        super_batch_size: B, on all devices together.
        embedding_dims: E of each model that the criterion looks at: learner, reference, or both.
        chunks: N, of "joint".
        sweeps: Of "gibbs": b draws each.
        traced: Whether the sub-batch's own score is followed, for which the last chunk is met too.

    Returns:
        2 B Σ E (1 + 2 · meetings).

    Raises:
        ValueError: For an unknown rule, or more chunks than examples in the sub-batch.
    """
    if rule not in RULES:
        raise ValueError(f"unknown selection rule {rule!r}: choose one of {', '.join(RULES)}")
    b = batch_size
    if rule == "gibbs":
        meetings = sweeps * b * (b - 1 + traced)
    else:
        number = {"joint": chunks, "greedy": b}.get(rule, 1)
        if not 1 <= number <= b:
            raise ValueError(f"a sub-batch of {b} cannot be drawn in {number} chunks")
        last = b // number  # the first b mod N chunks are larger by one
        meetings = b - (0 if traced else last)
    products = super_batch_size * sum(embedding_dims) * (1 + _DIRECTIONS * meetings)
    return FLOPS_PER_MULTIPLY_ACCUMULATE * products
