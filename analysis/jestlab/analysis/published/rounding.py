"""What a printed number can stand for: "70.3" for everything that rounds to it, from 70.25 to 70.35.

Calculated in fractions: whether an end of one interval is within another is not a matter of float arithmetic.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

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
    """Everything from `low` to `high`, both included."""

    low: Fraction
    high: Fraction

    @classmethod
    def exactly(cls, value: Fraction | int) -> Interval:
        """One number alone."""
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
        """Whether they have a number in common."""
        return self.low <= other.high and other.low <= self.high

    def overlaps(self, other: Interval) -> bool:
        """Whether they have more than one number in common: 80.4 and 80.5 share 80.45, and no more."""
        return self.low < other.high and other.low < self.high

    def printable(self, step: Fraction) -> tuple[Fraction, Fraction]:
        """The least and the greatest multiple of `step` that they may round to, halves up or down."""
        return math.ceil(self.low / step - _HALF) * step, math.floor(self.high / step + _HALF) * step

    @property
    def middle(self) -> Fraction:
        """The number that was printed."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Printed:
    """A printed number.

    Attributes:
        value: As printed: 70.3, or 13e9 of "13B".
        step: One unit of its last digit: .1, or 1e9.
    """

    value: Fraction
    step: Fraction

    @property
    def interval(self) -> Interval:
        """All that rounds to it."""
        return Interval(self.value - self.step / 2, self.value + self.step / 2)


def read_number(text: str) -> Printed:
    """Read a printed number.

    Args:
        text: Such as "70.3", "+2.8", "−11.8", "12,800", "12.8B", "45 %".

    Raises:
        ValueError: It is none.
    """
    found = _NUMBER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None or not (found[2] or found[3]):
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        raise ValueError(f"{shown!r} is no printed number: write it as in 70.3, +2.8, −11.8, 13B or 12.8B")
    sign, whole, decimals, letter, _ = found.groups()
    digits = Fraction((whole or "0").replace(",", "") + (decimals or ""))
    scale = _SCALES.get(letter, 1)
    step = Fraction(1, 10 ** len((decimals or ".")[1:]))
    return Printed((-digits if sign and sign != "+" else digits) * scale, step * scale)


def interval(text: str) -> tuple[float, float]:
    """What a printed number can stand for: half a unit of its last digit to either side.

    Args:
        text: As of `read_number`.

    Returns:
        Both ends: (70.25, 70.35) of "70.3", (12.5e9, 13.5e9) of "13B", (99.5, 100.5) of "100".

    Raises:
        ValueError: It is no printed number.
    """
    ends = read_number(text).interval
    return float(ends.low), float(ends.high)


def rounded(value: Fraction, step: Fraction) -> Fraction:
    """The multiple of `step` that is nearest; halves away from zero, as tables have it."""
    halves = int(abs(value) / step * 2)  # whole halves: an odd number of them rounds up
    return (-1 if value < 0 else 1) * ((halves + 1) // 2) * step


def show(value: Fraction, like: str) -> str:
    """A number as a table would print it beside another one.

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
