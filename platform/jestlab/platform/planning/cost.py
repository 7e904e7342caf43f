"""Cost of planned runs: chip-hours and money on TPUs, hours on other machines, and FLOPs by component.

On a TPU slice, hours are FLOPs divided by an assumed share of the slice's peak. On other machines, whose peak
is unknown, hours are estimated from earlier runs of the same program on the same executor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jestlab.analysis import costs, units
from jestlab.analysis.costs import CONVENTIONS, Convention, Cost, Scope, Step
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning.plan import Action, Plan, PlannedRun, RunBudget
from jestlab.platform.spec.resources import CLUSTERS, ExecutorName, Slice
from jestlab.platform.store.records import Speed
from jestlab.platform.words import counted

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store

NO_CHIP = "local"
"""Chip of runs on machines whose chips aren't counted; each run counts as one chip."""

GPU = "gpu"
"""Chip of runs on a cluster's GPUs, of any type."""


# ---- hours and money


@dataclass(frozen=True)
class BudgetTotal:
    """Sum of the known budgets of runs; `unknown` counts the runs without a budget."""

    chip_hours: float
    dollars: float | None
    unknown: int


def budgeted(plan: Plan, store: Store | None, executor: ExecutorName | None) -> Plan:
    """Add the known budgets of runs to a plan.

    Args:
        plan: A plan with prices.
        store: Store with earlier runs; None if there is none. It isn't read for runs on TPUs.
        executor: Executor of the runs; None if unknown. Then only runs on a TPU slice get budgets.

    Raises:
        UserError: The user's settings can't be read.
    """
    resources = plan.study.resources
    slice_ = None if executor == "local" else resources.slice
    if slice_ is not None:
        return on_tpu(plan, slice_, Settings.find())
    if executor is None:
        return plan
    # The chips of a custom executor are known only when it launches.
    chips, found = resources.machines.chips if executor in CLUSTERS else None, dict[str, Speed]()
    if store is not None:
        from jestlab.platform.store.spending import speeds  # imports SQLAlchemy

        found = speeds(store, (run.program for run in plan.runs), executor, chips)
    return by_earlier_runs(plan, found, chips or 0)


def on_tpu(plan: Plan, slice_: Slice, settings: Settings) -> Plan:
    """Add budgets on a TPU slice, by the user's prices and utilization."""
    chip = slice_.type
    share = utilization(settings, chip.name)
    price = settings.prices.get(chip.name)

    def budget(run: PlannedRun) -> RunBudget | None:
        if run.price is None:
            return None
        chip_hours = costs.chip_hours(run.price.executed, chip.peak_flops, share)
        return RunBudget(chip.name, slice_.chips, chip_hours, None if price is None else chip_hours * price)

    return _with_budgets(plan, budget)


def utilization(settings: Settings, chip: str) -> float:
    """Return the assumed share of a TPU type's peak FLOP/s: the user's setting, or else the default."""
    return settings.utilization.get(chip, costs.ASSUMED_UTILIZATION)


def by_earlier_runs(plan: Plan, speeds: Mapping[str, Speed], gpus: int = 0) -> Plan:
    """Add budgets from the measured speeds of programs on the same executor.

    Args:
        plan: A plan with prices.
        speeds: Program → speed.
        gpus: GPUs per run; 0 if chips aren't counted.
    """
    chip, chips = (GPU, gpus) if gpus else (NO_CHIP, 1)

    def budget(run: PlannedRun) -> RunBudget | None:
        speed = speeds.get(run.program)
        if run.price is None or (speed is None and run.price.executed):
            return None
        # Runs without FLOPs, such as imported weights, take no time.
        hours = speed.hours(run.price.executed) if speed and run.price.executed else 0.0
        return RunBudget(chip, chips, hours * chips, by_runs=speed.runs if speed else 0)

    return _with_budgets(plan, budget)


def _with_budgets(plan: Plan, budget: Callable[[PlannedRun], RunBudget | None]) -> Plan:
    runs = tuple(replace(run, budget=budget(run)) for run in plan.runs)
    return replace(plan, runs=runs, parts=tuple(_with_budgets(part, budget) for part in plan.parts))


def total(runs: Sequence[PlannedRun]) -> BudgetTotal:
    """Sum the known budgets of runs."""
    budgets = [run.budget for run in runs if run.budget is not None]
    dollars = [budget.dollars for budget in budgets if budget.dollars is not None]
    return BudgetTotal(
        chip_hours=sum(budget.chip_hours for budget in budgets),
        dollars=sum(dollars) if dollars else None,
        unknown=len(runs) - len(budgets),
    )


def done(plan: Plan) -> list[PlannedRun]:
    """Return the completed runs."""
    return [run for run in plan.runs if run.action is Action.DONE]


def to_do(plan: Plan) -> list[PlannedRun]:
    """Return the runs that a launch starts or resumes. Resumed runs count in full."""
    return [run for run in plan.runs if run.action is not Action.DONE]


def wall_hours(runs: Sequence[PlannedRun], parallel: int | None) -> float:
    """Estimate a lower bound on the wall-clock hours of runs. Unknown hours count as 0.

    The bound is the larger of two numbers: the sum of all hours divided by the number of parallel runs, and
    the hours of the longest chain of dependencies.

    Args:
        runs: The runs, each after its dependencies.
        parallel: Number of parallel runs; None for all.
    """
    ends: dict[str, float] = {}
    for run in runs:
        start = max((ends.get(needed, 0.0) for needed in run.needs.values()), default=0.0)
        ends[run.fingerprint] = start + (run.budget.hours if run.budget else 0.0)
    over_slots = sum(run.budget.hours for run in runs if run.budget) / parallel if parallel else 0.0
    return max(over_slots, max(ends.values(), default=0.0))


class OverBudget(UserError):
    """The estimated chip-hours exceed the user's limit."""


def check_chip_hours(plan: Plan, limit: float, executor: ExecutorName, launched: str = "nothing") -> None:
    """Check that the estimated chip-hours of the remaining runs don't exceed a limit.

    The error ends with "… was launched"; `launched` is the subject of this sentence.

    Raises:
        OverBudget: The estimate exceeds the limit.
        UserError: The estimate is unknown.
    """
    runs = to_do(plan)
    where = "on this machine" if executor == "local" else f"on {executor}"
    where += " with as many chips" if executor in CLUSTERS else ""
    reasons = [
        f"the training length of {one.label} is unknown until {' and '.join(one.awaits)} have completed"
        for one in plan.waiting
    ]
    reasons += [
        f"the program {run.program} of {run.label} has no price"
        if run.price is None
        else f"no run of {run.program} has completed {where}, and the study has no TPU slice: launch "
        f"{run.label} first, without --max-chip-hours"
        for run in runs
        if run.budget is None
    ]
    if reasons:
        raise UserError(f"--max-chip-hours can't be checked: {reasons[0]}; {launched} was launched")
    amount = total(runs).chip_hours
    if amount > limit:
        raise OverBudget(
            f"the {counted(len(runs), 'run')} to do would take {units.hours(amount)} chip-hours, more than "
            f"--max-chip-hours {limit:g}: jestlab plan lists them; {launched} was launched"
        )


# ---- FLOPs by component


@dataclass(frozen=True)
class LabelCost:
    """Cost of the training runs with one label.

    Attributes:
        label: The label.
        seeds: Number of runs.
        examples: Examples seen by the learner in each run.
        step: Work per training step.
        matching: Convention → number of examples that cost as much as the whole baseline; None if the cost
            before the first example is already higher, and NaN if a dependency's cost is unknown.
        cost: Counted cost of a whole run, including the run's share of the cost of its dependencies.
        reference_training: FLOPs of all dependencies of a run, not divided among the runs that share them;
            mean over seeds; NaN if unknown, as is the run's share.
        shared_by: Number of runs of the study that share the least shared dependency; None without
            dependencies.
    """

    label: str
    seeds: int
    examples: int
    step: Step
    matching: Mapping[Convention, float | None]
    cost: Cost
    reference_training: float
    shared_by: int | None


@dataclass(frozen=True)
class CostBreakdown:
    """Cost of the runs of a study.

    Attributes:
        baseline: Label of the run whose FLOPs the others match.
        scope: FLOPs that count for the match.
        entries: Costs by label, in the order of the plan.
        left_out: Labels of runs that train nothing, or whose program has no price.
    """

    baseline: str
    scope: Scope
    entries: tuple[LabelCost, ...]
    left_out: tuple[str, ...]

    @property
    def selecting(self) -> Step | None:
        """The first step that selects, preferably with an approximate pass; None if no run selects."""
        steps = [entry.step for entry in self.entries if entry.step.super_batch_size > entry.step.batch_size]
        return min(steps, key=lambda step: step.approximate is None, default=None)


def cost_breakdown(plan: Plan, baseline: str | None = None, scope: Scope = "scoring") -> CostBreakdown:
    """Break down the cost of a study by label.

    Args:
        plan: A plan with prices.
        baseline: Label or name of the run whose FLOPs the others match; None for the first training run that
            isn't a dependency.
        scope: FLOPs that count for the match.

    Raises:
        UserError: No run trains anything, or the baseline doesn't exist.
    """
    costs.check_scope(scope)
    labels: dict[str, list[PlannedRun]] = {}
    for run in plan.runs:
        labels.setdefault(run.label, []).append(run)
    # The runs of one label differ only in their shares of dependencies.
    steps = {label: (runs[0].price, runs[0].price.step) for label, runs in labels.items() if runs[0].price}
    trained = {label: (price.examples, step) for label, (price, step) in steps.items() if step is not None}
    if not trained:
        raise UserError(f"study {plan.study.name}: no run trains anything that can be priced")
    first = _baseline([labels[label][0] for label in trained], plan.needed, baseline)
    needs = {convention: _dependencies(plan, convention) for convention in CONVENTIONS}

    def shared(label: str, convention: Convention) -> float:
        """Return the mean share of a label's runs in the FLOPs of their dependencies."""
        runs = labels[label]
        return sum(flops / n for run in runs for flops, n in needs[convention][run.fingerprint]) / len(runs)

    def matching(label: str, convention: Convention) -> float | None:
        # The cost before the first example counts only in the broadest scope, and on both sides.
        is_broadest = scope == "reference_training"
        fixed = shared(label, convention) - shared(first, convention) if is_broadest else 0.0
        (examples, spent), (_, step) = trained[first], trained[label]
        try:
            return costs.matching_examples(
                examples, spent.cost(convention), step.cost(convention), scope, fixed
            )
        except ValueError:
            return None

    entries = []
    for label, (examples, step) in trained.items():
        dependencies = [one for run in labels[label] for one in needs["counted"][run.fingerprint]]
        entries.append(
            LabelCost(
                label=label,
                seeds=len(labels[label]),
                examples=examples,
                step=step,
                matching={convention: matching(label, convention) for convention in CONVENTIONS},
                cost=replace(step.cost() * examples, reference_training=shared(label, "counted")),
                reference_training=sum(flops for flops, _ in dependencies) / len(labels[label]),
                shared_by=min((sharers for _, sharers in dependencies), default=None),
            )
        )
    left_out = tuple(label for label in labels if label not in trained)
    return CostBreakdown(first, scope, tuple(entries), left_out)


def _baseline(trained: Sequence[PlannedRun], needed: Collection[str], name: str | None) -> str:
    """Return the label of the baseline: the named one, or the first that isn't a dependency."""
    if name is None:
        return next((run for run in trained if run.name not in needed), trained[0]).label
    for run in trained:
        if any(name in (place.label, place.name) for place in run.places):
            return run.label
    raise UserError(f"no run {name!r} that trains: {nearest(name, (run.label for run in trained))}")


def _dependencies(plan: Plan, convention: Convention) -> dict[str, list[tuple[float, int]]]:
    """Return all direct and indirect dependencies of each run: its fingerprint → (FLOPs, number of sharers).

    FLOPs are NaN if unknown. The view `v_costs` computes the same shares for all runs of a store.
    """
    executed: dict[str, float] = {}
    needs: dict[str, dict[str, None]] = {}
    sharers: Counter[str] = Counter()
    for run in plan.runs:  # dependencies first
        price, step = run.price, run.price and run.price.step
        executed[run.fingerprint] = price.executed if price else math.nan
        if price and step:  # runs that train nothing cost the same by all conventions
            executed[run.fingerprint] = step.cost(convention).total("reference_scoring") * price.examples
        dependencies = dict.fromkeys(run.needs.values())
        for needed in run.needs.values():
            dependencies |= needs[needed]
        needs[run.fingerprint] = dependencies
        if price is None or price.cost.learner > 0:
            sharers.update(dependencies.keys())
    return {
        run: [(executed[one], sharers[one]) for one in dependencies] for run, dependencies in needs.items()
    }
