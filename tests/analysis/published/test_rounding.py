"""Printed numbers, and the intervals that they stand for."""

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.published.cell import Interval, read_number, rounded, show

fractions = st.fractions(-1000, 1000, max_denominator=1000)
intervals = st.tuples(fractions, fractions).map(lambda ends: Interval(min(ends), max(ends)))


def test_a_printed_number_is_half_a_unit_of_its_last_digit_wide_to_either_side():
    for text, low, high in (
        ("70.3", 70.25, 70.35), ("13B", 12.5e9, 13.5e9), ("12.8B", 12.75e9, 12.85e9), ("100", 99.5, 100.5),
        ("+2.8", 2.75, 2.85), ("−11.8", -11.85, -11.75), ("-11.8", -11.85, -11.75),
        ("– 11.8", -11.85, -11.75), ("0.0", -0.05, 0.05), (".703", 0.7025, 0.7035),
        ("12,800", 12799.5, 12800.5), ("600M", 599.5e6, 600.5e6), ("45 %", 44.5, 45.5),
        ("1T", 0.5e12, 1.5e12), ("40k", 39.5e3, 40.5e3),
    ):  # fmt: skip
        may = read_number(text).interval
        assert (text, float(may.low), float(may.high)) == (text, low, high)


def test_rejects_what_is_not_a_printed_number():
    for text in (
        "", " ", "+", "B", "--1", "1.2.3", "1e5", "nan", "inf", "1,28", "1 000", "٣", "70.3±0.2", "9" * 100,
        "1_0", "1.",
    ):  # fmt: skip
        with pytest.raises(ValueError, match="is not a number: expected one like"):
            read_number(text)


@given(st.decimals(-10_000, 10_000, allow_nan=False, places=6), st.integers(0, 4), st.sampled_from("+ "))
def test_a_number_is_in_the_interval_of_its_printed_form(number, places, sign):
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


def test_shows_a_number_in_the_form_of_another():
    for ratio, text in (((9, 10), "+0.9"), ((-1, 2), "−0.5"), ((1, 1000), "0.0")):
        assert show(Fraction(*ratio), "+1.8") == text
    assert show(Fraction(65, 2), "32") == "33"
    assert show(Fraction(12_750_000_000), "12.8B") == "12.8B"
    assert show(Fraction(999), "100") == "999"


@given(intervals, intervals, st.fractions(0, 1), st.fractions(0, 1))
def test_intervals_contain_the_results_for_their_numbers(a, b, s, t):
    x, y = a.low + s * (a.high - a.low), b.low + t * (b.high - b.low)
    for whole, one in ((a + b, x + y), (a - b, x - y), (a * b, x * y)):
        assert whole.low <= one <= whole.high
    if b.low <= 0 <= b.high:
        with pytest.raises(ZeroDivisionError):
            a / b
    else:
        assert (a / b).low <= x / y <= (a / b).high


def test_neighbours_touch_and_do_not_overlap():
    low, high = read_number("80.4").interval, read_number("80.5").interval
    assert low.meets(high) and high.meets(low)
    assert not low.overlaps(high) and not high.overlaps(low)
    assert low.overlaps(read_number("80.42").interval) and read_number("80").interval.overlaps(low)
    assert not low.meets(read_number("80.6").interval)
