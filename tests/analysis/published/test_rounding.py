"""What printed numbers can stand for."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.published.cell import Interval, read_number, rounded, show

fractions = st.fractions(-1000, 1000, max_denominator=1000)
intervals = st.tuples(fractions, fractions).map(lambda ends: Interval(min(ends), max(ends)))


@pytest.mark.parametrize(
    "text, low, high",
    [
        ("70.3", 70.25, 70.35),
        ("13B", 12.5e9, 13.5e9),
        ("12.8B", 12.75e9, 12.85e9),
        ("100", 99.5, 100.5),
        ("+2.8", 2.75, 2.85),
        ("−11.8", -11.85, -11.75),
        ("-11.8", -11.85, -11.75),
        ("– 11.8", -11.85, -11.75),
        ("0.0", -0.05, 0.05),
        (".703", 0.7025, 0.7035),
        ("12,800", 12799.5, 12800.5),
        ("600M", 599.5e6, 600.5e6),
        ("45 %", 44.5, 45.5),
        ("1T", 0.5e12, 1.5e12),
        ("40k", 39.5e3, 40.5e3),
    ],
)
def test_half_a_unit_of_the_last_digit_to_either_side(text, low, high):
    may = read_number(text).interval
    assert (float(may.low), float(may.high)) == (low, high)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "+",
        "B",
        "--1",
        "1.2.3",
        "1e5",
        "nan",
        "inf",
        "1,28",
        "1 000",
        "٣",
        "70.3±0.2",
        "9" * 100,
        "1_0",
        "1.",
    ],
)
def test_what_is_no_printed_number(text):
    with pytest.raises(ValueError, match="is not a number: expected one like"):
        read_number(text)


@given(st.decimals(-10_000, 10_000, allow_nan=False, places=6), st.integers(0, 4), st.sampled_from("+ "))
def test_a_number_is_among_those_that_its_printed_form_stands_for(number, places, sign):
    """Python's own decimal rounding is the oracle."""
    step = Decimal(1).scaleb(-places)
    printed = number.quantize(step, ROUND_HALF_UP)
    text = f"{printed:+f}" if sign == "+" else f"{printed:f}"
    may = read_number(text).interval
    assert may.low <= Fraction(number) <= may.high
    assert may.high - may.low == Fraction(step)
    assert rounded(Fraction(number), Fraction(step)) == Fraction(printed)
    if printed:
        assert show(Fraction(number), like=text) == text.replace("-", "−")


@pytest.mark.parametrize(
    "value, like, text",
    [
        (Fraction(9, 10), "+1.8", "+0.9"),
        (Fraction(-1, 2), "+1.8", "−0.5"),
        (Fraction(1, 1000), "+1.8", "0.0"),
        (Fraction(65, 2), "32", "33"),
        (Fraction(12_750_000_000), "12.8B", "12.8B"),
        (Fraction(999), "100", "999"),
    ],
)
def test_a_number_in_the_form_of_another(value, like, text):
    assert show(value, like) == text


@given(intervals, intervals, st.fractions(0, 1), st.fractions(0, 1))
def test_intervals_hold_what_their_numbers_give(a, b, s, t):
    x, y = a.low + s * (a.high - a.low), b.low + t * (b.high - b.low)
    for whole, one in ((a + b, x + y), (a - b, x - y), (a * b, x * y)):
        assert whole.low <= one <= whole.high
    if b.low <= 0 <= b.high:
        with pytest.raises(ZeroDivisionError):
            a / b
    else:
        assert (a / b).low <= x / y <= (a / b).high


@given(intervals, st.integers(0, 2), st.fractions(0, 1))
def test_what_could_be_printed_of_an_interval(a, places, t):
    step = Fraction(1, 10**places)
    low, high = a.printable(step)
    assert low <= rounded(a.low + t * (a.high - a.low), step) <= high
    for printed in (low, high):
        assert Interval(printed - step / 2, printed + step / 2).meets(a)
    for printed in (low - step, high + step):
        assert not Interval(printed - step / 2, printed + step / 2).meets(a)


def test_neighbours_touch_and_do_not_overlap():
    low, high = read_number("80.4").interval, read_number("80.5").interval
    assert low.meets(high) and high.meets(low)
    assert not low.overlaps(high) and not high.overlaps(low)
    assert low.overlaps(read_number("80.42").interval) and read_number("80").interval.overlaps(low)
    assert not low.meets(read_number("80.6").interval)
