"""FLOP formulas: towers, losses, selection rules, and scores of data sets.

A FLOP is one multiplication or one addition, so a multiply–accumulate is 2. Only matrix products are counted.
Normalizations, activations, softmax, and the losses of single pairs are left out.

Letters:
    F  forward pass of one example            B  super-batch    b  sub-batch
    f  filtering ratio, 1 − b/B               A  cost of the approximate model, as a fraction of F
    λ  fraction of the sub-batch that is trained on approximately
    N  chunks of joint selection              E  `embedding_dim`, of the space that images and texts share
    n  `length` in tokens, or examples        D  `width` of a tower    M  `mlp_dim`, hidden width of the MLP

Formulas, in FLOPs; E* is the reference's E:
    encoder, one sequence          2 · depth · (4nD² + 2n²D + 2nDM)
    dense head, one example        2 D E
    loss of a sub-batch            6 b² E, and 2 b² E* if it compares with a reference's logits
    selection of a sub-batch       2 B Σ E (1 + 2 · meetings): see `selection_flops`
    negCLIPLoss, K divisions       4 K n b E
    NormSim to m targets           2 n m E
    SemDeDup, k clusters           2 n k E (iterations + 1) + 2 n² E / k
    the paper, one example         Evans et al. (2024), "FLOP calculations for JEST / Flexi-JEST":
        C_IID = 3F
        C_JEST = 3F + F·B/b − F = F(2 + B/b): training reuses the scoring pass over the sub-batch
        C_JEST = F(2 + 2B/b) if the reference's embeddings aren't cached
        C_Flexi = 3F((1 − λ) + λA) + A·F·B/b: the approximate model scores, so training reuses no pass

This module imports only the standard library, because planning imports it, and must start quickly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_MAC = 2  # FLOPs of a multiply–accumulate
_RGB = 3


# ---- towers


@dataclass(frozen=True, slots=True)
class Forward:
    """F: FLOPs of a forward pass on one example, by the image tower and the text tower."""

    image: float
    text: float

    @property
    def total(self) -> float:
        """FLOPs of both towers."""
        return self.image + self.text

    def __mul__(self, fraction: float) -> "Forward":
        """A·F: a pass that costs a fraction of this one in both towers."""
        return Forward(self.image * fraction, self.text * fraction)


def encoder_forward(*, length: int, width: int, depth: int, mlp_dim: int) -> int:
    """Count the FLOPs of a transformer encoder on one sequence; the number of heads does not matter."""
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
    """Count the FLOPs of the image tower on one square RGB image: 46.82 GFLOP for ViT-B/16 at 256 px.

    A tower at another patch size than its default resizes its patch kernel and positions once per pass. This
    cost does not depend on the number of images and is left out (FlexiViT; B/16 at 32 px: 0.06 GFLOP).

    Args:
        image_size, patch_size: Sides in pixels.
        width, depth, mlp_dim: D, number of blocks, and M of the encoder; the MAP head has the same M.
        pooling: "map" for attention pooling by one probe with an MLP after it, "mean" for the tokens' mean.
        embedding_dim: E of the dense head after pooling; None without a head.
        keep: Fraction of the patches that pass through the encoder, at least one patch; the others are
            dropped after embedding ("PatchDrop").
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
    """Count the FLOPs of the text tower on one caption: 11.02 GFLOP for SigLIP's B tower at 64 tokens.

    The length includes padding. A token lookup multiplies nothing.
    """
    encoder = encoder_forward(length=length, width=width, depth=depth, mlp_dim=mlp_dim)
    return encoder + head_flops(width, embedding_dim)


def head_flops(width: int, embedding_dim: int | None) -> int:
    """Count the FLOPs of a dense head on one example; 0 without a head (None)."""
    return 0 if embedding_dim is None else _MAC * width * embedding_dim


# ---- losses and selection

REFERENCE_LOSSES = frozenset({"distilled", "drrho"})
"""Names of jestlab's losses that compare with a reference."""

RULES = ("uniform", "independent", "joint", "greedy", "gibbs")

FREE_RULES = frozenset({"highest", "concept_diversity", "concept_frequency"})
"""Names of jestlab's other rules, which choose without matrix products: "highest" (RHO-LOSS) costs as much as
independent selection, and the rules of CABS count concepts."""


def loss_flops(*, batch_size: int, embedding_dim: int, reference_dim: int = 0) -> int:
    """Count the FLOPs of the sigmoid or softmax loss of a sub-batch, forward and backward.

    The logits of b² pairs are computed once for both directions, then their gradients with respect to both
    sides. If the loss compares with a reference, the reference's logits (E* is `reference_dim`) are computed
    without gradients. On several devices the backward pass computes logits again, which is not counted.
    """
    return _MAC * batch_size**2 * (3 * embedding_dim + reference_dim)


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
    """Count the FLOPs of choosing a sub-batch from embeddings that scoring has computed.

    After an example is chosen, its embeddings are multiplied with those of every candidate in both
    directions: 4 Σ E FLOPs per candidate. Each such product is called a meeting. The examples of the last
    chunk meet no candidate, because no draw follows. The number of meetings per candidate is

        independent, uniform   0
        joint                  b − (the last chunk's size)
        greedy                 b − 1, for chunks of one example
        gibbs                  b − 1 at each of sweeps · b draws

    The score of each candidate costs another 2 Σ E, once. Sigmoid and softmax losses cost the same.

    Args:
        rule: One of `RULES`.
        batch_size, super_batch_size: b and B, on all devices together.
        embedding_dims: E of each model that the criterion uses: learner, reference, or both.
        chunks, sweeps: N of "joint", and sweeps of "gibbs", of b draws each.
        traced: Whether the sub-batch's score is recorded, for which candidates meet the last chunk too.

    Raises:
        KeyError: Unknown rule.
        ValueError: More chunks than examples in the sub-batch.
    """
    b = batch_size
    number = {"uniform": 1, "independent": 1, "joint": chunks, "greedy": b, "gibbs": b}[rule]
    if not 1 <= number <= b:
        raise ValueError(f"a sub-batch of {b} cannot be drawn in {number} chunks")
    last = b // number  # the first b mod N chunks are larger by one
    meetings = b - (0 if traced else last)
    if rule == "gibbs":
        meetings = sweeps * b * (b - 1 + traced)
    return _MAC * super_batch_size * sum(embedding_dims) * (1 + 2 * meetings)


# ---- scores of a whole data set, from cached embeddings


def clip_loss_scores_flops(*, examples: int, embedding_dim: int, batch_size: int, repeats: int) -> int:
    """Count the FLOPs of negCLIPLoss: in each division into batches, all pairs of a batch in both directions.

    The last batch of a division is padded and counts as a full one.
    """
    size = min(batch_size, examples)
    batches = -(-examples // size)
    return 2 * _MAC * repeats * batches * size**2 * embedding_dim


def norm_similarity_flops(*, examples: int, targets: int, embedding_dim: int) -> int:
    """Count the FLOPs of NormSim: the similarity of every example to every target."""
    return _MAC * examples * targets * embedding_dim


def deduplication_flops(*, examples: int, embedding_dim: int, clusters: int, iterations: int) -> int:
    """Count the FLOPs of SemDeDup: k-means, then all pairs within each cluster.

    Clusters are assumed to have equal sizes. Other sizes have more pairs, and are unknown beforehand.
    """
    means = examples * clusters * (iterations + 1)
    pairs = examples * -(-examples // clusters)
    return _MAC * (means + pairs) * embedding_dim
