"""What planned runs will occupy: chip-hours and money on TPUs, hours on this machine.

On a TPU slice a run's FLOPs are divided by an assumed share of the slice's peak. On this machine nobody knows
a peak: there it is what earlier runs of the same program took that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jestlab.analysis import costs, units
from jestlab.platform.errors import UserError
from jestlab.platform.plan import Action, Budget, Plan, PlannedRun

if TYPE_CHECKING:
    from jestlab.platform.settings import Settings
    from jestlab.platform.store.records import Speed
    from jestlab.platform.store.store import Store
    from jestlab.platform.tpu import Slice

HERE = "local"
"""The chip of runs on this machine, whatever that computes on. Each run counts as one."""


@dataclass(frozen=True)
class Sum:
    """What several runs will occupy together.

    Attributes:
        chip_hours: Of those whose budget is known.
        dollars: Of those with a known price; None if there is none.
        unknown: Runs without a budget.
    """

    chip_hours: float
    dollars: float | None
    unknown: int


def budgeted(plan: Plan, store: Store | None, *, local: bool) -> Plan:
    """The plan with what each run will occupy, as far as that is known.

    Args:
        plan: Priced.
        store: Where earlier runs are; None where there is none. It is asked for runs on this machine alone.
        local: Whether runs go to this machine, else to the study's TPU slice.

    Raises:
        UserError: The user's settings cannot be read.
    """
    if local:
        if store is None:
            return on_this_machine(plan, {})
        from jestlab.platform.store.spending import speeds

        return on_this_machine(plan, speeds(store, (run.program for run in plan.runs)))
    if plan.study.resources.tpu is None:
        return plan
    from jestlab.platform import tpu
    from jestlab.platform.settings import Settings

    return on_tpu(plan, tpu.parse(plan.study.resources.tpu), Settings.find())


def on_tpu(plan: Plan, slice_: Slice, settings: Settings) -> Plan:
    """The plan with what each run will occupy on a TPU slice.

    Args:
        plan: Priced.
        slice_: What each run computes on.
        settings: Prices, and the share of the peak that is assumed.
    """
    chip = slice_.type
    share = utilisation(settings, chip.name)
    price = settings.prices.get(chip.name)

    def budget(run: PlannedRun) -> Budget | None:
        if run.price is None:
            return None
        chip_hours = costs.chip_hours(run.price.executed, chip.peak_flops, share)
        dollars = None if price is None else costs.dollars(chip_hours, price)
        return Budget(chip.name, slice_.chips, chip_hours, dollars)

    return _with(plan, budget)


def utilisation(settings: Settings, chip: str) -> float:
    """Share of a TPU type's peak that is assumed: the user's, else `costs.ASSUMED_UTILISATION`."""
    return settings.utilisation.get(chip, costs.ASSUMED_UTILISATION)


def on_this_machine(plan: Plan, speeds: Mapping[str, Speed]) -> Plan:
    """The plan with how long each run will take here, as far as runs of its program have been measured.

    Args:
        plan: Priced.
        speeds: By program.
    """

    def budget(run: PlannedRun) -> Budget | None:
        speed = speeds.get(run.program)
        if run.price is None or (speed is None and run.price.executed):
            return None
        by_runs = 0 if speed is None else speed.runs
        if speed is None or not run.price.executed:  # it computes nothing: a checkpoint that is taken in
            return Budget(HERE, 1, 0.0, by_runs=by_runs)
        return Budget(HERE, 1, speed.hours(run.price.executed), by_runs=by_runs)

    return _with(plan, budget)


def _with(plan: Plan, budget: Callable[[PlannedRun], Budget | None]) -> Plan:
    runs = tuple(replace(run, budget=budget(run)) for run in plan.runs)
    return replace(plan, runs=runs, parts=tuple(_with(part, budget) for part in plan.parts))


def total(runs: Sequence[PlannedRun]) -> Sum:
    """What runs will occupy together, as far as it is known."""
    budgets = [run.budget for run in runs if run.budget is not None]
    paid = [budget.dollars for budget in budgets if budget.dollars is not None]
    return Sum(
        chip_hours=sum(budget.chip_hours for budget in budgets),
        dollars=sum(paid) if paid else None,
        unknown=len(runs) - len(budgets),
    )


def done(plan: Plan) -> list[PlannedRun]:
    """The runs that are completed."""
    return [run for run in plan.runs if run.action is Action.DONE]


def to_do(plan: Plan) -> list[PlannedRun]:
    """The runs that a launch starts or resumes, each counted from its start."""
    return [run for run in plan.runs if run.action is not Action.DONE]


def wall_hours(runs: Sequence[PlannedRun], parallel: int | None) -> float:
    """At least how long runs take together.

    Args:
        runs: Needed ones first; what is not known counts nothing.
        parallel: How many at a time; None for all.

    Returns:
        Hours: their sum over the places, or those of the longest chain of runs that need each other.
    """
    ends: dict[str, float] = {}
    for run in runs:
        begin = max((ends.get(needed, 0.0) for needed in run.needs.values()), default=0.0)
        ends[run.fingerprint] = begin + (run.budget.hours if run.budget else 0.0)
    together = sum(run.budget.hours for run in runs if run.budget) / parallel if parallel else 0.0
    return max(together, max(ends.values(), default=0.0))


def refuse_above(plan: Plan, most: float) -> None:
    """Raise unless the runs that are still to do take at most so many chip-hours.

    Args:
        plan: With states and budgets.
        most: Chip-hours.

    Raises:
        UserError: They take more, or nobody knows what they take.
    """
    runs = to_do(plan)
    for run in runs:
        if run.budget is None:
            raise UserError(f"--max-chip-hours cannot be kept: {_unknown(run)}; nothing was launched")
    amount = total(runs).chip_hours
    if amount > most:
        dearest = sorted(runs, key=_chip_hours, reverse=True)[:3]
        named = ", ".join(f"{_shown(run)} {units.hours(_chip_hours(run))}" for run in dearest)
        raise UserError(
            f"the {len(runs)} run{'s' if len(runs) != 1 else ''} to do would take {units.hours(amount)} "
            f"chip-hours, more than --max-chip-hours {most:g} (the most: {named}); nothing was launched"
        )


def _unknown(run: PlannedRun) -> str:
    """Why nobody knows what a run takes."""
    if run.price is None:
        return f"the cost of {_shown(run)} is not known, its program {run.program} names no price"
    return (
        f"how long {_shown(run)} takes cannot be known here, no run of {run.program} has completed on this "
        "machine and the study names no TPU slice"
    )


def _shown(run: PlannedRun) -> str:
    return f"{run.label} seed {run.seed}"


def _chip_hours(run: PlannedRun) -> float:
    return run.budget.chip_hours if run.budget else 0.0
