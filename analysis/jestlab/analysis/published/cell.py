"""One cell of a published table: its quantity, its printed text, and the numbers that round to that text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ..errors import RequestError, printable
from ..units import near

_NUMBER = re.compile(
    r"(?P<sign>[+\-−–])?[ \u2009\u00a0]?"
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.(?P<decimals>[0-9]+))?"
    r" ?(?P<letter>[KkMBT])? ?(?P<percent>%)?"
)
_EXPONENTS = {None: 0, "k": 3, "K": 3, "M": 6, "B": 9, "T": 12}
_LONGEST = 40  # characters of a printed number
_SLACK = 1e-9  # of a step: ends of intervals that differ by less are equal

# ---- quantities

Unit = Literal["percent", "share", "count", "flag"]
"""Unit of a printed text. Values are shares (0.703), counts (13e9), and 1 or 0 for yes or no."""

Accounting = Literal["", "iid", "jest", "flexi"]
"""Formula of the paper for a row's FLOPs per iteration; empty if unknown."""

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
"""Quantity → meaning, in the order of columns. Any other `dataset/metric` is a score too."""

_ONE_UNIT: dict[str, Unit] = {EXAMPLES: "count", FILTERED: "flag"}
"""Quantity → its only unit. All others are percent or share."""

_SCORE = re.compile(r"[^\s/,]+(?:/[^\s/,]+)+")


def is_score(quantity: str) -> bool:
    """Return whether a quantity is a score on a dataset, such as coco/i2t_r1."""
    return "/" in quantity


def order(quantity: str) -> tuple[int, str]:
    """Return a sort key for columns: in the order of `QUANTITIES`, unknown scores before the mean."""
    known = list(QUANTITIES)
    return (2 * known.index(quantity), "") if quantity in known else (2 * known.index(MEAN) - 1, quantity)


def check_quantity(quantity: str) -> str:
    """Return a quantity; raise ValueError unless it is valid."""
    if quantity not in QUANTITIES and not _SCORE.fullmatch(quantity):
        hint = near(quantity, QUANTITIES) or "write dataset/metric, such as imagenet/zero_shot"
        raise RequestError(f"unknown quantity {quantity!r}: {hint}")
    return quantity


# ---- printed numbers


@dataclass(frozen=True)
class Interval:
    """A rounded number, with the least and the greatest number that it can stand for."""

    value: float
    low: float
    high: float

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.value - other.value, self.low - other.high, self.high - other.low)

    def times(self, other: Interval) -> Interval:
        """Return the product of two intervals of nonnegative numbers."""
        return Interval(self.value * other.value, self.low * other.low, self.high * other.high)

    def over(self, other: Interval) -> Interval:
        """Return the quotient of an interval of nonnegative numbers and one of positive numbers."""
        return Interval(self.value / other.value, self.low / other.high, self.high / other.low)

    def gap(self, other: Interval) -> float:
        """Return the distance between two intervals: 0 if they share one number, negative if they overlap.

        80.4 and 80.5 share only 80.45. Differences within floating-point error count as 0.
        """
        gap = max(self.low, other.low) - min(self.high, other.high)
        width = max(self.high - self.low, other.high - other.low)
        return 0.0 if abs(gap) <= _SLACK * width else gap

    @staticmethod
    def mean(intervals: Sequence[Interval]) -> Interval:
        """Return the mean of some intervals."""
        ends = ((each.value, each.low, each.high) for each in intervals)
        return Interval(*(sum(numbers) / len(intervals) for numbers in zip(*ends, strict=True)))


def exactly(value: float) -> Interval:
    """Return the interval of a number that isn't rounded."""
    return Interval(value, value, value)


@dataclass(frozen=True)
class Printed:
    """A printed number.

    Attributes:
        value: A share, a count, or 1 or 0 for yes or no: 0.703 for "70.3" in percent, 13e9 for "13B".
        step: One unit of the last digit: 0.001 for "70.3" in percent, 1e9 for "13B"; 0 for yes or no.
        decimals: Number of digits after the decimal point.
        suffix: Letter and percent sign.
        is_signed: Whether positive numbers have a sign.
    """

    value: float
    step: float = 0.0
    decimals: int = 0
    suffix: str = ""
    is_signed: bool = False

    @property
    def interval(self) -> Interval:
        """The numbers that round to the printed one: half a unit of the last digit to either side."""
        return Interval(self.value, self.value - self.step / 2, self.value + self.step / 2)

    def write(self, value: float) -> str:
        """Write another value in the same form; halves are rounded away from zero, as in most tables."""
        steps = math.floor(abs(value) / self.step + 0.5 + _SLACK)
        sign = "" if not steps else "−" if value < 0 else "+" * self.is_signed
        return f"{sign}{steps / 10**self.decimals:.{self.decimals}f}{self.suffix}"

    def write_ends(self, interval: Interval) -> tuple[str, str]:
        """Write the least and the greatest number that an interval rounds to, halves either way."""
        low = math.ceil(interval.low / self.step - 0.5 - _SLACK)
        high = math.floor(interval.high / self.step + 0.5 + _SLACK)
        return self.write(low * self.step), self.write(high * self.step)


def read_printed(text: str, unit: Unit) -> Printed:
    """Read a printed number, such as "70.3", "+2.8", "−11.8", "12,800", "12.8B", "45 %", or "✓".

    Raises:
        ValueError: The text is not a number in this unit, or neither yes nor no.
    """
    if unit == "flag":
        if text.lower() not in ("✓", "yes", "true", "✗", "no", "false"):
            raise RequestError(f"{text!r} is neither yes nor no: write ✓ or ✗")
        return Printed(float(text.lower() in ("✓", "yes", "true")))
    match = _NUMBER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None or not (match["whole"] or match["decimals"]):
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        raise RequestError(f"{shown!r} is not a number: expected one like 70.3, +2.8, −11.8, 13B or 12.8B")
    sign, decimals, letter, percent = (
        match["sign"],
        match["decimals"] or "",
        match["letter"],
        match["percent"],
    )
    if percent and unit != "percent":
        raise RequestError(f"{text!r} is in percent but its unit is {unit}: change one of them")
    minus = "-" if sign and sign != "+" else ""
    exponent = _EXPONENTS[letter] - 2 * (unit == "percent")
    return Printed(
        value=float(f"{minus}{(match['whole'] or '0').replace(',', '')}.{decimals}e{exponent}"),
        step=float(f"1e{exponent - len(decimals)}"),
        decimals=len(decimals),
        suffix=f"{letter or ''}{percent or ''}",
        is_signed=sign is not None,
    )


# ---- cells

_Text = Annotated[str, Field(max_length=1_000), AfterValidator(printable)]
_RESERVED = ("summary", "speedups")  # names of tables of own runs


class CellKey(NamedTuple):
    """Key of a cell, unique among all cells."""

    source: str
    table: str
    position: int
    quantity: str


class PublishedCell(BaseModel):
    """A cell of a published table.

    Attributes:
        source: The publication: "Evans et al. 2024".
        table: The table in the publication: "comparison".
        position: The row, from 1.
        group: Rows that are compared with one baseline: "B", "L".
        method: The trained method: "JEST++".
        variant: Variant of the method: "B", "L", "B/32".
        data: Training data.
        citation: Citation of the method in words: "Radford et al. 2021".
        citation_key: BibTeX key of the citation.
        ours: Whether the source marks the row as its authors' method.
        baseline: Whether the row is the baseline of its group.
        accounting: Formula of the row's FLOPs per iteration.
        quantity: A key of `QUANTITIES`, or `dataset/metric`.
        printed: The text exactly as printed, without TeX; a minus is "−".
        value: The text as a number: a share for percent and share, a count, 1 or 0. It may have more digits
            than are printed. By default, the number that is printed.
        unit: Unit of the printed text; by default the only one of the quantity.
        bold: Whether the cell is printed in bold.
        note: Limits of comparing the row with others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    source: _Text
    table: _Text
    position: Annotated[int, Field(ge=1, le=99_999)]
    group: _Text = ""
    method: _Text
    variant: _Text = ""
    data: _Text = ""
    citation: _Text = ""
    citation_key: _Text = ""
    ours: bool = False
    baseline: bool = False
    accounting: Accounting = ""
    quantity: Annotated[_Text, AfterValidator(check_quantity)]
    printed: _Text
    value: float
    unit: Unit
    bold: bool = False
    note: _Text = ""

    @property
    def key(self) -> CellKey:
        """Unique key of the cell."""
        return CellKey(self.source, self.table, self.position, self.quantity)

    @property
    def number(self) -> Printed:
        """The printed text as a number."""
        return read_printed(self.printed, self.unit)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add the unit and the value if they are missing. Empty texts are the same as missing ones."""
        given = {column: value for column, value in given.items() if value != ""}
        unit = given.setdefault("unit", _ONE_UNIT.get(given.get("quantity", "")))
        if unit is None:
            raise RequestError("unit: missing, expected percent or share")
        if "value" not in given and isinstance(printed := given.get("printed"), str):
            given["value"] = read_printed(printed, unit).value
        return given

    @model_validator(mode="after")
    def _check(self) -> PublishedCell:
        shown, number = f"{self.printed!r} in {self.unit}", self.number
        if self.table in _RESERVED:
            raise RequestError(f"table: {self.table!r} is reserved for own runs, choose another name")
        if self.unit not in ((one,) if (one := _ONE_UNIT.get(self.quantity)) else ("percent", "share")):
            raise RequestError(f"unit: {self.unit} is not a unit of {self.quantity}")
        if number.value < 0 and self.quantity != DELTA:
            raise RequestError(f"printed: {shown} is negative, which {self.quantity} cannot be")
        if abs(number.value) > 1 and (is_score(self.quantity) or self.quantity in (MEAN, DELTA)):
            raise RequestError(f"printed: {shown} is above 100 %: check the unit")
        may = number.interval
        if may.gap(exactly(self.value)) > 1e-12 * abs(self.value):
            raise RequestError(f"value: {self.value} isn't from {may.low:g} to {may.high:g}, as {shown} is")
        return self
