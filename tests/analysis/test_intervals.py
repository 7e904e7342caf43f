"""Intervals over seeds, against tables of Student's t and numbers calculated by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from jestlab.analysis.intervals import censored_median, direction, half_widths, of_groups, to_match

T_975 = {2: 12.706, 3: 4.303, 5: 2.776, 10: 2.262, 31: 2.042}  # n → t of n − 1 degrees, from printed tables


def test_half_widths():
    n = pd.Series(T_975.keys())
    found = half_widths(pd.Series([2.0] * len(n)), n)
    expected = [t * 2.0 / math.sqrt(size) for size, t in T_975.items()]
    assert list(found) == pytest.approx(expected, rel=2e-4)

    # One seed has no interval.
    assert np.isnan(half_widths([math.nan, 1.0], [1, 2])).tolist() == [True, False]
    assert np.isnan(half_widths([math.nan, math.nan], [1, 0])).all()


def test_a_difference_is_significant_if_its_interval_excludes_the_value():
    for low, high, value, expected in (
        (0.1, 0.5, 0, 1), (-0.5, -0.1, 0, -1), (-0.1, 0.5, 0, 0), (0.0, 0.5, 0, 0), (0.1, 0.5, 0.3, 0),
        (0.1, 0.5, 0.6, -1), (math.nan, math.nan, 0, 0),
    ):  # fmt: skip
        assert direction(low, high, value) == expected


def test_moments_of_groups_of_any_size_neither_overflow_nor_vanish():
    units = {"usual": 1.0, "large": 1e200, "largest": 1e307, "small": 1e-170, "least": 5e-324}
    groups = pd.Series([name for name in units for _ in range(4)])
    values = pd.Series([unit * value for unit in units.values() for value in (1, 3, 5, math.nan)])
    found = of_groups(values, groups)
    for name, unit in units.items():
        moments = found.loc[name, ["mean", "std", "count"]]
        assert list(moments) == pytest.approx([3 * unit, 2 * unit, 3], rel=1e-12, abs=0.0)
        if name != "least":  # t = 4.30 with two degrees of freedom
            half = unit * 4.302652729911275 * 2 / math.sqrt(3)
            ends = [3 * unit - half, 3 * unit + half]
            assert list(found.loc[name, ["low", "high"]]) == pytest.approx(ends, rel=1e-9, abs=0.0)
    lost = of_groups(pd.Series([1.0, math.inf, math.nan]), pd.Series(["a", "a", "b"]))
    assert lost.loc["a", "mean"] == math.inf and list(lost["count"]) == [2, 0]


def test_censored_median():
    for factors, median in (
        ([2.0, 3.0, 5.0], 3.0),
        ([2.0, 4.0], 3.0),
        ([math.nan, 2.0, 3.0], 2.0),
        ([math.nan, math.nan, 3.0], math.nan),
        ([math.nan, 3.0], math.nan),
        ([math.inf, 3.0, 2.0], 3.0),
        ([], math.nan),
    ):
        assert censored_median(factors) == pytest.approx(median, nan_ok=True)


def test_to_match():
    for values, bounds, expected in (
        ([4.0, 6.0, 5.0], [9, 9, 9], (5.0, 5.0)),
        ([4.0], [9], (4.0, 4.0)),
        ([4.0, math.nan, 5.0], [9, 9, 9], (5.0, 5.0)),
        ([4.0, math.nan, math.nan], [9, 8, 9], (8.0, math.inf)),
        ([4.0, math.nan], [9, 9], (6.5, math.inf)),  # the mean of 4 and at least 9
        ([10.0, 60.0, math.nan], [100, 100, 20], (20.0, 60.0)),  # it ended early
        ([math.nan, math.nan], [9, 9], (9.0, math.inf)),
        ([math.nan], [math.nan], (math.nan, math.nan)),  # the effort is unknown
        ([], [], (math.nan, math.nan)),
    ):
        assert to_match(values, bounds) == pytest.approx(expected, nan_ok=True)
