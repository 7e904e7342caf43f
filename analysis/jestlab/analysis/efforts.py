"""Efforts of runs: examples, FLOPs, seconds, and chip-hours; their names and units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from . import units

if TYPE_CHECKING:
    import pandas as pd

Effort = Literal["examples_seen", "flops", "seconds", "chip_hours"]
"""Columns of `curves.score_curves`: `seconds` is the training time, and `chip_hours` that time × chips."""

EFFORTS: tuple[Effort, ...] = get_args(Effort)

Over = Literal["examples_seen", "flops", "seconds", "chip_hours", "steps"]
"""Horizontal axes of learning curves."""

MEASURED: tuple[Effort, ...] = ("seconds", "chip_hours")
"""Efforts that differ between two runs of one config."""


@dataclass(frozen=True)
class Words:
    """Names of an effort.

    Attributes:
        name: In names of columns, such as `fewer_<name>`.
        axis: Label of an axis, without unit.
        header: Heading of a column, with a place for the unit.
        fewer: Heading of a column of factors.
        amount: In sentences: "2.0× fewer examples".
    """

    name: str
    axis: str
    header: str
    fewer: str
    amount: str


WORDS: dict[Effort, Words] = {
    "examples_seen": Words("examples", "examples seen", "examples", "fewer examples", "examples"),
    "flops": Words("flops", "training FLOPs", "{unit}", "fewer FLOPs", "FLOPs"),
    "seconds": Words("seconds", "training time", "time ({unit})", "less time", "training time"),
    "chip_hours": Words(
        "chip_hours", "chip-hours of training", "chip-hours", "fewer chip-hours", "chip-hours"
    ),
}


def known(rows: pd.DataFrame) -> list[Effort]:
    """List the efforts that are known for any row; chip-hours only if a run used more than one chip."""
    efforts = [effort for effort in EFFORTS if effort in rows and bool(rows[effort].notna().any())]
    if "chip_hours" in efforts and "seconds" in efforts:
        chips = 3600 * (rows["chip_hours"] / rows["seconds"]).dropna()
        if chips.empty or chips.max() <= 1 + 1e-9:  # a process without accelerators counts as one chip
            efforts.remove("chip_hours")
    return efforts


def cost_of(rows: pd.DataFrame) -> Effort:
    """Choose the default effort to compare runs by: the first of FLOPs, seconds, and examples above 0."""
    spent = [effort for effort in known(rows) if rows[effort].max() > 0]
    return next((effort for effort in ("flops", "seconds", "examples_seen") if effort in spent), "flops")


def unit(effort: Effort, values: pd.Series[float]) -> tuple[float, str]:
    """Choose one unit for a column or an axis: its divisor, and its name, which is empty for a count."""
    choose = {"flops": units.flops_unit, "seconds": units.seconds_unit}.get(effort)
    return choose(values) if choose else (1.0, "")


def writer(effort: Effort, divisor: float) -> Callable[[float], str]:
    """Return a function that writes an amount in the unit with this divisor, without the unit's name."""
    write = {"examples_seen": units.count, "chip_hours": units.hours}.get(effort, units.significant)
    return lambda amount: write(amount / divisor)
