"""One cell of a published table: quantity, printed text, and the parsed number."""

import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ..errors import RequestError, printable, shown
from ..units import near

_NUMBER = re.compile(r"([+\-−–]?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.([0-9]+))?([KMBT]?)")
_EXPONENTS = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}
_LONGEST = 40  # characters of a printed number

# ---- quantities

Unit = Literal["percent", "share", "count", "flag"]
"""Unit of a printed text. Values are shares (0.703), counts (13e9), and 1 or 0 for yes or no."""

Accounting = Literal["", "iid", "jest", "flexi"]
"""The paper's formula for the FLOPs per iteration of a row; empty if unknown."""

EXAMPLES = "examples_seen"
FILTERED = "filtered"
PER_ITERATION = "flops_per_iteration"
TOTAL = "flops_total"
DELTA = "mean_delta"
MEAN = "mean"

QUANTITIES: dict[str, str] = {
    EXAMPLES: "examples that the learner trained on",
    FILTERED: "whether the training data had been filtered: yes or no",
    PER_ITERATION: "FLOPs of an iteration, divided by those of the baseline",
    TOTAL: "FLOPs of the training, divided by those of the baseline",
    DELTA: "mean difference to the baseline, over all scores that both rows have",
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
"""Quantity → meaning, in the order of columns. Every other `dataset/metric` is a score too."""

_ONE_UNIT: dict[str, Unit] = {EXAMPLES: "count", FILTERED: "flag"}
"""Quantity → its only unit. All other quantities are in percent or share."""


def is_score(quantity: str) -> bool:
    """Return whether a quantity is a score on a dataset, such as coco/i2t_r1."""
    return "/" in quantity


def order(quantity: str) -> tuple[int, str]:
    """Return a sort key for columns: the order of `QUANTITIES`, with unknown scores before the mean."""
    known = list(QUANTITIES)
    return (2 * known.index(quantity), "") if quantity in known else (2 * known.index(MEAN) - 1, quantity)


def _known_quantity(quantity: str) -> str:
    if quantity not in QUANTITIES and not re.fullmatch(r"[^\s/,]+(/[^\s/,]+)+", quantity):
        hint = near(quantity, QUANTITIES) or "write dataset/metric, such as imagenet/zero_shot"
        raise RequestError(f"unknown quantity {quantity!r}: {hint}")
    return quantity


# ---- printed numbers


def read_printed(text: str, unit: Unit) -> tuple[float, float]:
    """Read a printed number, such as "70.3", "+2.8", "−11.8", "12,800", "12.8B", or "✓".

    Returns:
        The value: a share, a count, or 1 for yes and 0 for no; and one unit of its last digit, or 0 for yes
        or no. "70.3" in percent is (0.703, 0.001), and "13B" is (13e9, 1e9).

    Raises:
        ValueError: The text is not a number, or, for a flag, neither yes nor no.
    """
    if unit == "flag":
        if text not in ("✓", "yes", "✗", "no"):
            raise RequestError(f"{text!r} is neither yes nor no: write ✓ or ✗")
        return float(text in ("✓", "yes")), 0.0
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise RequestError(f"{shown(text)} is not a number: expected one like 70.3, +2.8, −11.8 or 12.8B")
    sign, whole, decimals, letter = match.groups("")
    exponent = _EXPONENTS[letter] - 2 * (unit == "percent")
    minus = "-" if sign not in ("", "+") else ""
    value = float(f"{minus}{whole.replace(',', '')}.{decimals}e{exponent}")
    return value, float(f"1e{exponent - len(decimals)}")


# ---- cells

_Text = Annotated[str, Field(max_length=1_000), AfterValidator(printable)]


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
        citation: Citation of the method in words: "Radford et al. 2021".
        ours: Whether the source marks the row as its authors' method.
        baseline: Whether the row is the baseline of its group.
        quantity: A key of `QUANTITIES`, or `dataset/metric`.
        printed: The text exactly as printed, without TeX; a minus is "−".
        value: The text as a number: a share (for percent and share), a count, or 1 or 0. It may have more
            digits than the text. By default, the printed number.
        unit: Unit of the printed text; by default the quantity's only unit, if it has just one.
        note: Why the row is hard to compare with others. A note that starts with ‡ is about this cell:
            tables mark the cell, and show the note below.
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
    quantity: Annotated[_Text, AfterValidator(_known_quantity)]
    printed: _Text
    value: float
    unit: Unit
    bold: bool = False
    note: _Text = ""

    @property
    def key(self) -> CellKey:
        """Unique key of the cell."""
        return CellKey(self.source, self.table, self.position, self.quantity)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add the unit and the value if they are missing. Empty texts are the same as missing ones."""
        given = {column: value for column, value in given.items() if value != ""}
        unit = given.setdefault("unit", _ONE_UNIT.get(given.get("quantity", "")))
        if unit is None:
            raise RequestError("unit: missing, expected percent or share")
        if "value" not in given and isinstance(printed := given.get("printed"), str):
            given["value"] = read_printed(printed, unit)[0]
        return given

    @model_validator(mode="after")
    def _check(self) -> "PublishedCell":
        (value, step), written = read_printed(self.printed, self.unit), f"{self.printed!r} in {self.unit}"
        if self.table in ("summary", "speedups"):
            raise RequestError(f"table: {self.table!r} is reserved for own runs, choose another name")
        if self.unit not in ((one,) if (one := _ONE_UNIT.get(self.quantity)) else ("percent", "share")):
            raise RequestError(f"unit: {self.unit} is not a unit of {self.quantity}")
        if value < 0 and self.quantity != DELTA:
            raise RequestError(f"printed: {written} is negative, which {self.quantity} cannot be")
        if abs(value) > 1 and (is_score(self.quantity) or self.quantity in (MEAN, DELTA)):
            raise RequestError(f"printed: {written} is above 100 %: check the unit")
        low, high = value - step / 2, value + step / 2
        slack = 1e-9 * step  # for floating-point errors
        if not low - slack <= self.value <= high + slack:
            raise RequestError(f"value: {self.value} isn't from {low:g} to {high:g}, as {written} requires")
        return self
