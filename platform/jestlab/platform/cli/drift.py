"""Predicted against actual cost, as people see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from jestlab.platform.store.states import RunState

if TYPE_CHECKING:
    from jestlab.platform.store.records import Spending


@dataclass(frozen=True)
class Column:
    """A kind of cost.

    Attributes:
        title: Its name.
        planned: What was expected of a run.
        actual: What was spent on it.
        shown: An amount as text.
    """

    title: str
    planned: Callable[[Spending], float | None]
    actual: Callable[[Spending], float | None]
    shown: Callable[[float], str]


def columns(costs: Iterable[Spending]) -> list[Column]:
    """The kinds of cost of which both sides are known for some run."""
    there = list(costs)
    return [column for column in _every() if any(_both(column, cost) for cost in there)]


def _every() -> list[Column]:
    from jestlab.analysis import units

    return [
        Column("FLOPs", lambda cost: cost.total_flops, lambda cost: cost.actual_flops, units.flops),
        Column(
            "chip-hours",
            lambda cost: None if cost.is_local else cost.planned_chip_hours,
            lambda cost: cost.actual_chip_hours,
            units.hours,
        ),
        Column(
            "hours",
            lambda cost: cost.planned_chip_hours if cost.is_local else None,
            lambda cost: cost.actual_hours,
            units.hours,
        ),
        Column("$", lambda cost: cost.planned_dollars, lambda cost: cost.actual_dollars, units.dollars),
    ]


def headers(columns: Sequence[Column]) -> list[str]:
    """Of three columns for each kind of cost."""
    return [part for column in columns for part in (column.title, "planned", "drift")]


def cells(columns: Sequence[Column], cost: Spending, state: RunState) -> list[str]:
    """Of a run, under these headers."""
    found = []
    for column in columns:
        actual, planned = column.actual(cost), column.planned(cost)
        found += [
            column.shown(actual) if actual is not None else "",
            column.shown(planned) if planned is not None else "",
            _ratio(actual, planned, state == RunState.COMPLETED),
        ]
    return found


def summary(costs: Sequence[Spending]) -> str:
    """One line on completed runs: "3 runs completed, …: 1.2 EFLOP of 1.2 EFLOP (× 1.00), …"."""
    parts = []
    for column in columns(costs):
        pairs = [pair for cost in costs if (pair := _both(column, cost)) is not None]
        actual, planned = (sum(side) for side in zip(*pairs, strict=True))
        parts.append(f"{_amounts(column, actual, planned)} ({_ratio(actual, planned, True)})")
    count = f"{len(costs)} run{'s' if len(costs) != 1 else ''}"
    return f"{count} completed, cost of what was planned: {', '.join(parts)}" if parts else ""


def so_far(costs: Sequence[Spending]) -> str:
    """One line on runs whatever their state: "1.20 EFLOP of 4.8 EFLOP, 25%; 3.10 of 12.4 chip-hours, 25%"."""
    parts = []
    for column in _every():
        known = [cost for cost in costs if column.planned(cost)]
        planned = sum(column.planned(cost) or 0.0 for cost in known)
        actual = sum(column.actual(cost) or 0.0 for cost in known)
        if planned:
            parts.append(f"{_amounts(column, actual, planned)}, {actual / planned:.0%}")
    return "; ".join(parts)


def _amounts(column: Column, actual: float, planned: float) -> str:
    unit = f" {column.title}" if column.title.endswith("hours") else ""
    return f"{column.shown(actual)} of {column.shown(planned)}{unit}"


def as_data(cost: Spending) -> dict[str, Any]:
    """For a program."""
    return {**asdict(cost), "actual_dollars": cost.actual_dollars}


def _both(column: Column, cost: Spending) -> tuple[float, float] | None:
    actual, planned = column.actual(cost), column.planned(cost)
    return (actual, planned) if actual is not None and planned else None


def _ratio(actual: float | None, planned: float | None, is_over: bool) -> str:
    """Actual over planned; nothing while the run goes on within its plan."""
    if actual is None or not planned or (actual <= planned and not is_over):
        return ""
    return f"× {actual / planned:.2f}"
