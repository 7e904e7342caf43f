"""Evidence of differences: by one look with Student's t, and by the sign test after every seed."""

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims.evidence import Side, any_look, decide, one_look
from jestlab.analysis.claims.looks import Forecast
from jestlab.analysis.claims.power import needed

SIDES = ("above", "below", "near")
FLIPPED = {"above": "below", "below": "above", "near": "near"}

# Sixteenths: sums and differences of them are exact.
numbers = st.integers(-64, 64).map(lambda n: n / 16)
values = st.lists(numbers, min_size=1, max_size=24)
within = st.sampled_from([0.25, 1.0])
errors = st.sampled_from([0.05, 0.05 / 8])


def looked(differences, side, near, error):
    """Judge by looks after every seed, up to 24."""
    return any_look(differences, side, near, error, 24)


JUDGES: tuple[Any, ...] = (one_look, looked)


@given(values, st.sampled_from(SIDES), within, errors)
def test_negated_differences_reverse_the_evidence(differences, side, near, error):
    for judge in JUDGES:
        one = judge(differences, side, near, error)
        other = judge([-value for value in differences], FLIPPED[side], near, error)
        assert (one.verdict, one.seeds, one.agree) == (other.verdict, other.seeds, other.agree)
        assert one.chance == pytest.approx(other.chance)
        assert one.forecast == other.forecast
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low), nan_ok=True)


@given(values, st.sampled_from(SIDES), within, errors, values)
def test_decides_once_the_chance_is_small_and_keeps_the_decision(differences, side, near, error, later):
    found = looked(differences, side, near, error)
    assert (found.verdict != "undecided") == (found.chance <= error)
    assert (found.forecast is None) == (found.verdict != "undecided")
    if found.verdict != "undecided":
        assert looked(differences + later, side, near, error) == found


@given(values, st.sampled_from(SIDES), within)
def test_a_stricter_error_decides_nothing_else_and_nothing_sooner(differences, side, near):
    loose, strict = (looked(differences, side, near, error) for error in (0.05, 0.05 / 55))
    if strict.verdict != "undecided":
        assert strict.verdict == loose.verdict
        assert strict.seeds >= loose.seeds


@given(st.lists(numbers, min_size=2, max_size=8).filter(lambda v: len(set(v)) > 1))
def test_one_look_equals_scipy_s_t_test(differences):
    from scipy.stats import ttest_1samp

    found = one_look(differences, "above", 0.0, 0.05)
    theirs = ttest_1samp(differences, 0.0)
    assert found.chance == pytest.approx(min(1.0, theirs.pvalue), rel=1e-6, abs=1e-12)
    bounds = theirs.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high), rel=1e-6, abs=1e-9)


def test_one_of_55_claims_needs_eleven_seeds_that_agree():
    agreeing = [1.0] * 10
    assert any_look(agreeing, "above", 0.0, 0.05 / 55, 24).verdict == "undecided"
    found = any_look([*agreeing, 2.0], "above", 0.0, 0.05 / 55, 24)
    assert (found.verdict, found.seeds, found.agree) == ("holds", 11, 11)
    assert (found.low, found.high) == (1.0, 2.0)
    behind = any_look([-1.0] * 11, "above", 0.0, 0.05 / 55, 24)
    assert (behind.verdict, behind.agree) == ("does not hold", 0)


def test_the_seeds_that_are_missing_depend_on_the_distance_to_the_nearest_bound():
    differences = [-0.5, 0.0, 0.5, 1.0, 1.5]
    std = statistics.stdev(differences)
    cases: tuple[tuple[Side, float, float], ...] = (
        ("above", 0.25, 0.75), ("below", 0.25, 0.25), ("near", 0.75, 0.25), ("near", 0.25, 0.25),
        ("above", -0.75, 0.25), ("below", -0.75, 1.25),
    )  # fmt: skip
    for side, within, margin in cases:
        expected = needed(margin, std, 5, 0.01)
        assert one_look(differences, side, within, 0.01).forecast == expected, (side, within)
    negated = [-value for value in differences]
    assert one_look(negated, "near", 0.75, 0.01).forecast == needed(0.25, std, 5, 0.01)


def test_a_difference_of_zero_agrees_with_neither_side():
    found = looked([0.0] * 24, "above", 0.0, 0.05)
    assert (found.verdict, found.agree, found.chance) == ("undecided", 0, 1.0)


def test_near_is_shown_by_seeds_that_are_near():
    found = looked([0.1, -0.2, 0.0, 0.2, -0.1], "near", 0.2, 0.05)
    assert (found.verdict, found.seeds, found.agree) == ("holds", 5, 5)
    far = looked([0.3] * 6, "near", 0.2, 0.05)
    assert (far.verdict, far.seeds) == ("does not hold", 6)  # either side could have been far


def test_without_seeds_a_claim_is_undecided():
    for judge in JUDGES:
        found = judge([], "above", 0.0, 0.05)
        assert (found.verdict, found.seeds, found.chance, found.agree) == ("undecided", 0, 1.0, 0)
    ahead = looked([], "above", 0.0, 0.05).forecast
    assert isinstance(ahead, Forecast)
    assert (ahead.low, ahead.high) == (5, 13)
    assert ahead.decided == pytest.approx(0.72, abs=0.005)
    assert ahead.expected == pytest.approx(12.1, abs=0.1)
    assert math.isnan(one_look([1.0], "above", 0.0, 0.05).low)


@given(numbers, numbers, within)
def test_outer_bounds_count_only_where_a_difference_is_not_near(one, other, near):
    low, high = sorted((one, other))
    inner = decide("near", low, high, near)
    wide = decide("near", low, high, near, (-math.inf, math.inf))
    assert wide == ("holds" if inner == "holds" else "undecided")
