"""One published number, with all that is needed to set it beside others."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

from jestlab.analysis.published.rounding import CHECK, CROSS, Interval, read_number

Unit = Literal["percent", "share", "count", "flag"]
"""What a printed text counts in. Values are shares (0.703), counts (13e9), and 1 or 0 for yes or no."""

UNITS: tuple[Unit, ...] = get_args(Unit)

Accounting = Literal["", "iid", "jest", "flexi"]
"""How a row's FLOPs per iteration come about: by a formula of the paper; empty: the figure is as it is."""

ACCOUNTINGS: tuple[Accounting, ...] = get_args(Accounting)

EXAMPLES, PER_ITERATION, TOTAL, DELTA, MEAN, FILTERED = (
    "examples_seen",
    "flops_per_iteration",
    "flops_total",
    "mean_delta",
    "mean",
    "filtered",
)

QUANTITIES: dict[str, str] = {
    EXAMPLES: "examples that the learner trained on",
    FILTERED: "whether the training data had been filtered: yes or no",
    PER_ITERATION: "FLOPs of an iteration, over those of the baseline",
    TOTAL: "FLOPs of the training, over those of the baseline",
    DELTA: "mean over all scores that row and baseline have, of the row's minus the baseline's",
    "imagenet/10_shot": "ImageNet-1K, 10-shot accuracy",
    "imagenet/zero_shot": "ImageNet-1K, zero-shot accuracy",
    "coco/i2t_r1": "COCO, image-to-text recall at 1",
    "coco/t2i_r1": "COCO, text-to-image recall at 1",
    "coco/mean_r1": "COCO, mean of both directions",
    "birds/10_shot": "CUB birds, 10-shot accuracy",
    "caltech/10_shot": "Caltech, 10-shot accuracy",
    "cars/10_shot": "Stanford cars, 10-shot accuracy",
    "pets/10_shot": "Oxford-IIIT pets, 10-shot accuracy",
    MEAN: "mean over all scores of the row",
}
"""Quantity → meaning, in the order of columns. A score that is not here is `dataset/metric` as well."""

_PLAIN_UNITS: dict[str, Unit] = {EXAMPLES: "count", FILTERED: "flag"}
"""Units that need not be said."""

_SCORE = re.compile(r"[^\s/,]+(?:/[^\s/,]+)+")
_YES, _NO = (CHECK, "yes", "true"), (CROSS, "no", "false")


class CellKey(NamedTuple):
    """Which cell: no two have the same."""

    source: str
    table: str
    position: int
    quantity: str


@dataclass(frozen=True)
class PublishedCell:
    """A cell of a published table.

    Attributes:
        source: Where it is published: "Evans et al. 2024".
        table: The table there: "comparison".
        position: The row, from 1.
        method: What was trained: "JEST++".
        quantity: What the cell says: a key of `QUANTITIES`, or `dataset/metric`.
        printed: Exactly what is printed, free of TeX; a minus is "−".
        unit: What the printed text counts in.
        value: In numbers: a share for percent and share, a count, 1 or 0.
        group: Rows that are compared with one baseline: "B", "L".
        variant: Of the method: "B", "L", "B/32".
        data: What it was trained on.
        citation: Whose method it is, as people write it: "Radford et al. 2021".
        citation_key: The same as BibTeX has it.
        ours: Whether the source marks the row as its authors' own.
        baseline: Whether the row is what its group is compared with.
        accounting: How the row's FLOPs per iteration come about.
        bold: Whether the cell is bold.
        note: What to know before comparing the row with others.
    """

    source: str
    table: str
    position: int
    method: str
    quantity: str
    printed: str
    unit: Unit
    value: float
    group: str = ""
    variant: str = ""
    data: str = ""
    citation: str = ""
    citation_key: str = ""
    ours: bool = False
    baseline: bool = False
    accounting: Accounting = ""
    bold: bool = False
    note: str = ""

    @property
    def key(self) -> CellKey:
        """Which cell it is."""
        return CellKey(self.source, self.table, self.position, self.quantity)

    @property
    def interval(self) -> Interval:
        """Values that would be printed so."""
        return printed_interval(self.printed, self.unit)


def is_score(quantity: str) -> bool:
    """Whether a quantity is a score on a dataset, such as coco/i2t_r1."""
    return "/" in quantity


def order(quantity: str) -> tuple[int, str]:
    """Where a quantity's column stands among others: as in `QUANTITIES`, unknown scores before the mean."""
    known = list(QUANTITIES)
    return (2 * known.index(quantity), "") if quantity in known else (2 * known.index(MEAN) - 1, quantity)


def check_quantity(quantity: str) -> None:
    """Raise ValueError, with the remedy, unless cells can say such a thing."""
    if quantity in QUANTITIES or _SCORE.fullmatch(quantity):
        return
    near = difflib.get_close_matches(quantity, QUANTITIES, n=1, cutoff=0.6)
    meant = f"did you mean {near[0]!r}?" if near else "write dataset/metric, such as imagenet/zero_shot"
    raise ValueError(f"{quantity!r} is no quantity: {meant}")


def unit_of(quantity: str, said: str) -> Unit:
    """The unit of a quantity.

    Args:
        quantity: What a cell says.
        said: The unit that was given; empty where the quantity leaves no choice.

    Raises:
        ValueError: None was given and there is a choice, or it is not one of this quantity's.
    """
    plain = _PLAIN_UNITS.get(quantity)
    possible: tuple[Unit, ...] = ("percent", "share") if plain is None else (plain,)
    if not said and plain is not None:
        return plain
    for unit in possible:
        if said == unit:
            return unit
    raise ValueError(f"{said!r} is no unit of {quantity}: write {' or '.join(possible)}")


def printed_value(printed: str, unit: Unit, quantity: str) -> float:
    """What a printed text says in numbers.

    Args:
        printed: The text.
        unit: What it counts in.
        quantity: What it says.

    Raises:
        ValueError: It says nothing in this unit, or more than there can be.
    """
    if unit == "flag":
        if printed.lower() in _YES:
            return 1.0
        if printed.lower() in _NO:
            return 0.0
        raise ValueError(f"{printed!r} is neither yes nor no: write {CHECK} or {CROSS}")
    if "%" in printed and unit != "percent":
        raise ValueError(f"{printed!r} is in percent, its unit is {unit}: make them one")
    value = read_number(printed).value * scale(unit)
    if value < 0 and quantity != DELTA:
        raise ValueError(f"{printed!r} is negative, which {quantity} cannot be")
    if abs(value) > 1 and (is_score(quantity) or quantity in (MEAN, DELTA)):
        remedy = "its unit is percent" if unit == "share" else "percent go to 100"
        raise ValueError(f"{printed!r} in {unit} is more than all: {remedy}")
    return float(value)


def printed_interval(printed: str, unit: Unit) -> Interval:
    """Values that would be printed so."""
    if unit == "flag":
        return Interval.exactly(int(printed_value(printed, unit, FILTERED)))
    return read_number(printed).interval * Interval.exactly(scale(unit))


def scale(unit: Unit) -> Fraction:
    """What a printed number is multiplied by to be a value."""
    return Fraction(1, 100) if unit == "percent" else Fraction(1)
