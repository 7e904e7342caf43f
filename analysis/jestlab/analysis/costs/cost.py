"""FLOPs by what they are spent on: scopes of what counts, budgets in examples, and chip-hours."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

Scope = Literal["learner", "scoring", "reference_scoring", "reference_training"]
"""How much of a run's cost counts. Each scope holds the ones before it."""

SCOPES: tuple[Scope, ...] = get_args(Scope)

COMPONENTS: dict[Scope, tuple[str, ...]] = {
    "learner": ("image_tower", "text_tower", "loss"),
    "scoring": ("scoring", "selection"),
    "reference_scoring": ("reference_scoring",),
    "reference_training": ("reference_training",),
}
"""What each scope adds: names of attributes of `Cost`."""

COUNTED: dict[Scope, str] = {
    "learner": "training alone, without scoring",
    "scoring": "training, plus the learner's scoring and selection; without the reference's scoring",
    "reference_scoring": "training, plus scoring by learner and reference, and selection",
    "reference_training": "training, plus scoring by learner and reference, selection, and a share in the "
    "reference's training (divided by the runs that train by it)",
}
"""What counts in each scope, in words for notes under tables."""

EXECUTED: tuple[str, ...] = tuple(
    name for scope in SCOPES if scope != "reference_training" for name in COMPONENTS[scope]
)
"""What a run computes itself: all components but its share in what other runs have computed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """FLOPs by what they are spent on, of an example, a step or a run.

    Attributes:
        image_tower: The learner's forward and backward passes over the images that it trains on.
        text_tower: The same over the captions.
        loss: The logits of all pairs of the sub-batch, and their gradients.
        scoring: The learner's forward passes over super-batches.
        selection: Choosing the sub-batch by what scoring has embedded.
        reference_scoring: The reference's forward passes over super-batches, or over the data of which it
            caches embeddings.
        reference_training: This run's share of what it took to make what it needs: see `amortised`.
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
        """Training itself: towers and loss."""
        return self.total("learner")

    def total(self, scope: Scope = "scoring") -> float:
        """Sum the FLOPs within a scope.

        Args:
            scope: "learner": towers and loss. "scoring": and the learner's scoring and selection.
                "reference_scoring": and the reference's. "reference_training": and the share in that one's
                training, so that all that was computed counts.

        Raises:
            ValueError: For an unknown scope.
        """
        check_scope(scope)
        within = SCOPES[: SCOPES.index(scope) + 1]
        return float(sum(getattr(self, name) for part in within for name in COMPONENTS[part]))

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self._amounts(), other._amounts(), strict=True)))

    def __mul__(self, times: float) -> Cost:
        return Cost(*(amount * times for amount in self._amounts()))

    def _amounts(self) -> tuple[float, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


def check_scope(scope: str) -> None:
    """Raise ValueError unless `scope` is one of `SCOPES`."""
    if scope not in SCOPES:
        raise ValueError(f"unknown cost scope {scope!r}: choose one of {', '.join(SCOPES)}")


def planned_flops(planned: Any, scope: Scope) -> Any:
    """Sum the FLOPs that a run itself is planned to execute within a scope.

    Args:
        planned: A mapping from columns of the store's view `v_costs` to values, or a pandas frame of them.
        scope: What counts. Of "reference_training" the share is not among them: it is spent before the run
            starts, and does not grow with the examples that it sees.

    Returns:
        A value, or values, as `planned` holds.
    """
    if scope == "learner":
        return planned["learner_flops"]
    if scope == "scoring":
        return planned["total_flops"]
    return planned["total_flops"] + planned["reference_scoring_flops"]


# ---- budgets


def matching_examples(
    examples: float, spent: Cost, wanted: Cost, scope: Scope = "scoring", fixed: float = 0.0
) -> float:
    """Find how many examples cost as much by one way of training as `examples` by another (iso-FLOP).

    Args:
        examples: Seen by the one, whose FLOPs are the budget.
        spent: What it costs an example (`Step.cost`).
        wanted: What the other costs an example, by the same convention.
        scope: What counts as FLOPs. The paper matches "learner" in "Comparing approximation methods".
        fixed: FLOPs that the other pays besides, however many examples it sees, such as its share in the
            training of its reference.

    Returns:
        Examples seen by the other. By the paper's convention with A = .25, for 3B of uniform sampling at
        λ = .25, .5, .75, .95: 3.69B, 4.8B, 6.86B, 10.43B.

    Raises:
        ValueError: An example of the other costs nothing, or `fixed` alone is beyond the budget.
    """
    budget, each = examples * spent.total(scope), wanted.total(scope)
    if not each > 0:
        raise ValueError(f"an example costs nothing in scope {scope!r}: any number fits the budget")
    if fixed > budget:
        raise ValueError(f"{fixed:.3g} FLOPs are spent before the first example, of a budget of {budget:.3g}")
    return (budget - fixed) / each


def amortised(cost: Cost, reference_training: float, runs: int) -> Cost:
    """Add to a run's cost its share in the training of its reference.

    The share is the reference's whole training over the number of runs that it serves: what each would pay if
    they divided the bill. Somebody who trains a reference for one run pays all of it.

    Args:
        cost: Of the run itself.
        reference_training: FLOPs of making all that it needs: the reference's training, and the pass over the
            data where embeddings are cached.
        runs: How many runs share that, this one included.

    Raises:
        ValueError: No run shares it.
    """
    if runs < 1:
        raise ValueError(f"number of runs that share the reference must be at least 1, got {runs}")
    return replace(cost, reference_training=reference_training / runs)


def break_even_runs(reference_training: float, run: float, baseline: float) -> int | None:
    """Find how many runs have to share a reference until it has paid for itself.

    Args:
        reference_training: FLOPs of making the reference, once.
        run: FLOPs until a run that selects by it reaches a target score, without that.
        baseline: FLOPs until the uniform baseline reaches the same target.

    Returns:
        The fewest runs n that together, reference and all, cost less than n baselines; None where a run saves
        nothing, so that no number does.

    Raises:
        ValueError: A cost is negative or not finite.
    """
    for name, flops in (("reference_training", reference_training), ("run", run), ("baseline", baseline)):
        if not 0 <= flops < math.inf:
            raise ValueError(f"{name} must be finite and not negative, got {flops:g} FLOPs")
    saved = baseline - run
    if saved <= 0:
        return None
    return math.floor(reference_training / saved) + 1


# ---- hours

ASSUMED_UTILISATION = 0.4
"""Share of a chip's peak FLOP/s that training is taken to reach. An assumption, not a measurement: dense
transformers are reported between .3 and .6, by their size and by how their batches are fed."""

_SECONDS_PER_HOUR = 3600


def chip_hours(flops: float, peak_flops: float, utilisation: float = ASSUMED_UTILISATION) -> float:
    """Compute how long one chip takes, in hours; n chips take an n-th of the time, at the same cost.

    Args:
        flops: What is computed. Of a run, whatever it executes itself: learner, scoring, selection and
            reference scoring that is not cached (`Cost.total("reference_scoring")`), and not the runs that it
            needs.
        peak_flops: FLOP/s of one chip at its peak, such as 197e12 of a TPU v5e in bfloat16.
        utilisation: Share of the peak that is reached, in (0, 1].

    Returns:
        flops / (peak_flops · utilisation), in hours.

    Raises:
        ValueError: The peak is not positive, or the utilisation no share.
    """
    if not peak_flops > 0:
        raise ValueError(f"peak FLOP/s must be positive, got {peak_flops:g}")
    if not 0 < utilisation <= 1:
        raise ValueError(f"utilisation must be in (0, 1], got {utilisation:g}")
    return flops / (peak_flops * utilisation) / _SECONDS_PER_HOUR
