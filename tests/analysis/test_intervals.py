"""Intervals over seeds, against tables of Student's t and against figures worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.intervals import censored_median, half_widths, to_match

T_975 = {2: 12.706, 3: 4.303, 5: 2.776, 10: 2.262, 31: 2.042}  # n → t of n − 1 degrees, from printed tables


def test_half_widths():
    n = pd.Series(T_975.keys())
    found = half_widths(pd.Series([2.0] * len(n)), n)
    expected = [t * 2.0 / math.sqrt(size) for size, t in T_975.items()]
    assert list(found) == pytest.approx(expected, rel=2e-4)


def test_one_seed_has_no_interval():
    assert np.isnan(half_widths([math.nan, 1.0], [1, 2])).tolist() == [True, False]
    assert np.isnan(half_widths([math.nan, math.nan], [1, 0])).all()


def test_an_interval_holds_the_mean_as_often_as_it_says():
    samples = np.random.default_rng(0).normal(3.0, 2.0, size=(4000, 3))
    half = half_widths(pd.Series(samples.std(axis=1, ddof=1)), pd.Series([3] * len(samples)))
    held = np.abs(samples.mean(axis=1) - 3.0) <= half
    assert held.mean() == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize(
    ("factors", "median"),
    [
        ([2.0, 3.0, 5.0], 3.0),
        ([2.0, 4.0], 3.0),
        ([math.nan, 2.0, 3.0], 2.0),
        ([math.nan, math.nan, 3.0], math.nan),
        ([math.nan, 3.0], math.nan),
        ([math.inf, 3.0, 2.0], 3.0),
        ([], math.nan),
    ],
)
def test_censored_median(factors, median):
    assert censored_median(factors) == pytest.approx(median, nan_ok=True)


@pytest.mark.parametrize(
    ("values", "bounds", "expected"),
    [
        ([4.0, 6.0, 5.0], [9, 9, 9], (5.0, 5.0, 4.0, 6.0)),
        ([4.0], [9], (4.0, 4.0, 4.0, 4.0)),
        ([4.0, math.nan, 5.0], [9, 9, 9], (5.0, 5.0, 4.0, math.inf)),
        ([4.0, math.nan, math.nan], [9, 8, 9], (8.0, math.inf, 4.0, math.inf)),
        ([4.0, math.nan], [9, 9], (6.5, math.inf, 4.0, math.inf)),  # half of two: more than the mean with 9
        ([10.0, 60.0, math.nan], [100, 100, 20], (20.0, 60.0, 10.0, math.inf)),  # it ended early
        ([math.nan, math.nan], [9, 9], (9.0, math.inf, 9.0, math.inf)),
        ([math.nan], [math.nan], (math.nan,) * 4),  # the effort is unknown
        ([], [], (math.nan,) * 4),
    ],
)
def test_to_match(values, bounds, expected):
    assert to_match(values, bounds) == pytest.approx(expected, nan_ok=True)


@given(st.lists(st.floats(1, 100) | st.just(math.nan), min_size=1, max_size=9))
def test_to_match_lies_within_its_range(values):
    value, most, low, high = to_match(values, [100.0] * len(values))
    assert low <= value <= most <= high
    assert math.isinf(high) == any(math.isnan(each) for each in values)
    if not math.isinf(high):
        assert value == most == pytest.approx(np.median(values))
