"""One published number: the values that its printed text can stand for, and its context.

"70.3" stands for everything that rounds to it, from 70.25 to 70.35. Intervals are calculated in fractions:
whether an end of one is within another is not a matter of float arithmetic.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

from jestlab.analysis.units import near

MINUS, CHECK, CROSS = "−", "✓", "✗"

_NUMBER = re.compile(
    r"([+\-−–])?[ \u2009\u00a0]?"  # sign
    r"([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(\.[0-9]+)?"  # before and after the point
    r" ?([KkMBT])? ?(%)?"
)
_SCALES = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_LONGEST = 40
_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Interval:
    """A closed interval from `low` to `high`."""

    low: Fraction
    high: Fraction

    @classmethod
    def exactly(cls, value: Fraction | int) -> Interval:
        """Make an interval of a single number."""
        return cls(Fraction(value), Fraction(value))

    def __add__(self, other: Interval) -> Interval:
        """Sums of a number of each."""
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        """Differences."""
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval) -> Interval:
        """Products."""
        products = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(products), max(products))

    def __truediv__(self, other: Interval) -> Interval:
        """Quotients.

        Raises:
            ZeroDivisionError: The divisor may be 0.
        """
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError("the divisor may be 0")
        return self * Interval(1 / other.high, 1 / other.low)

    def meets(self, other: Interval) -> bool:
        """Tell whether the intervals have a number in common."""
        return self.low <= other.high and other.low <= self.high

    def overlaps(self, other: Interval) -> bool:
        """Tell whether the intervals have more than one number in common: 80.4 and 80.5 share only 80.45."""
        return self.low < other.high and other.low < self.high

    def printable(self, step: Fraction) -> tuple[Fraction, Fraction]:
        """Find the least and greatest multiples of `step` that its numbers round to, halves up or down."""
        return math.ceil(self.low / step - _HALF) * step, math.floor(self.high / step + _HALF) * step

    @property
    def middle(self) -> Fraction:
        """The number that was printed."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Printed:
    """A printed number and its precision.

    Attributes:
        value: As printed: 70.3, or 13e9 of "13B".
        step: One unit of its last digit: .1, or 1e9.
    """

    value: Fraction
    step: Fraction

    @property
    def interval(self) -> Interval:
        """All numbers that round to the printed one."""
        return Interval(self.value - self.step / 2, self.value + self.step / 2)


def read_number(text: str) -> Printed:
    """Read a printed number.

    Args:
        text: Such as "70.3", "+2.8", "−11.8", "12,800", "12.8B", "45 %".

    Raises:
        ValueError: The text is not a number.
    """
    found = _NUMBER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None or not (found[2] or found[3]):
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        raise ValueError(f"{shown!r} is not a number: expected one like 70.3, +2.8, −11.8, 13B or 12.8B")
    sign, whole, decimals, letter, _ = found.groups()
    digits = Fraction((whole or "0").replace(",", "") + (decimals or ""))
    scale = _SCALES.get(letter, 1)
    step = Fraction(1, 10 ** len((decimals or ".")[1:]))
    return Printed((-digits if sign and sign != "+" else digits) * scale, step * scale)


def rounded(value: Fraction, step: Fraction) -> Fraction:
    """Round to the nearest multiple of `step`, halves away from zero, as tables do."""
    halves = int(abs(value) / step * 2)  # whole halves: an odd number of them rounds up
    return (-1 if value < 0 else 1) * ((halves + 1) // 2) * step


def show(value: Fraction, like: str) -> str:
    """Write a number as a table would print it beside another one.

    Args:
        value: In the printed unit.
        like: A printed number: its decimals, letter and sign are taken over.
    """
    printed = read_number(like)
    found = _NUMBER.fullmatch(like.strip())
    assert found is not None
    sign, _, decimals, letter, percent = found.groups()
    scale = _SCALES.get(letter, 1)
    number = rounded(value, printed.step)
    places = len((decimals or ".")[1:])
    text = f"{float(abs(number) / scale):.{places}f}{letter or ''}{percent or ''}"
    if number == 0:
        return text
    return f"{MINUS if number < 0 else '+' if sign else ''}{text}"


# ---- cells

Unit = Literal["percent", "share", "count", "flag"]
"""What a printed text counts in. Values are shares (0.703), counts (13e9), and 1 or 0 for yes or no."""


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

COUNTED = "_counted"
"""Suffix for FLOPs of own runs as counted, where they stand beside others by the paper's formula."""

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
    """Key of a cell, unique among all cells."""

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
        """Unique key of the cell."""
        return CellKey(self.source, self.table, self.position, self.quantity)

    @property
    def interval(self) -> Interval:
        """Values that would be printed this way."""
        return printed_interval(self.printed, self.unit)


def is_score(quantity: str) -> bool:
    """Tell whether a quantity is a score on a dataset, such as coco/i2t_r1."""
    return "/" in quantity


def order(quantity: str) -> tuple[int, str]:
    """Return a sort key for columns: in the order of `QUANTITIES`, unknown scores before the mean."""
    known = list(QUANTITIES)
    return (2 * known.index(quantity), "") if quantity in known else (2 * known.index(MEAN) - 1, quantity)


def check_quantity(quantity: str) -> None:
    """Raise ValueError unless a quantity is valid."""
    if quantity not in QUANTITIES and not _SCORE.fullmatch(quantity):
        hint = near(quantity, QUANTITIES) or "write dataset/metric, such as imagenet/zero_shot"
        raise ValueError(f"unknown quantity {quantity!r}: {hint}")


def unit_of(quantity: str, said: str) -> Unit:
    """Determine the unit of a quantity.

    Args:
        quantity: What a cell says.
        said: The unit that was given; empty where the quantity leaves no choice.

    Raises:
        ValueError: The unit is missing, or does not fit the quantity.
    """
    plain = _PLAIN_UNITS.get(quantity)
    possible: tuple[Unit, ...] = ("percent", "share") if plain is None else (plain,)
    if not said and plain is not None:
        return plain
    for unit in possible:
        if said == unit:
            return unit
    raise ValueError(f"{said!r} is not a unit of {quantity}: expected {' or '.join(possible)}")


def printed_value(printed: str, unit: Unit, quantity: str) -> float:
    """Convert a printed string to its value.

    Args:
        printed: The text.
        unit: What it counts in.
        quantity: What it says.

    Raises:
        ValueError: It has no value in this unit, or one out of range.
    """
    if unit == "flag":
        if printed.lower() in _YES:
            return 1.0
        if printed.lower() in _NO:
            return 0.0
        raise ValueError(f"{printed!r} is neither yes nor no: write {CHECK} or {CROSS}")
    if "%" in printed and unit != "percent":
        raise ValueError(f"{printed!r} is in percent but its unit is {unit}: change one of them")
    value = read_number(printed).value * scale(unit)
    if value < 0 and quantity != DELTA:
        raise ValueError(f"{printed!r} is negative, which {quantity} cannot be")
    if abs(value) > 1 and (is_score(quantity) or quantity in (MEAN, DELTA)):
        remedy = "use the unit percent" if unit == "share" else "expected at most 100"
        raise ValueError(f"{printed!r} in {unit} is above 100 %: {remedy}")
    return float(value)


def printed_interval(printed: str, unit: Unit) -> Interval:
    """Values that would be printed this way."""
    if unit == "flag":
        return Interval.exactly(int(printed_value(printed, unit, FILTERED)))
    return read_number(printed).interval * Interval.exactly(scale(unit))


def scale(unit: Unit) -> Fraction:
    """Return the factor from a printed number to its value."""
    return Fraction(1, 100) if unit == "percent" else Fraction(1)
