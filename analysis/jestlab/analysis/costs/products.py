"""Products of matrices beyond the towers': of the loss, and of choosing a sub-batch.

Both multiply embeddings with embeddings. What is done to each product by itself, such as its sigmoid, is not
counted.

Letters: B super-batch, b sub-batch, N chunks, E embedding width.
"""

from __future__ import annotations

from collections.abc import Sequence

FLOPS_PER_MULTIPLY_ACCUMULATE = 2

RULES = ("uniform", "independent", "joint", "greedy", "gibbs")

_GRADIENTS = 2  # of a product: one for its left side, one for its right
_DIRECTIONS = 2  # images with texts and texts with images, each computed by itself in choosing


def loss_flops(*, batch_size: int, embedding_dim: int) -> int:
    """FLOPs of the loss of a sub-batch, forward and backward.

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
    """FLOPs of choosing a sub-batch by embeddings that are there.

    Every candidate meets every chosen example in both directions, once it is chosen: 4 Σ E FLOPs a meeting.
    Nothing is drawn after the last chunk, which nobody meets. That makes

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
        ValueError: For an unknown rule, or sizes that nothing can be chosen by.
    """
    if rule not in RULES:
        raise ValueError(f"selection rule {rule!r} is unknown: choose one of {', '.join(RULES)}")
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
