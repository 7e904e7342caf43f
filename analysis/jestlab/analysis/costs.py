"""Costs of training: FLOPs of a step, an example, or a run by component; budgets and chip-hours.

    step = Step(full=Forward(image, text), batch_size=b, super_batch_size=B, ...)
    step.cost("counted").total("scoring")     # FLOPs of one example seen

The formulas and the letters are in `flops`. There are two conventions (`Step.cost`):

- *counted*: the executed FLOPs, without diagnostics and recomputation. An example seen costs 3F + F·B/b, plus
  loss and selection: training repeats the forward pass over the sub-batch unless the step `reuses` scoring's.
- *paper*: training reuses a full scoring pass, and loss and selection are free: C_IID, C_JEST, and C_Flexi.
  The paper has no formula for JEST that trains on a part of the sub-batch approximately. Here, such a step
  reuses the scoring pass over the other part.

Each of the four scopes adds costs to the one before it (`Cost.total`): training the learner; its scoring and
selection; the reference's scoring; a share in the cost of the runs that the run depends on.

This module imports only the standard library, because planning imports it, and must start quickly.
"""

from __future__ import annotations

import math
import operator
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Literal, get_args

from .flops import Forward, loss_flops

# ---- FLOPs by component

Scope = Literal["learner", "scoring", "reference_scoring", "reference_training"]
"""Which FLOPs of a run count. Each scope includes those before it."""

SCOPES: tuple[Scope, ...] = get_args(Scope)

COUNTED: dict[Scope, str] = {
    "learner": "training alone, without scoring",
    "scoring": "training, plus the learner's scoring and selection; without the reference",
    "reference_scoring": "training, plus scoring by learner and reference, and selection",
    "reference_training": "training, plus scoring by learner and reference, selection, and a share in the "
    "reference's training (divided by the runs that train by it)",
}
"""Scope → the FLOPs that it counts, in words for notes under tables."""


@dataclass(frozen=True, slots=True)
class Cost:
    """FLOPs of an example, a step, or a run by component, in the order in which scopes add components.

    Attributes:
        image_tower, text_tower: The learner's forward and backward passes over sub-batches.
        loss: Logits of all pairs of a sub-batch, and their gradients.
        scoring: The learner's forward passes over super-batches.
        selection: Choosing the sub-batch from the embeddings that scoring computed.
        reference_scoring: The reference's forward passes over super-batches, or over the data whose
            embeddings it caches.
        reference_training: The run's share in the cost of the runs that it depends on.
    """

    image_tower: float = 0.0
    text_tower: float = 0.0
    loss: float = 0.0
    scoring: float = 0.0
    selection: float = 0.0
    reference_scoring: float = 0.0
    reference_training: float = 0.0

    @property
    def learner(self) -> float:
        """FLOPs of training alone: towers and loss."""
        return self.total("learner")

    def total(self, scope: Scope = "scoring") -> float:
        """Sum the FLOPs within a scope; raise ValueError if the scope is unknown."""
        check_scope(scope)
        return float(sum(astuple(self)[: _WITHIN[scope]]))

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(operator.add, astuple(self), astuple(other)))

    def __mul__(self, times: float) -> Cost:
        return Cost(*(flops * times for flops in astuple(self)))


_WITHIN: dict[Scope, int] = {"learner": 3, "scoring": 5, "reference_scoring": 6, "reference_training": 7}
"""Scope → how many of the attributes of `Cost` it includes, counted from the first."""

EXECUTED: tuple[str, ...] = tuple(component.name for component in fields(Cost))[:-1]
"""The components that a run executes itself."""


def check_scope(scope: str) -> None:
    """Raise ValueError unless `scope` is one of `SCOPES`."""
    if scope not in SCOPES:
        raise ValueError(f"unknown cost scope {scope!r}: choose one of {', '.join(SCOPES)}")


def planned_flops(planned: Any, scope: Scope) -> Any:
    """Sum the planned FLOPs that a run itself executes within a scope, without a share in other runs' cost.

    `planned` maps columns of the store's view `v_costs` to values, or is a pandas frame of them.
    """
    if scope == "learner":
        return planned["learner_flops"]
    if scope == "scoring":
        return planned["total_flops"]
    return planned["total_flops"] + planned["reference_scoring_flops"]


# ---- a training step

Convention = Literal["counted", "paper"]
"""How FLOPs are counted: as executed, or as in the paper's appendix."""

CONVENTIONS: tuple[Convention, ...] = get_args(Convention)


@dataclass(frozen=True, slots=True)
class Step:
    """One training step.

    Attributes:
        full, approximate: F and A·F, the learner's forward passes on one example; A·F may be missing (None).
        batch_size, super_batch_size: b and B; B = b without selection.
        embedding_dim: E of the learner.
        approximate_share: λ, the fraction of the sub-batch trained on approximately.
        scoring: Which of the learner's passes scores the super-batch; None if the learner does not score.
        reference: The reference's forward pass on one example; None without a reference, or with cached
            embeddings.
        reference_scores: Whether the reference scores the super-batch.
        compares: Whether the loss uses the reference, which then embeds the sub-batch even without scoring.
        selection: FLOPs of choosing one sub-batch.
        reuses: Whether training reuses the scoring pass of the sub-batch.
        own_loss: FLOPs of the loss of one sub-batch, forward and backward; None for sigmoid or softmax.
        selecting_share: Fraction of the steps that select. The other steps train on a batch as read.
    """

    full: Forward
    batch_size: int
    super_batch_size: int
    embedding_dim: int = 0
    approximate: Forward | None = None
    approximate_share: float = 0.0
    scoring: Literal["full", "approximate"] | None = None
    reference: Forward | None = None
    reference_scores: bool = True
    compares: bool = False
    selection: float = 0.0
    reuses: bool = False
    own_loss: float | None = None
    selecting_share: float = 1.0

    def __post_init__(self) -> None:
        if self.super_batch_size < self.batch_size:
            raise ValueError(
                f"a super-batch of {self.super_batch_size} is below its sub-batch of {self.batch_size}"
            )
        for name, share in (("selecting_share", self.selecting_share), ("λ", self.approximate_share)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {share:g}")
        if self.approximate is None and (self.approximate_share or self.scoring == "approximate"):
            raise ValueError("missing cost of the approximate pass: set `approximate`")

    @property
    def iid(self) -> Step:
        """The same learner's step under uniform sampling, without any approximation."""
        return Step(self.full, self.batch_size, self.batch_size, self.embedding_dim)

    @property
    def selecting(self) -> Step:
        """A step that selects its sub-batch."""
        return replace(self, selecting_share=1.0)

    @property
    def reading(self) -> Step:
        """A step that trains on a batch as read, without scoring and selection."""
        plain: Any = {"scoring": None, "reference_scores": False, "selection": 0.0, "reuses": False}
        return replace(self.selecting, super_batch_size=self.batch_size, **plain)

    @property
    def methods(self) -> dict[str, Step]:
        """The step of each method of the paper, for its figure of costs.

        If the step has no reference, one of the learner's size is assumed. Without an approximate pass,
        Flexi-JEST is left out.
        """
        jest = replace(self, scoring="full", approximate_share=0.0, reference=self.reference or self.full)
        steps = {"IID": self.iid, "JEST": jest, "JEST, cached reference": replace(jest, reference=None)}
        if self.approximate is not None:
            steps["Flexi-JEST, cached reference"] = replace(self, scoring="approximate", reference=None)
        return steps

    def cost(self, convention: Convention = "counted") -> Cost:
        """Count the FLOPs of one example that the learner trains on, which is 1/b of a step.

        If only some steps select, this is the mean over all steps.
        """
        if convention not in CONVENTIONS:
            raise ValueError(f"unknown convention {convention!r}: choose one of {', '.join(CONVENTIONS)}")
        if self.selecting_share < 1:
            share = self.selecting_share
            return self.selecting.cost(convention) * share + self.reading.cost(convention) * (1 - share)
        full, approximate, share = self.full, self.approximate or self.full, self.approximate_share
        ratio = self.super_batch_size / self.batch_size
        scoring = {None: 0.0, "full": full.total, "approximate": approximate.total}[self.scoring] * ratio
        if self.scoring == "full" and (self.reuses or convention == "paper"):
            scoring -= full.total * (1 - share)
        passes = ratio if self.reference_scores else float(self.compares)
        cost = Cost(  # a backward pass costs twice its forward pass
            image_tower=3 * (full.image * (1 - share) + approximate.image * share),
            text_tower=3 * (full.text * (1 - share) + approximate.text * share),
            scoring=scoring,
            reference_scoring=0.0 if self.reference is None else self.reference.total * passes,
        )
        if convention == "paper":
            return cost
        loss = self.own_loss
        if loss is None:
            loss = loss_flops(batch_size=self.batch_size, embedding_dim=self.embedding_dim)
        return replace(cost, loss=loss / self.batch_size, selection=self.selection / self.batch_size)

    def relative(self, convention: Convention = "counted", scope: Scope = "reference_scoring") -> float:
        """α: the cost of an example over its cost under uniform sampling (`iid`)."""
        return self.cost(convention).total(scope) / self.iid.cost(convention).total(scope)


# ---- budgets and hours


def matching_examples(
    examples: float, spent: Cost, wanted: Cost, scope: Scope = "scoring", fixed: float = 0.0
) -> float:
    """Compute the number of examples at which one way of training costs as much as another (iso-FLOP).

    The paper matches the scope "learner" in "Comparing approximation methods": 3B examples of uniform
    sampling cost as much as 3.69B, 4.8B, 6.86B, and 10.43B at λ = .25, .5, .75, and .95, with A = .25.

    Args:
        examples: Examples seen by the first way of training, whose FLOPs are the budget.
        spent: Cost of each of these examples (`Step.cost`).
        wanted: Cost of an example by the second way of training, in the same convention.
        scope: Which FLOPs count.
        fixed: FLOPs of the second way that do not grow with the examples, such as the reference's training.

    Raises:
        ValueError: An example costs nothing, or `fixed` alone exceeds the budget.
    """
    budget, per_example = examples * spent.total(scope), wanted.total(scope)
    if not per_example > 0:
        raise ValueError(f"an example costs nothing in scope {scope!r}: any number fits the budget")
    if fixed > budget:
        raise ValueError(f"{fixed:.3g} FLOPs are spent before the first example, of a budget of {budget:.3g}")
    return (budget - fixed) / per_example


def break_even_runs(making: float, run: float, baseline: float) -> float:
    """Compute how many runs must share a reference until the reference has paid for itself.

    Args:
        making: FLOPs to produce the reference, once.
        run: FLOPs until a run that selects with the reference reaches a target score, without `making`;
            infinite if the run doesn't reach the score.
        baseline: FLOPs until the uniform baseline reaches the same target.

    Returns:
        The smallest n such that n runs and the reference cost less than n baselines; infinite if a run saves
        nothing; NaN without a reference to make, or with an unknown cost (NaN).
    """
    if not making > 0 or math.isnan(run) or math.isnan(baseline):
        return math.nan
    saved = baseline - run
    return math.floor(making / saved) + 1 if saved > 0 else math.inf


ASSUMED_UTILIZATION = 0.4
"""Assumed fraction of a chip's peak FLOP/s that training reaches. Reported values of dense transformers are
between .3 and .6, depending on their size and on the input pipeline."""


def chip_hours(flops: float, peak_flops: float, utilization: float = ASSUMED_UTILIZATION) -> float:
    """Compute the hours that one chip takes for the FLOPs that a run executes; n chips take 1/n of them.

    The peak FLOP/s of a chip are, for example, 197e12 for a TPU v5e in bfloat16.
    """
    return flops / (peak_flops * utilization) / 3600
