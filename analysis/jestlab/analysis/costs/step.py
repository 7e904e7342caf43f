"""A training step in the paper's letters, and what an example seen in it costs by each convention.

Letters: F, A, λ, B, b, N and E as in the package's docstring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from .cost import EXECUTED, Cost, Scope
from .products import Forward, loss_flops, selection_flops, text_forward, vision_forward

Convention = Literal["counted", "paper"]
"""How FLOPs are counted: by what the code executes, or as the paper's appendix does."""

CONVENTIONS: tuple[Convention, ...] = get_args(Convention)

_TRAINING_OVER_FORWARD = 3  # forward 1, backward 2: a product for the inputs' gradient, one for the weights'


@dataclass(frozen=True, slots=True)
class Step:
    """One training step: what is scored, chosen and trained on, and by what.

    Attributes:
        full: F, the learner's forward pass on one example.
        batch_size: b, what the learner trains on.
        super_batch_size: B, what that is chosen from; b where nothing is chosen.
        embedding_dim: E of the learner.
        approximate: A·F, its approximate forward pass; None where it has none.
        approximate_share: λ, as the batch has it: a whole number of examples over b.
        scoring: How the learner scores the super-batch; None where it does not.
        reference: The reference's forward pass on one example; None where there is none, or its embeddings
            are cached.
        reference_scores: Whether the reference scores the super-batch.
        compares: Whether the loss looks at the reference, so that it embeds the sub-batch if nothing else.
        rule: What chooses: one of `products.RULES`.
        chunks: N, of the rule "joint".
        sweeps: Of the rule "gibbs".
        scored_dims: E of each model whose embeddings the rule looks at, cached ones included.
        own_rule: FLOPs of choosing from one super-batch, beyond the candidates' own scores, by a rule that is
            not one of `products.RULES`: `rule` is "independent" then.
        reuses: Whether the pass that scores the sub-batch is its forward pass in training, too.
        own_loss: FLOPs of the loss of one sub-batch, forward and backward; None for those of the built-in
            losses.
        selecting_share: Share of the steps in which the sub-batch is chosen. In the others it is read: they
            have no super-batch.
    """

    full: Forward
    batch_size: int
    super_batch_size: int
    embedding_dim: int = 0
    approximate: Forward | None = None
    approximate_share: float = 0.0
    scoring: Literal["full", "approximate"] | None = None
    reference: Forward | None = None
    rule: str = "uniform"
    chunks: int = 1
    sweeps: int = 1
    scored_dims: tuple[int, ...] = ()
    own_rule: float = 0.0
    reuses: bool = False
    reference_scores: bool = True
    compares: bool = False
    own_loss: float | None = None
    selecting_share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.selecting_share <= 1:
            raise ValueError(f"selecting_share must be in [0, 1], got {self.selecting_share:g}")
        _check_ratio(self.super_batch_size / self.batch_size)
        if not 0 <= self.approximate_share <= 1:
            raise ValueError(
                f"λ must be in [0, 1], got {self.approximate_share:g} (a share of the sub-batch)"
            )
        if self.approximate is None and (self.approximate_share or self.scoring == "approximate"):
            raise ValueError("missing cost of the approximate pass: set `approximate`")

    @property
    def iid(self) -> Step:
        """The same learner's step under uniform sampling, without any approximation."""
        return Step(self.full, self.batch_size, self.batch_size, self.embedding_dim)

    @property
    def selecting(self) -> Step:
        """The step where the sub-batch is chosen."""
        return replace(self, selecting_share=1.0)

    @property
    def reading(self) -> Step:
        """The step where the sub-batch is read as it is: what is left without scoring and choosing."""
        return replace(
            self,
            super_batch_size=self.batch_size,
            scoring=None,
            rule="uniform",
            scored_dims=(),
            own_rule=0.0,
            reuses=False,
            reference_scores=False,
            selecting_share=1.0,
        )

    def cost(self, convention: Convention = "counted") -> Cost:
        """Count the FLOPs of one example that the learner trains on; a step has `batch_size` times that.

        Of steps that select and others this is the mean.

        Args:
            convention: "counted": what the code executes, but for what it computes again to save memory, and
                for the diagnostics of some steps. The sub-batch passes the towers again after it was scored,
                unless it `reuses` that pass.
                "paper": the pass of scoring is kept for the gradient where it was a full one, so that scoring
                costs F(B/b − 1) beyond training: C_JEST = F(2 + B/b), C_Flexi = 3F((1−λ) + λA) + A·F·B/b.
                Of JEST with a part trained on approximately, which the paper does not price, the pass is
                kept for the others. Loss and selection cost nothing.

        Raises:
            ValueError: For an unknown convention.
        """
        if convention not in CONVENTIONS:
            raise ValueError(f"unknown convention {convention!r}: choose one of {', '.join(CONVENTIONS)}")
        if self.selecting_share < 1:
            share = self.selecting_share
            return self.selecting.cost(convention) * share + self.reading.cost(convention) * (1 - share)
        approximate = self.approximate or self.full
        share = self.approximate_share
        ratio = self.super_batch_size / self.batch_size
        reference = self.reference.total if self.reference is not None else 0.0
        scoring = {None: 0.0, "full": self.full.total, "approximate": approximate.total}[self.scoring] * ratio
        cost = Cost(
            image_tower=_TRAINING_OVER_FORWARD * (self.full.image * (1 - share) + approximate.image * share),
            text_tower=_TRAINING_OVER_FORWARD * (self.full.text * (1 - share) + approximate.text * share),
            scoring=scoring,
            reference_scoring=reference * (ratio if self.reference_scores else self.compares),
        )
        kept = self.full.total * (1 - share) if self.scoring == "full" else 0.0
        if convention == "paper":
            return replace(cost, scoring=scoring - kept)
        if self.reuses:
            cost = replace(cost, scoring=scoring - kept)
        return replace(cost, loss=self._loss, selection=self._selection)

    def relative(self, convention: Convention = "counted", scope: Scope = "reference_scoring") -> float:
        """α: what an example costs, over what it costs under uniform sampling (`iid`).

        Args:
            convention: As for `cost`.
            scope: What counts, on both sides.
        """
        return self.cost(convention).total(scope) / self.iid.cost(convention).total(scope)

    @property
    def _loss(self) -> float:
        b, own = self.batch_size, self.own_loss
        return (loss_flops(batch_size=b, embedding_dim=self.embedding_dim) if own is None else own) / b

    @property
    def _selection(self) -> float:
        if self.super_batch_size == self.batch_size:
            return 0.0
        built_in = selection_flops(
            self.rule,
            batch_size=self.batch_size,
            super_batch_size=self.super_batch_size,
            embedding_dims=self.scored_dims,
            chunks=self.chunks,
            sweeps=self.sweeps,
        )
        return (built_in + self.own_rule) / self.batch_size


# ---- the paper's formulas as it prints them: one example, by F alone


def paper_iid(F: float) -> float:
    """C_IID = 3F: one example under uniform sampling."""
    return 3 * F


def paper_jest(F: float, ratio: float, cached: bool = True) -> float:
    """C_JEST = 3F + F·B/b − F = F(2 + B/b): the scoring pass over the sub-batch is reused for its gradient.

    Args:
        F: FLOPs of a forward pass; the reference's is the same.
        ratio: B/b.
        cached: Whether the reference's embeddings are cached; otherwise its passes add F·B/b.

    Returns:
        FLOPs for each example seen. Over C_IID at f = .8: 7/3 cached, 4 not cached.

    Raises:
        ValueError: The super-batch is smaller than its sub-batch.
    """
    _check_ratio(ratio)
    return F * (2 + (1 if cached else 2) * ratio)


def paper_flexi(F: float, ratio: float, A: float, approximate_share: float = 0.5) -> float:
    """C_Flexi = 3F((1 − λ) + λA) + A·F·B/b: scored by the approximate model, so that no pass can be reused.

    Args:
        F: FLOPs of the full model's forward pass.
        ratio: B/b.
        A: Cost of the approximate model as a share of the full one's: .25 by the number of patches at twice
            the patch size, .28 in the paper's tables.
        approximate_share: λ.

    Returns:
        FLOPs for each example seen. Over C_IID at f = .8, λ = .5: 1.0417 at A = .25, 1.1067 at A = .28.

    Raises:
        ValueError: The super-batch is smaller than its sub-batch.
    """
    _check_ratio(ratio)
    return 3 * F * ((1 - approximate_share) + approximate_share * A) + A * F * ratio


def paper_run(towers: float, scoring: float, kept_share: float) -> float:
    """Compute the FLOPs of a whole run by the paper's convention, from its parts as counted.

    Args:
        towers: What training the towers takes, without the loss.
        scoring: What the learner's scoring of super-batches takes, without choosing from them.
        kept_share: Share of the scored examples whose pass is kept for the gradient: (1 − λ) b/B where the
            full model scores, 0 where the approximate one does.

    Returns:
        3F and F·B/b − F an example of JEST, as in `paper_jest`; the reference's scoring is not among them.
    """
    return towers + scoring * (1 - kept_share)


def _check_ratio(ratio: float) -> None:
    if ratio < 1:
        raise ValueError(f"B/b must be at least 1, got {ratio:g}: a super-batch contains its sub-batch")


# ---- a step's parts as bars, relative to uniform sampling (paper, Figure 4, left)


class Bar(NamedTuple):
    """One component of the cost of a method's step, drawn as a part of its bar."""

    convention: Convention
    method: str
    component: str  # as attributes of `Cost` are called
    flops: float  # of one step
    relative: float  # to all of a step under uniform sampling, by the same convention


def step_bars(step: Step) -> list[Bar]:
    """Compute the bars of a figure: IID, JEST, JEST with a cached reference, Flexi-JEST, by both conventions.

    Args:
        step: Of Flexi-JEST, with its sizes, rule, λ and `approximate` pass; the other methods differ from it
            by what they leave out. Its reference, the learner's like where it has none, scores online in JEST
            alone. To have the paper's A, give `approximate=full * 0.28`. A step without an approximate pass
            is JEST's, and there is no Flexi-JEST.

    Returns:
        A row for each convention, method and component, in the order of the figure; components that a method
        does not have are 0.

    Raises:
        ValueError: The step chooses nothing.
    """
    if step.super_batch_size == step.batch_size:
        raise ValueError("the step trains on its whole super-batch: expected one that selects from it")
    jest = replace(step, scoring="full", approximate_share=0.0, reference=step.reference or step.full)
    methods = {
        "IID": step.iid,
        "JEST": jest,
        "JEST, cached reference": replace(jest, reference=None),
    }
    if step.approximate is not None:
        methods["Flexi-JEST, cached reference"] = replace(step, scoring="approximate", reference=None)
    bars = []
    for convention in CONVENTIONS:
        whole = step.iid.cost(convention).total()
        for method, its_step in methods.items():
            cost = its_step.cost(convention)
            for component in EXECUTED:
                flops = float(getattr(cost, component))
                bars.append(Bar(convention, method, component, flops * step.batch_size, flops / whole))
    return bars


def paper_step() -> Step:
    """The paper's Flexi-JEST step: ViT-B/16 at 256 pixels, 64 tokens, 20% of 163,840 in 16 chunks, λ = .5.

    Its approximate pass is at patch size 32, counted by the architecture: .389 of F, since captions cost as
    much as ever. The paper takes .28.
    """
    block = {"width": 768, "depth": 12, "mlp_dim": 3072}
    text = text_forward(length=64, embedding_dim=768, **block)
    full, approximate = (
        Forward(
            vision_forward(image_size=256, patch_size=patch, pooling="map", embedding_dim=None, **block), text
        )
        for patch in (16, 32)
    )
    return Step(
        full=full,
        batch_size=32_768,
        super_batch_size=163_840,
        embedding_dim=768,
        approximate=approximate,
        approximate_share=0.5,
        scoring="approximate",
        rule="joint",
        chunks=16,
        scored_dims=(768, 768),
    )
