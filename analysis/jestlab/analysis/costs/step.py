"""A training step in the paper's letters, and what an example seen in it costs by each convention.

Letters: F, A, λ, B, b, N and E as in the package's docstring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from .cost import Cost, Scope
from .products import loss_flops, selection_flops
from .towers import Forward

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
        reference: The reference's forward pass on one example; None where no reference scores, or its
            embeddings are cached.
        rule: What chooses: one of `products.RULES`.
        chunks: N, of the rule "joint".
        sweeps: Of the rule "gibbs".
        scored_dims: E of each model whose embeddings the rule looks at, cached ones included.
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

    def __post_init__(self) -> None:
        ratio = self.super_batch_size / self.batch_size
        if ratio < 1:
            raise ValueError(f"B/b is {ratio:g}: a super-batch is no smaller than its sub-batch")
        if not 0 <= self.approximate_share <= 1:
            raise ValueError(f"λ is {self.approximate_share:g}: it is a share of the sub-batch")
        if self.approximate is None and (self.approximate_share or self.scoring == "approximate"):
            raise ValueError("an approximate pass is made and its cost is not given: set `approximate`")

    @property
    def iid(self) -> Step:
        """The same learner's step under uniform sampling, without any approximation."""
        return Step(self.full, self.batch_size, self.batch_size, self.embedding_dim)

    def cost(self, convention: Convention = "counted") -> Cost:
        """FLOPs of one example that the learner trains on; `batch_size` times that is a step's.

        Args:
            convention: "counted": what the code executes, but for what it computes again to save memory, and
                for the diagnostics of some steps. The sub-batch passes the towers again after it was scored.
                "paper": the pass of scoring is kept for the gradient where it was a full one, so that scoring
                costs F(B/b − 1) beyond training: C_JEST = F(2 + B/b), C_Flexi = 3F((1−λ) + λA) + A·F·B/b.
                Of JEST with a part trained on approximately, of which the paper says nothing, the pass is
                kept for the others. Loss and selection cost nothing.

        Raises:
            ValueError: For an unknown convention.
        """
        if convention not in CONVENTIONS:
            raise ValueError(f"convention {convention!r} is unknown: choose one of {', '.join(CONVENTIONS)}")
        approximate = self.approximate or self.full
        share = self.approximate_share
        ratio = self.super_batch_size / self.batch_size
        scoring = {None: 0.0, "full": self.full.total, "approximate": approximate.total}[self.scoring] * ratio
        cost = Cost(
            image_tower=_TRAINING_OVER_FORWARD * (self.full.image * (1 - share) + approximate.image * share),
            text_tower=_TRAINING_OVER_FORWARD * (self.full.text * (1 - share) + approximate.text * share),
            scoring=scoring,
            reference_scoring=self.reference.total * ratio if self.reference is not None else 0.0,
        )
        if convention == "paper":
            kept = self.full.total * (1 - share) if self.scoring == "full" else 0.0
            return replace(cost, scoring=scoring - kept)
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
        return loss_flops(batch_size=self.batch_size, embedding_dim=self.embedding_dim) / self.batch_size

    @property
    def _selection(self) -> float:
        if self.super_batch_size == self.batch_size:
            return 0.0
        return (
            selection_flops(
                self.rule,
                batch_size=self.batch_size,
                super_batch_size=self.super_batch_size,
                embedding_dims=self.scored_dims,
                chunks=self.chunks,
                sweeps=self.sweeps,
            )
            / self.batch_size
        )
