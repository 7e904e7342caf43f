"""Numbers for people: three digits, with the right unit on both sides of each limit."""

import math

import pandas as pd

from jestlab.analysis import efforts, units


def test_writes_numbers_with_units():
    for write, texts in (
        (units.count, {0: "0", 9_600: "9,600", 10_000: "10.0k", 999_400: "999k", 999_600: "1.00M",
                       3e9: "3.00B", 40e9: "40.0B"}),
        (units.tick, {0: "0", 25_000: "25,000", 1_500_000: "1.5M", 3e9: "3B"}),
        (units.flops, {81.3e12: "81.3 TFLOP", 999.6e9: "1.00 TFLOP", 1234e18: "1,230 EFLOP",
                       12: "12.0 FLOP"}),
        (units.significant, {99.96: "100", 2.3: "2.30", 0.04567: "0.0457", -1.5: "-1.50", 1e300: "1e+300",
                             -1.7e308: "-1.7e+308", 5e-324: "4.94e-324", 0: "0", math.inf: "inf"}),
        (units.hours, {0: "0.00", 0.004: "<0.01", 0.005: "0.01", 9.99: "9.99", 9.996: "10.0", 4567: "4,570"}),
        (lambda seconds: units.duration(seconds / 3600),
         {0: "0 s", 0.1: "<1 s", 20: "20 s", 59.6: "1 min", 123: "2 min 3 s", 599.7: "10 min", 3599: "1 h",
          4321: "1 h 12 min", 169_000: "47 h", 172_000: "2 days", 200_000: "2 days 8 h",
          12 * 24 * 3600: "12 days"}),
        (units.dollars, {0: "$0.00", 0.004: "<$0.01", 1.2: "$1.20", 99.996: "$100", 14_814: "$14,800"}),
    ):  # fmt: skip
        assert {number: write(number) for number in texts} == texts


def test_one_unit_for_a_column():
    seconds = {(59.0,): "s", (119.0,): "s", (120.0, 3.0): "min", (7200.0,): "h", (2e5,): "days"}
    for amounts, unit in seconds.items():
        assert efforts.unit("seconds", pd.Series([*amounts, math.nan]))[1] == unit
    assert units.flops_unit([math.nan, 3e12, 1.3e12, 9e15]) == (1e12, "TFLOP")
    assert units.flops_unit([math.nan]) == (1.0, "FLOP")
