"""What runs spend until they reach a score: examples, FLOPs, seconds, chip-hours; in words and units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from . import units

if TYPE_CHECKING:
    import pandas as pd

Effort = Literal["examples_seen", "flops", "seconds", "chip_hours"]
"""Columns of `curves.score_curves`; seconds are those of training, and chip-hours chips × these."""

EFFORTS: tuple[Effort, ...] = get_args(Effort)

Over = Literal["examples_seen", "flops", "seconds", "chip_hours", "steps"]
"""What learning curves may be drawn over."""

OVERS: tuple[Over, ...] = get_args(Over)

MEASURED: tuple[Effort, ...] = ("seconds", "chip_hours")
"""Efforts that two runs of one config differ in."""


@dataclass(frozen=True)
class Words:
    """An effort in words.

    Attributes:
        name: In columns of tables, `fewer_<name>`.
        axis: On an axis, without its unit.
        fewer: Over a column of factors.
        amount: What a factor is of: "2.0× fewer examples".
        less: Whether it is "less" and not "fewer".
    """

    name: str
    axis: str
    fewer: str
    amount: str
    less: bool = False


WORDS: dict[Effort, Words] = {
    "examples_seen": Words("examples", "examples seen", "fewer examples", "examples"),
    "flops": Words("flops", "training FLOPs", "fewer FLOPs", "FLOPs"),
    "seconds": Words("seconds", "training time", "less time", "training time", less=True),
    "chip_hours": Words("chip_hours", "chip-hours of training", "fewer chip-hours", "chip-hours"),
}


def known(rows: pd.DataFrame) -> list[Effort]:
    """List the efforts that are known of any row; chip-hours only where they say more than seconds.

    Args:
        rows: With the columns of `EFFORTS`.
    """
    found = [effort for effort in EFFORTS if effort in rows and bool(rows[effort].notna().any())]
    if "chip_hours" in found and "seconds" in found:
        chips = (rows["chip_hours"] / rows["seconds"]).dropna()
        # One process on this machine is one chip: then chip-hours are the seconds once more.
        if chips.empty or 3600 * chips.max() <= 1 + 1e-9:
            found.remove("chip_hours")
    return found


def cost_of(rows: pd.DataFrame) -> Effort:
    """Choose the default effort to compare runs by: FLOPs, else seconds, else examples, if any are spent."""
    there = [effort for effort in known(rows) if rows[effort].max() > 0]
    return next((effort for effort in ("flops", "seconds", "examples_seen") if effort in there), "flops")


def unit(effort: Effort, values: pd.Series[float]) -> tuple[float, str]:
    """Choose one unit for a column or an axis.

    Args:
        effort: What it holds.
        values: NaN is passed over.

    Returns:
        What to divide by, and the unit's name; empty for a plain count.
    """
    if effort == "flops":
        return units.flops_unit(values)
    if effort == "seconds":
        return units.seconds_unit(values)
    return 1.0, ""


def writer(effort: Effort, divisor: float) -> Callable[[float], str]:
    """Return what writes an amount in a unit from `unit`, without its name."""
    if effort == "examples_seen":
        return units.count
    if effort == "chip_hours":
        return units.hours
    return lambda amount: units.significant(amount / divisor)
