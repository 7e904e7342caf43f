"""What methods beside JEST cost: products of matrices beyond what a step has anyway.

By name, as a spec names them. What has no formula here costs nothing more: the rule "highest" (RHO-LOSS)
costs what independent selection does; the rules of CABS count concepts; ACID is JEST with a larger reference,
whose forward pass is priced as any reference's; selection in a part of the steps is `Step.selecting_share`.

Letters: n examples of a data set, m of a target set, b batch, E width of embeddings, E* the reference's,
k clusters, K repetitions.
"""

from __future__ import annotations

from collections.abc import Callable

from .products import FLOPS_PER_MULTIPLY_ACCUMULATE, loss_flops


def compared_loss_flops(*, batch_size: int, embedding_dim: int, reference_dim: int) -> int:
    """Count the FLOPs of a loss that compares the learner's logits with the reference's.

    The reference's are computed once, for both directions, and nothing is differentiated with respect to
    them.

    Args:
        batch_size: b.
        embedding_dim: E of the learner.
        reference_dim: E*.

    Returns:
        6 b² E + 2 b² E*.
    """
    own = loss_flops(batch_size=batch_size, embedding_dim=embedding_dim)
    return own + FLOPS_PER_MULTIPLY_ACCUMULATE * batch_size**2 * reference_dim


LOSSES: dict[str, Callable[..., int]] = {"distilled": compared_loss_flops, "drrho": compared_loss_flops}
"""Losses of jestlab's own that look at a reference, by name."""

FREE_RULES = frozenset({"highest", "concept_diversity", "concept_frequency"})
"""Rules of jestlab's own that choose without multiplying matrices, by name."""


# ---- scores of a whole data set, from cached embeddings


def clip_loss_scores_flops(*, examples: int, embedding_dim: int, batch_size: int, repeats: int) -> int:
    """Count the FLOPs of negCLIPLoss: every example meets those of its batch both ways, in K divisions.

    Returns:
        4 K n b E; the last batch of a division is filled up and counts as whole.
    """
    size = min(batch_size, examples)
    batches = -(-examples // size)
    return 2 * FLOPS_PER_MULTIPLY_ACCUMULATE * repeats * batches * size**2 * embedding_dim


def norm_similarity_flops(*, examples: int, targets: int, embedding_dim: int) -> int:
    """Count the FLOPs of NormSim: every example meets every target.

    Returns:
        2 n m E.
    """
    return FLOPS_PER_MULTIPLY_ACCUMULATE * examples * targets * embedding_dim


def deduplication_flops(*, examples: int, embedding_dim: int, clusters: int, iterations: int) -> int:
    """Count the FLOPs of SemDeDup: k-means, then all pairs within each cluster, taken to be of equal size.

    Clusters that are not of equal size have more pairs, which is not known beforehand.

    Returns:
        2 n k E (iterations + 1) + 2 n² E / k.
    """
    means = examples * clusters * (iterations + 1)
    pairs = examples * -(-examples // clusters)
    return FLOPS_PER_MULTIPLY_ACCUMULATE * (means + pairs) * embedding_dim
