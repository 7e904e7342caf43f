"""Efforts of runs: examples, FLOPs, seconds, and chip-hours; their names and units."""

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
"""Horizontal axes of learning curves."""

OVERS: tuple[Over, ...] = get_args(Over)

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
        less: Whether to write "less" instead of "fewer".
    """

    name: str
    axis: str
    header: str
    fewer: str
    amount: str
    less: bool = False


WORDS: dict[Effort, Words] = {
    "examples_seen": Words("examples", "examples seen", "examples", "fewer examples", "examples"),
    "flops": Words("flops", "training FLOPs", "{unit}", "fewer FLOPs", "FLOPs"),
    "seconds": Words("seconds", "training time", "time ({unit})", "less time", "training time", less=True),
    "chip_hours": Words(
        "chip_hours", "chip-hours of training", "chip-hours", "fewer chip-hours", "chip-hours"
    ),
}


def known(rows: pd.DataFrame) -> list[Effort]:
    """List the efforts that are known for any row; chip-hours only if they aren't just the seconds.

    Args:
        rows: Frame with columns of `EFFORTS`.
    """
    efforts = [effort for effort in EFFORTS if effort in rows and bool(rows[effort].notna().any())]
    if "chip_hours" in efforts and "seconds" in efforts:
        chips = 3600 * (rows["chip_hours"] / rows["seconds"]).dropna()
        if chips.empty or chips.max() <= 1 + 1e-9:  # a process without accelerators counts as one chip
            efforts.remove("chip_hours")
    return efforts


def cost_of(rows: pd.DataFrame) -> Effort:
    """Choose the default effort to compare runs by: FLOPs, else seconds, else examples, if any are spent."""
    spent = [effort for effort in known(rows) if rows[effort].max() > 0]
    return next((effort for effort in ("flops", "seconds", "examples_seen") if effort in spent), "flops")


def unit(effort: Effort, values: pd.Series[float]) -> tuple[float, str]:
    """Choose one unit for a column or an axis.

    Args:
        effort: The effort.
        values: Amounts; NaN is ignored.

    Returns:
        The divisor, and the unit's name, which is empty for a count.
    """
    if effort == "flops":
        return units.flops_unit(values)
    if effort == "seconds":
        return units.seconds_unit(values)
    return 1.0, ""


def writer(effort: Effort, divisor: float) -> Callable[[float], str]:
    """Return a function that writes an amount, without the name of its unit.

    Args:
        effort: The effort.
        divisor: As returned by `unit`.
    """
    if effort == "examples_seen":
        return units.count
    if effort == "chip_hours":
        return units.hours
    return lambda amount: units.significant(amount / divisor)
