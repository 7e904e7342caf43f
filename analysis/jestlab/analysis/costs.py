"""What training costs, in FLOPs: the only place that knows.

A FLOP is one multiplication or one addition, so a multiply–accumulate is 2. The towers' matrix
multiplications are counted and nothing else: normalisations, activations, softmax, the loss and the choice of
examples are left out. A backward pass costs twice its forward pass, so training on an example costs 3F.

Two conventions, each by its name:

- *counted* (`training_cost`): what the code executes, but for what it computes again to save memory. Scoring
  runs a forward pass over the super-batch, and the step runs its own over the chosen examples, so an example
  seen costs 3F + F·B/b.
- *paper's* (`paper_iid`, `paper_jest`, `paper_flexi`, `paper_multi_resolution`, `paper_training_budget`): the
  appendix of Evans et al. (2024), "FLOP calculations for JEST / Flexi-JEST" and "Comparing approximation
  methods". The scoring pass of JEST is kept for the gradient, so an example seen costs F(2 + B/b).

Letters:
    F  forward pass of one example            B  super-batch    b  sub-batch, what is trained on
    f  filtering ratio, 1 − b/B               A  cost of the approximate model, as a share of F
    λ  share of the sub-batch that is trained on approximately
    n  tokens    D  width    M  hidden width of the MLP    E  width of the embedding space

What FLOPs take on accelerators (`chip_hours`) and what that costs (`dollars`) follows from them by a share of
the peak that somebody has to assume: `ASSUMED_UTILISATION` where nobody says.

Nothing but the standard library is imported here: plans of thousands of runs are priced with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["learner", "scoring", "reference_scoring"]
"""How much of a run's cost counts. Each scope holds the ones before it."""

SCOPES: tuple[Scope, ...] = get_args(Scope)

ASSUMED_UTILISATION = 0.4
"""Share of a chip's peak FLOP/s that training is taken to reach. An assumption, not a measurement: dense
transformers are reported between .3 and .6, by their size and by how their batches are fed."""

_FLOPS_PER_MULTIPLY_ACCUMULATE = 2
_SECONDS_PER_HOUR = 3600
_TRAINING_OVER_FORWARD = (
    3  # forward 1, backward 2: one product for the inputs' gradient, one for the weights'
)
_RGB = 3


@dataclass(frozen=True)
class Cost:
    """FLOPs by what they were spent on.

    Attributes:
        learner: The learner's forward and backward passes over the examples it trains on.
        scoring: The learner's forward passes over super-batches, to score them.
        reference_scoring: The reference model's forward passes over super-batches, or over the data whose
            embeddings it caches.
    """

    learner: float
    scoring: float = 0.0
    reference_scoring: float = 0.0

    def total(self, scope: Scope = "scoring") -> float:
        """FLOPs within a scope: "learner", "scoring" (and learner), "reference_scoring" (and both).

        Raises:
            ValueError: For an unknown scope.
        """
        check_scope(scope)
        return float(sum(getattr(self, part) for part in SCOPES[: SCOPES.index(scope) + 1]))


def check_scope(scope: str) -> None:
    """Raise ValueError unless `scope` is one of `SCOPES`."""
    if scope not in SCOPES:
        raise ValueError(f"cost scope {scope!r} is unknown: choose one of {', '.join(SCOPES)}")


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
    return _FLOPS_PER_MULTIPLY_ACCUMULATE * depth * (projections + attention + mlp)


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
    return encoder + _FLOPS_PER_MULTIPLY_ACCUMULATE * (embedding + pool + head)


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
    return encoder + _FLOPS_PER_MULTIPLY_ACCUMULATE * width * embedding_dim


def training_cost(
    *,
    F: float,
    examples: float,
    super_batch_ratio: float = 1.0,
    F_scoring: float = 0.0,
    F_reference: float = 0.0,
    F_approximate: float = 0.0,
    approximate_share: float = 0.0,
) -> Cost:
    """The counted cost of training on `examples` examples: what the code executes.

    Per example seen: 3(F(1 − λ) + F_approximate·λ), and for each of the B/b candidates F_scoring to score it
    with the learner and F_reference to score it with the reference.

    Args:
        F: FLOPs of the learner's forward pass on one example, both towers.
        examples: Examples that the learner trains on.
        super_batch_ratio: B/b = 1/(1 − f).
        F_scoring: FLOPs of the learner's scoring of one candidate: F, or F_approximate where it scores
            approximately; 0 where it does not score.
        F_reference: FLOPs of the reference's scoring of one candidate; 0 where no reference scores, or its
            embeddings are cached.
        F_approximate: FLOPs of the learner's approximate forward pass on one example, both towers.
        approximate_share: λ, as the batch has it: a whole number of examples over b.

    Returns:
        The cost, by scope.

    Raises:
        ValueError: For a super-batch smaller than its sub-batch.
    """
    _check_ratio(super_batch_ratio)
    scored = examples * super_batch_ratio
    forward = F * (1 - approximate_share) + F_approximate * approximate_share
    return Cost(
        learner=_TRAINING_OVER_FORWARD * forward * examples,
        scoring=F_scoring * scored,
        reference_scoring=F_reference * scored,
    )


def chip_hours(flops: float, peak_flops: float, utilisation: float = ASSUMED_UTILISATION) -> float:
    """How long one chip would compute, in hours. On n chips it takes an n-th of the time, and costs the same.

    Args:
        flops: What is computed. Of a run, whatever it executes itself: learner, scoring and reference scoring
            that is not cached (`Cost.total("reference_scoring")`), and not the runs that it needs.
        peak_flops: FLOP/s of one chip at its peak, such as 197e12 of a TPU v5e in bfloat16.
        utilisation: Share of the peak that is reached, in (0, 1].

    Returns:
        flops / (peak_flops · utilisation), in hours.

    Raises:
        ValueError: The peak is not positive, or the utilisation no share.
    """
    if not peak_flops > 0:
        raise ValueError(f"peak FLOP/s are {peak_flops:g}: a chip computes something")
    if not 0 < utilisation <= 1:
        raise ValueError(f"utilisation is {utilisation:g}: it is a share of the peak, above 0 and at most 1")
    return flops / (peak_flops * utilisation) / _SECONDS_PER_HOUR


def dollars(chip_hours: float, dollars_per_chip_hour: float) -> float:
    """What chip-hours cost.

    Args:
        chip_hours: As `chip_hours` gives them.
        dollars_per_chip_hour: Price of one.
    """
    return chip_hours * dollars_per_chip_hour


def paper_iid(F: float) -> float:
    """The paper's cost of one example under uniform sampling: C_IID = 3F."""
    return _TRAINING_OVER_FORWARD * F


def paper_jest(F: float, ratio: float, cached: bool = True) -> float:
    """The paper's cost of one example under JEST.

    C_JEST = 3F + F·B/b − F = F(2 + B/b): the scoring pass over the sub-batch is reused for its gradient.

    Args:
        F: FLOPs of a forward pass; the reference's is the same.
        ratio: B/b.
        cached: Whether the reference's embeddings are cached; otherwise its passes add F·B/b.

    Returns:
        FLOPs for each example seen. Over C_IID at f = .8: 7/3 cached, 4 not cached.
    """
    _check_ratio(ratio)
    return F * (2 + (1 if cached else 2) * ratio)


def paper_flexi(F: float, ratio: float, A: float, approximate_share: float = 0.5) -> float:
    """The paper's cost of one example under Flexi-JEST, with the reference's embeddings cached.

    C_Flexi = 3F((1 − λ) + λA) + A·F·B/b: scored by the approximate model, so that no pass can be reused.

    Args:
        F: FLOPs of the full model's forward pass.
        ratio: B/b.
        A: Cost of the approximate model as a share of the full one's: .25 by the number of patches at twice
            the patch size, .28 in the paper's tables.
        approximate_share: λ.

    Returns:
        FLOPs for each example seen. Over C_IID at f = .8, λ = .5: 1.0417 at A = .25, 1.1067 at A = .28.
    """
    _check_ratio(ratio)
    return paper_multi_resolution(F, A, approximate_share) + A * F * ratio


def paper_multi_resolution(F: float, A: float, approximate_share: float = 0.5) -> float:
    """The paper's cost of one example under uniform sampling with a part trained on approximately.

    3F((1 − λ) + λA).

    Args:
        F: FLOPs of the full model's forward pass.
        A: Cost of the approximate model as a share of the full one's.
        approximate_share: λ.

    Returns:
        FLOPs for each example seen. Over C_IID at λ = .5, A = .28: .64.
    """
    return _TRAINING_OVER_FORWARD * F * ((1 - approximate_share) + approximate_share * A)


def paper_training_budget(examples: float, approximate_share: float, A: float = 0.25) -> float:
    """How many examples cost as much with a part trained on approximately as `examples` without.

    "Comparing approximation methods": the number of iterations is divided by (1 − λ) + λA.

    Args:
        examples: Seen at full resolution.
        approximate_share: λ.
        A: Cost of the approximate model as a share of the full one's; .25 by the number of patches.

    Returns:
        Examples seen. For 3B at λ = .25, .5, .75, .95: 3.69B, 4.8B, 6.86B, 10.43B.
    """
    return examples / ((1 - approximate_share) + approximate_share * A)


def _check_ratio(ratio: float) -> None:
    if ratio < 1:
        raise ValueError(
            f"super-batch ratio B/b is {ratio:g}: a super-batch is no smaller than its sub-batch"
        )
