"""FLOP formulas: towers, losses, selection rules, scores of data sets, and the paper's formulas.

A FLOP is one multiplication or one addition, so a multiply–accumulate is 2. Only matrix products are counted.
Normalizations, activations, softmax, and the losses of single pairs are left out.

Letters:
    F  forward pass of one example            B  super-batch    b  sub-batch
    f  filtering ratio, 1 − b/B               A  cost of the approximate model, as a fraction of F
    λ  fraction of the sub-batch that is trained on approximately
    N  chunks of joint selection              E  width of the embedding space
    n  tokens, or examples of a data set      D  width of a tower    M  hidden width of the MLP

This module imports only the standard library, because plans of thousands of runs are priced with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

_MAC = 2  # FLOPs of a multiply–accumulate
_RGB = 3


# ---- towers


@dataclass(frozen=True, slots=True)
class Forward:
    """F: FLOPs of a forward pass on one example.

    Attributes:
        image: FLOPs of the image tower.
        text: FLOPs of the text tower.
    """

    image: float
    text: float

    @property
    def total(self) -> float:
        """FLOPs of both towers."""
        return self.image + self.text

    def __mul__(self, fraction: float) -> Forward:
        """A·F: a pass that costs a fraction of this one in both towers."""
        return Forward(self.image * fraction, self.text * fraction)


def encoder_forward(*, length: int, width: int, depth: int, mlp_dim: int) -> int:
    """Count the FLOPs of a transformer encoder on one sequence; the number of heads does not matter.

    Args:
        length: Tokens n.
        width: D.
        depth: Number of blocks.
        mlp_dim: M.

    Returns:
        2 · depth · (4nD² + 2n²D + 2nDM).
    """
    projections = 4 * length * width * width  # query, key, value, out
    attention = 2 * length * length * width  # query · key, weights · value
    mlp = 2 * length * width * mlp_dim
    return _MAC * depth * (projections + attention + mlp)


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
        image_size: Side in pixels; images are square and have three channels.
        patch_size: Side in pixels; divides the image size.
        width: D.
        depth: Number of blocks.
        mlp_dim: M of the blocks and of the MAP head.
        pooling: "map" for attention pooling by one probe with an MLP after it, "mean" for the tokens' mean.
        embedding_dim: E of the dense head after pooling; None without a head.
        keep: Fraction of the patches that pass the encoder, at least one patch; the others are embedded and
            dropped ("PatchDrop").

    Returns:
        Patch embedding + encoder + pooling + head. ViT-B/16 at 256 px: 46.82 GFLOP. A tower at another patch
        size than its default resizes its patch kernel and positions once per pass. This product does not grow
        with the images and is left out (FlexiViT; B/16 at 32 px: 0.06 GFLOP per pass).
    """
    patches = (image_size // patch_size) ** 2
    embedding = patches * (_RGB * patch_size * patch_size) * width
    length = patches if keep == 1.0 else max(1, round(keep * patches))
    encoder = encoder_forward(length=length, width=width, depth=depth, mlp_dim=mlp_dim)
    pool = 0
    if pooling == "map":
        # key and value of every token; query and out of the probe; its two attention products; its MLP
        pool = 2 * length * width * width + 2 * width * width + 2 * length * width + 2 * width * mlp_dim
    return encoder + _MAC * (embedding + pool) + head_flops(width, embedding_dim)


def text_forward(*, length: int, width: int, depth: int, mlp_dim: int, embedding_dim: int) -> int:
    """Count the FLOPs of the text tower on one caption.

    Args:
        length: Tokens n, including padding.
        width: D.
        depth: Number of blocks.
        mlp_dim: M.
        embedding_dim: E of the dense head on the pooled token.

    Returns:
        Encoder + head; a token lookup multiplies nothing. SigLIP's B tower at 64 tokens: 11.02 GFLOP.
    """
    encoder = encoder_forward(length=length, width=width, depth=depth, mlp_dim=mlp_dim)
    return encoder + head_flops(width, embedding_dim)


def head_flops(width: int, embedding_dim: int | None) -> int:
    """Count the FLOPs of a dense head on one example: 2 D E; 0 without a head (None)."""
    return 0 if embedding_dim is None else _MAC * width * embedding_dim


# ---- losses


def loss_flops(*, batch_size: int, embedding_dim: int) -> int:
    """Count the FLOPs of the sigmoid or softmax loss of a sub-batch, forward and backward.

    The logits of b² pairs are computed once for both directions, then their gradients with respect to both
    sides. On several devices the backward pass computes the logits again, which is not counted.

    Args:
        batch_size: b.
        embedding_dim: E.

    Returns:
        6 b² E.
    """
    return 3 * _MAC * batch_size**2 * embedding_dim


def compared_loss_flops(*, batch_size: int, embedding_dim: int, reference_dim: int) -> int:
    """Count the FLOPs of a loss that compares the learner's logits with the reference's.

    The reference's logits are computed once for both directions, and have no gradient.

    Args:
        batch_size: b.
        embedding_dim: E of the learner.
        reference_dim: E* of the reference.

    Returns:
        6 b² E + 2 b² E*.
    """
    own = loss_flops(batch_size=batch_size, embedding_dim=embedding_dim)
    return own + _MAC * batch_size**2 * reference_dim


LOSSES: dict[str, Callable[..., int]] = {"distilled": compared_loss_flops, "drrho": compared_loss_flops}
"""jestlab's losses that use a reference, by name."""


# ---- selection

RULES = ("uniform", "independent", "joint", "greedy", "gibbs")

FREE_RULES = frozenset({"highest", "concept_diversity", "concept_frequency"})
"""jestlab's other rules, by name. They choose without matrix products: "highest" (RHO-LOSS) costs as much as
independent selection, and the rules of CABS count concepts."""


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

    After an example is chosen, every candidate is multiplied with it in both directions: 4 Σ E FLOPs per
    candidate and chosen example, which is one meeting. The members of the last chunk meet no candidate,
    because no draw follows. The number of meetings per candidate is

        independent, uniform   0
        joint                  b − (the last chunk's size)
        greedy                 b − 1, for chunks of one example
        gibbs                  b − 1 at each of sweeps · b draws

    The score of each candidate costs another 2 Σ E, once. Both losses cost the same.

    Args:
        rule: One of `RULES`.
        batch_size: b.
        super_batch_size: B, on all devices together.
        embedding_dims: E of each model that the criterion uses: learner, reference, or both.
        chunks: N of "joint".
        sweeps: Sweeps of "gibbs", of b draws each.
        traced: Whether the sub-batch's score is recorded, for which candidates meet the last chunk too.

    Returns:
        2 B Σ E (1 + 2 · meetings).

    Raises:
        ValueError: Unknown rule, or more chunks than examples in the sub-batch.
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
    return _MAC * super_batch_size * sum(embedding_dims) * (1 + 2 * meetings)


# ---- scores of a whole data set, from cached embeddings


def clip_loss_scores_flops(*, examples: int, embedding_dim: int, batch_size: int, repeats: int) -> int:
    """Count the FLOPs of negCLIPLoss: every example meets those of its batch both ways, in K divisions.

    Returns:
        4 K n b E; the last batch of a division is filled up and counts as whole.
    """
    size = min(batch_size, examples)
    batches = -(-examples // size)
    return 2 * _MAC * repeats * batches * size**2 * embedding_dim


def norm_similarity_flops(*, examples: int, targets: int, embedding_dim: int) -> int:
    """Count the FLOPs of NormSim: every one of n examples meets every one of m targets.

    Returns:
        2 n m E.
    """
    return _MAC * examples * targets * embedding_dim


def deduplication_flops(*, examples: int, embedding_dim: int, clusters: int, iterations: int) -> int:
    """Count the FLOPs of SemDeDup: k-means, then all pairs within each cluster.

    Clusters are assumed to have equal sizes. Other sizes have more pairs, and are unknown beforehand.

    Returns:
        2 n k E (iterations + 1) + 2 n² E / k.
    """
    means = examples * clusters * (iterations + 1)
    pairs = examples * -(-examples // clusters)
    return _MAC * (means + pairs) * embedding_dim


# ---- the paper's formulas for one example, by F alone (appendix, "FLOP calculations for JEST / Flexi-JEST")


def paper_iid(F: float) -> float:
    """C_IID = 3F: one example under uniform sampling."""
    return 3 * F


def paper_jest(F: float, ratio: float, cached: bool = True) -> float:
    """C_JEST = 3F + F·B/b − F = F(2 + B/b): training reuses the scoring pass over the sub-batch.

    Args:
        F: FLOPs of a forward pass; those of the reference are the same.
        ratio: B/b.
        cached: Whether the reference's embeddings are cached; otherwise its passes add F·B/b.

    Returns:
        FLOPs per example seen. Over C_IID at f = .8: 7/3 cached, 4 not cached.

    Raises:
        ValueError: The super-batch is smaller than its sub-batch.
    """
    check_ratio(ratio)
    return F * (2 + (1 if cached else 2) * ratio)


def paper_flexi(F: float, ratio: float, A: float, approximate_share: float = 0.5) -> float:
    """C_Flexi = 3F((1 − λ) + λA) + A·F·B/b: the approximate model scores, so training reuses no pass.

    Args:
        F: FLOPs of the full model's forward pass.
        ratio: B/b.
        A: Cost of the approximate model as a fraction of the full one's: .25 by the number of patches at
            twice the patch size, .28 in the paper's tables.
        approximate_share: λ.

    Returns:
        FLOPs per example seen. Over C_IID at f = .8, λ = .5: 1.0417 at A = .25, 1.1067 at A = .28.

    Raises:
        ValueError: The super-batch is smaller than its sub-batch.
    """
    check_ratio(ratio)
    return 3 * F * ((1 - approximate_share) + approximate_share * A) + A * F * ratio


def check_ratio(ratio: float) -> None:
    """Raise ValueError unless B/b is at least 1."""
    if ratio < 1:
        raise ValueError(f"B/b must be at least 1, got {ratio:g}: a super-batch contains its sub-batch")
