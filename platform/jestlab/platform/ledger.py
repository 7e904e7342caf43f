"""What a study's runs are going to cost, part by part, by both conventions, beside uniform sampling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from jestlab.analysis.costs import (
    CONVENTIONS,
    Convention,
    Cost,
    Scope,
    Step,
    amortised,
    check_scope,
    matching_examples,
)
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.plan import Alias, Plan, PlannedRun
from jestlab.platform.programs import Price


@dataclass(frozen=True)
class Entry:
    """The runs of one label that train something.

    Attributes:
        label: Of the runs.
        seeds: How many they are.
        examples: Seen by the learner in each.
        step: What each of their steps does.
        by: Convention → FLOPs of one example seen.
        relative: Convention → all that the run itself computes for it, over what uniform sampling costs.
        matching: Convention → how many examples cost as much as all that the baseline sees; None if what
            comes before the first one costs more.
        cost: Of the whole run as counted, its share in what it needs included.
        reference_training: FLOPs of making all that it needs, shared by nobody; the mean over seeds.
        shared_by: How many runs of the study train by what it needs, of several needed runs by the one that
            the fewest share; None where it needs none.
    """

    label: str
    seeds: int
    examples: int
    step: Step
    by: Mapping[Convention, Cost]
    relative: Mapping[Convention, float]
    matching: Mapping[Convention, float | None]
    cost: Cost
    reference_training: float
    shared_by: int | None


@dataclass(frozen=True)
class Ledger:
    """What the runs of a study cost.

    Attributes:
        baseline: Label whose FLOPs are the budget of `Entry.matching`.
        scope: What counts in that.
        entries: In the order of the plan.
        left_out: Labels of runs that train nothing, or whose program names no price.
    """

    baseline: str
    scope: Scope
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...]

    @property
    def selecting(self) -> Step | None:
        """The first step that chooses, one with an approximate pass before others; None without one."""
        choosing = [
            entry.step for entry in self.entries if entry.step.super_batch_size > entry.step.batch_size
        ]
        return next((step for step in choosing if step.approximate is not None), next(iter(choosing), None))


def ledger(plan: Plan, baseline: str | None = None, scope: Scope = "scoring") -> Ledger:
    """The costs of a planned study.

    Args:
        plan: Priced.
        baseline: Label or name of the run whose FLOPs the others are matched with; None for the first that
            trains and that no other run needs.
        scope: What counts as FLOPs where budgets are matched.

    Raises:
        UserError: No run trains anything, or there is no such baseline.
        ValueError: For an unknown scope.
    """
    check_scope(scope)
    labels: dict[str, list[PlannedRun]] = {}
    for run in plan.runs:
        labels.setdefault(run.label, []).append(run)
    trained = {label: group for label, runs in labels.items() if (group := _group(runs)) is not None}
    if not trained:
        raise UserError(f"study {plan.study.name}: no run of it trains anything that could be priced")
    shares = {convention: _Shares(plan, convention) for convention in CONVENTIONS}
    budget = trained[_baseline(plan, trained, baseline)]
    return Ledger(
        baseline=budget.label,
        scope=scope,
        entries=tuple(_entry(group, budget, shares, scope) for group in trained.values()),
        left_out=tuple(label for label in labels if label not in trained),
    )


@dataclass(frozen=True)
class _Group:
    """The runs of one label, which train alike."""

    runs: list[PlannedRun]
    price: Price  # of the first, and but for the share in what they need of each
    step: Step

    @property
    def label(self) -> str:
        return self.runs[0].label


def _group(runs: list[PlannedRun]) -> _Group | None:
    """None where they train nothing, or nobody knows what they cost."""
    price = runs[0].price
    return None if price is None or price.step is None else _Group(runs, price, price.step)


def _baseline(plan: Plan, trained: Mapping[str, _Group], name: str | None) -> str:
    if name is None:
        competing = (label for label, group in trained.items() if group.runs[0].name not in plan.needed)
        return next(competing, next(iter(trained)))
    for label, group in trained.items():
        places: list[PlannedRun | Alias] = [group.runs[0], *group.runs[0].aliases]
        if any(name in (place.label, place.name) for place in places):
            return label
    raise UserError(f"no run {name!r} that trains: {nearest(name, trained)}")


def _entry(group: _Group, budget: _Group, shares: Mapping[Convention, _Shares], scope: Scope) -> Entry:
    matching: dict[Convention, float | None] = {}
    for convention, its in shares.items():
        spent, wanted = budget.step.cost(convention), group.step.cost(convention)
        # What is paid before the first example counts in the broadest scope alone, and on both sides.
        fixed = its.share(group.runs) - its.share(budget.runs) if scope == "reference_training" else 0.0
        try:
            matching[convention] = matching_examples(budget.price.examples, spent, wanted, scope, fixed)
        except ValueError:
            matching[convention] = None
    counted = shares["counted"]
    return Entry(
        label=group.label,
        seeds=len(group.runs),
        examples=group.price.examples,
        step=group.step,
        by={convention: group.step.cost(convention) for convention in CONVENTIONS},
        relative={convention: group.step.relative(convention) for convention in CONVENTIONS},
        matching=matching,
        cost=replace(group.price.cost, reference_training=counted.share(group.runs)),
        reference_training=sum(map(counted.whole, group.runs)) / len(group.runs),
        shared_by=min((n for run in group.runs if (n := counted.sharers(run)) is not None), default=None),
    )


class _Shares:
    """What runs of a plan need, and who shares it: as in the view `v_costs`, but within the plan."""

    def __init__(self, plan: Plan, convention: Convention) -> None:
        self._executed = {run.fingerprint: _executed(run.price, convention) for run in plan.runs}
        self._needs: dict[str, frozenset[str]] = {}
        self._sharers: Counter[str] = Counter()
        for run in plan.runs:  # needed ones first
            direct = list(run.needs.values())
            reached = frozenset(direct).union(*(self._needs[needed] for needed in direct))
            self._needs[run.fingerprint] = reached
            if run.price is None or run.price.cost.learner > 0:
                self._sharers.update(reached)

    def whole(self, run: PlannedRun) -> float:
        """FLOPs of all that the run needs."""
        return sum(self._executed[needed] for needed in self._needs[run.fingerprint])

    def sharers(self, run: PlannedRun) -> int | None:
        """How many share it, the fewest over what it needs; None where it needs nothing."""
        return min((self._sharers[needed] for needed in self._needs[run.fingerprint]), default=None)

    def share(self, runs: list[PlannedRun]) -> float:
        """What falls to each of some runs that train: their mean."""
        shares = (
            amortised(Cost(), self._executed[needed], self._sharers[needed]).reference_training
            for run in runs
            for needed in self._needs[run.fingerprint]
        )
        return sum(shares) / len(runs)


def _executed(price: Price | None, convention: Convention) -> float:
    """All that a run computes; what trains nothing costs the same by every convention."""
    if price is None:
        return 0.0
    if price.step is None:
        return price.executed
    return price.step.cost(convention).total("reference_scoring") * price.examples
