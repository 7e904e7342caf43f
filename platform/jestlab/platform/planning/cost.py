"""What planned runs cost: chip-hours and money on TPUs, hours on this machine, and FLOPs part by part.

On a TPU slice, hours are a run's FLOPs divided by an assumed share of the slice's peak. On other machines,
whose peak is unknown, they are estimated from earlier runs of the same program in the same place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jestlab.analysis import costs, units
from jestlab.analysis.costs import CONVENTIONS, Convention, Cost, Scope, Step
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning.plan import Action, Alias, Plan, PlannedRun, RunBudget
from jestlab.platform.programs import Price
from jestlab.platform.spec.resources import CLUSTERS, ExecutorName, Slice
from jestlab.platform.store.records import Speed

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store

NO_CHIP = "local"
"""The chip of runs on machines whose chips are not counted, such as this one: each counts as one chip."""

GPU = "gpu"
"""The chip of runs on GPUs of a cluster, of whichever type."""


@dataclass(frozen=True)
class Sum:
    """What runs will occupy together, as far as it is known; `unknown` counts those without a budget."""

    chip_hours: float
    dollars: float | None
    unknown: int


def budgeted(plan: Plan, store: Store | None, place: ExecutorName | None) -> Plan:
    """Add to a plan what each run will occupy, as far as that is known.

    Args:
        plan: Priced.
        store: Where earlier runs are; None where there is none. It is not asked for runs on TPUs.
        place: Where runs go; None where nothing says it, and they need a TPU slice.

    Raises:
        UserError: The user's settings cannot be read.
    """
    resources = plan.study.resources
    slice_ = None if place == "local" else resources.slice
    if slice_ is not None or place is None:
        return plan if slice_ is None else on_tpu(plan, slice_, Settings.find())
    # What an executor of one's own counts as chips is known when it launches.
    chips = resources.machines.chips if place in CLUSTERS else None
    if store is None:
        return by_earlier_runs(plan, {}, chips or 0)
    from jestlab.platform.store.spending import speeds  # imports SQLAlchemy

    found = speeds(store, (run.program for run in plan.runs), place, chips)
    return by_earlier_runs(plan, found, chips or 0)


def on_tpu(plan: Plan, slice_: Slice, settings: Settings) -> Plan:
    """Add to a plan what each run will occupy on a TPU slice, by the user's prices and utilization."""
    chip = slice_.type
    share = utilization(settings, chip.name)
    price = settings.prices.get(chip.name)

    def budget(run: PlannedRun) -> RunBudget | None:
        if run.price is None:
            return None
        chip_hours = costs.chip_hours(run.price.executed, chip.peak_flops, share)
        dollars = None if price is None else chip_hours * price
        return RunBudget(chip.name, slice_.chips, chip_hours, dollars)

    return _with(plan, budget)


def utilization(settings: Settings, chip: str) -> float:
    """Return the assumed share of a TPU type's peak: the user's, else `costs.ASSUMED_UTILISATION`."""
    return settings.utilization.get(chip, costs.ASSUMED_UTILISATION)


def by_earlier_runs(plan: Plan, speeds: Mapping[str, Speed], gpus: int = 0) -> Plan:
    """Add to a plan how long each run will take, by the measured speeds of its program in the same place.

    Args:
        plan: Priced.
        speeds: Of programs.
        gpus: How many GPUs each run has; 0 where chips are not counted.
    """
    chip, chips = (GPU, gpus) if gpus else (NO_CHIP, 1)

    def budget(run: PlannedRun) -> RunBudget | None:
        speed = speeds.get(run.program)
        if run.price is None or (speed is None and run.price.executed):
            return None
        if speed is None:  # it computes nothing: it imports a checkpoint
            return RunBudget(chip, chips, 0.0)
        hours = speed.hours(run.price.executed) if run.price.executed else 0.0
        return RunBudget(chip, chips, hours * chips, by_runs=speed.runs)

    return _with(plan, budget)


def _with(plan: Plan, budget: Callable[[PlannedRun], RunBudget | None]) -> Plan:
    runs = tuple(replace(run, budget=budget(run)) for run in plan.runs)
    return replace(plan, runs=runs, parts=tuple(_with(part, budget) for part in plan.parts))


def total(runs: Sequence[PlannedRun]) -> Sum:
    """Sum what runs will occupy, as far as it is known."""
    budgets = [run.budget for run in runs if run.budget is not None]
    paid = [budget.dollars for budget in budgets if budget.dollars is not None]
    return Sum(
        chip_hours=sum(budget.chip_hours for budget in budgets),
        dollars=sum(paid) if paid else None,
        unknown=len(runs) - len(budgets),
    )


def done(plan: Plan) -> list[PlannedRun]:
    """Return the runs that are completed."""
    return [run for run in plan.runs if run.action is Action.DONE]


def to_do(plan: Plan) -> list[PlannedRun]:
    """Return the runs that a launch starts or resumes, each counted from its start."""
    return [run for run in plan.runs if run.action is not Action.DONE]


def wall_hours(runs: Sequence[PlannedRun], parallel: int | None) -> float:
    """Estimate a lower bound on the hours that runs take together, some or all (None) at a time.

    That is their sum over the parallel slots, or those of the longest chain of runs that need each other.
    They come dependencies first; what is not known counts nothing.
    """
    ends: dict[str, float] = {}
    for run in runs:
        begin = max((ends.get(needed, 0.0) for needed in run.needs.values()), default=0.0)
        ends[run.fingerprint] = begin + (run.budget.hours if run.budget else 0.0)
    together = sum(run.budget.hours for run in runs if run.budget) / parallel if parallel else 0.0
    return max(together, max(ends.values(), default=0.0))


def refuse_above(plan: Plan, most: float, place: ExecutorName, what: str = "nothing") -> None:
    """Refuse a launch if the runs still to do, in a place, are estimated at more than some chip-hours.

    Args:
        plan: The plan.
        most: Chip-hours.
        place: Executor.
        what: Which runs were launched then, for the message.

    Raises:
        UserError: The estimate exceeds the limit or is unknown.
    """
    if plan.waiting:
        its = plan.waiting[0]
        raise UserError(
            f"--max-chip-hours cannot be checked: how long {its.label} trains is known only when "
            f"{' and '.join(its.awaits)} have completed; {what} was launched"
        )
    runs = to_do(plan)
    for run in runs:
        if run.budget is None:
            why = _unknown(run, place)
            raise UserError(f"--max-chip-hours cannot be checked: {why}; {what} was launched")
    amount = total(runs).chip_hours
    if amount > most:
        dearest = sorted(runs, key=_chip_hours, reverse=True)[:3]
        named = ", ".join(f"{_shown(run)} {units.hours(_chip_hours(run))}" for run in dearest)
        raise UserError(
            f"the {len(runs)} run{'s' if len(runs) != 1 else ''} to do would take {units.hours(amount)} "
            f"chip-hours, more than --max-chip-hours {most:g} (largest: {named}); {what} was launched"
        )


def _unknown(run: PlannedRun, place: ExecutorName) -> str:
    """Say why it is unknown what a run takes."""
    if run.price is None:
        return f"the cost of {_shown(run)} is unknown, because its program {run.program} has no price"
    where = "on this machine" if place == "local" else f"on {place}"
    where += " with as many chips" if place in CLUSTERS else ""
    return (
        f"how long {_shown(run)} takes is unknown, because no run of {run.program} has completed {where}, "
        "and the study names no TPU slice: launch one of its runs first, without --max-chip-hours"
    )


def _shown(run: PlannedRun) -> str:
    return f"{run.label} seed {run.seed}"


def _chip_hours(run: PlannedRun) -> float:
    return run.budget.chip_hours if run.budget else 0.0


@dataclass(frozen=True)
class Entry:
    """The cost of the runs of one label that train something.

    Attributes:
        label: Of the runs.
        seeds: How many runs there are.
        examples: Examples seen by the learner in each.
        step: What each of their training steps does.
        by: Convention → FLOPs of one example seen.
        relative: Convention → all that the run computes for an example, relative to uniform sampling.
        matching: Convention → how many examples cost as much as all that the baseline sees; None if the
            costs before the first example are already higher.
        cost: Of the whole run as counted, including its share in its dependencies.
        reference_training: FLOPs of all its dependencies, as if it alone used them; the mean over seeds.
        shared_by: How many runs of the study train with its dependencies: of several, the one shared by
            the fewest; None where it has none.
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
class CostBreakdown:
    """What the runs of a study cost.

    Attributes:
        baseline: Label whose FLOPs are the budget of `Entry.matching`.
        scope: What counts in that budget.
        entries: In the order of the plan.
        left_out: Labels of runs that train nothing, or whose program has no price.
    """

    baseline: str
    scope: Scope
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...]

    @property
    def selecting(self) -> Step | None:
        """The first step that selects, preferably with an approximate pass; None if no run selects."""
        choosing = [
            entry.step for entry in self.entries if entry.step.super_batch_size > entry.step.batch_size
        ]
        return next((step for step in choosing if step.approximate is not None), next(iter(choosing), None))


def cost_breakdown(plan: Plan, baseline: str | None = None, scope: Scope = "scoring") -> CostBreakdown:
    """Break down the costs of a planned study, label by label.

    Args:
        plan: Priced.
        baseline: Label or name of the run whose FLOPs the others are matched with; None for the first that
            trains and that no other run refers to.
        scope: What counts as FLOPs where budgets are matched.

    Raises:
        UserError: No run trains anything, or there is no such baseline.
    """
    costs.check_scope(scope)
    labels: dict[str, list[PlannedRun]] = {}
    for run in plan.runs:
        labels.setdefault(run.label, []).append(run)
    trained = {label: group for label, runs in labels.items() if (group := _group(runs)) is not None}
    if not trained:
        raise UserError(f"study {plan.study.name}: no run trains anything that can be priced")
    shares = {convention: _Shares(plan, convention) for convention in CONVENTIONS}
    budget = trained[_baseline(plan, trained, baseline)]
    return CostBreakdown(
        baseline=budget.label,
        scope=scope,
        entries=tuple(_entry(group, budget, shares, scope) for group in trained.values()),
        left_out=tuple(label for label in labels if label not in trained),
    )


@dataclass(frozen=True)
class _Group:
    """The runs of one label, which all train in the same way."""

    runs: list[PlannedRun]
    price: Price  # of the first; the others differ only in their shares of dependencies
    step: Step

    @property
    def label(self) -> str:
        return self.runs[0].label


def _group(runs: list[PlannedRun]) -> _Group | None:
    """Group the runs of one label; None where they train nothing, or their cost is unknown."""
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
        spent, own = budget.step.cost(convention), group.step.cost(convention)
        # Costs before the first example count in the broadest scope alone, and on both sides.
        fixed = its.share(group.runs) - its.share(budget.runs) if scope == "reference_training" else 0.0
        try:
            matching[convention] = costs.matching_examples(budget.price.examples, spent, own, scope, fixed)
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
    """The dependencies of runs and who shares them: as in the view `v_costs`, but within the plan."""

    def __init__(self, plan: Plan, convention: Convention) -> None:
        self._executed = {run.fingerprint: _executed(run.price, convention) for run in plan.runs}
        self._needs: dict[str, frozenset[str]] = {}
        self._sharers: Counter[str] = Counter()
        for run in plan.runs:  # dependencies first
            direct = list(run.needs.values())
            reached = frozenset(direct).union(*(self._needs[needed] for needed in direct))
            self._needs[run.fingerprint] = reached
            if run.price is None or run.price.cost.learner > 0:
                self._sharers.update(reached)

    def whole(self, run: PlannedRun) -> float:
        """Sum the FLOPs of all dependencies of a run."""
        return sum(self._executed[needed] for needed in self._needs[run.fingerprint])

    def sharers(self, run: PlannedRun) -> int | None:
        """Count the runs that share a run's least shared dependency; None where it has none."""
        return min((self._sharers[needed] for needed in self._needs[run.fingerprint]), default=None)

    def share(self, runs: list[PlannedRun]) -> float:
        """Compute the mean share in their dependencies' FLOPs of some runs that train."""
        shares = (
            costs.amortised(Cost(), self._executed[needed], self._sharers[needed]).reference_training
            for run in runs
            for needed in self._needs[run.fingerprint]
        )
        return sum(shares) / len(runs)


def _executed(price: Price | None, convention: Convention) -> float:
    """Compute a run's FLOPs; what trains nothing costs the same by every convention."""
    if price is None:
        return 0.0
    if price.step is None:
        return price.executed
    return price.step.cost(convention).total("reference_scoring") * price.examples
