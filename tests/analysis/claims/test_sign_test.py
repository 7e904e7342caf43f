"""The sequential sign test: against all paths, SciPy's tests for one look, and simulated studies."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.studies import DRAWS, simulated, until_decided

from jestlab.analysis.claims.sign_test import (
    Forecast,
    all_looks,
    forecast,
    median_interval,
    most_against,
    one_look,
)

LEVELS = (0.05, 0.025, 0.05 / 8, 0.05 / 55)
LAST = 40
signs = st.lists(st.booleans(), min_size=1, max_size=LAST)


def chance(disagree) -> float:
    """Return the p-value of all looks at seeds that agree or disagree."""
    against = itertools.accumulate(map(int, disagree))
    return min(float(all_looks(LAST)[n, k]) for n, k in enumerate(against, start=1))


@pytest.mark.parametrize(
    ("level", "last", "first"),
    [
        (0.05, 24, {0: 5, 1: 9, 2: 13, 3: 16, 4: 20}),
        (0.05 / 8, 24, {0: 8, 1: 13, 2: 17, 3: 20, 4: 24}),
        (0.05 / 55, 24, {0: 11, 1: 16, 2: 20, 3: 23}),
        (0.05, 100, {0: 5, 1: 10, 2: 14, 3: 17, 4: 20, 5: 23}),
        (0.05 / 8, 100, {0: 9, 1: 13, 2: 17, 3: 21, 4: 24}),
        (0.05 / 55, 100, {0: 12, 1: 16, 2: 20, 3: 24}),
    ],
)
def test_number_of_seeds_that_decide_by_the_number_against(level, last, first):
    allowed = most_against(all_looks(last), level)
    assert {k: allowed.index(k) for k in first} == first
    assert len(allowed) == last + 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("last", [24, 100])
def test_the_error_of_all_looks_is_at_most_the_level(level, last):
    """By a walk over all paths, from the allowed numbers alone; and each look is a stricter sign test."""
    from scipy.stats import binomtest

    allowed, once = most_against(all_looks(last), level), most_against(one_look(last), level)
    alive, wrong = {0: 1.0}, 0.0
    for n in range(1, last + 1):
        after: dict[int, float] = {}
        for k, probability in alive.items():
            for step in (0, 1):
                after[k + step] = after.get(k + step, 0.0) + probability / 2
        wrong += sum(probability for k, probability in after.items() if k <= allowed[n])
        alive = {k: probability for k, probability in after.items() if k > allowed[n]}
        for k in (allowed[n], once[n]):
            assert k < 0 or binomtest(k, n, alternative="less").pvalue <= level
        assert binomtest(once[n] + 1, n, alternative="less").pvalue > level
        assert allowed[n] <= once[n]
        assert allowed[n] < n / 2
    assert 0.6 * level < wrong <= level


def test_the_chance_is_the_share_of_paths_with_evidence_as_strong():
    """Of all 2^10 paths: those whose evidence is ever as strong as that of 10 seeds with one against."""
    table = all_looks(100)
    ever = [
        min(table[n, k] for n, k in enumerate(itertools.accumulate(path), start=1))
        for path in itertools.product((0, 1), repeat=10)
    ]
    share = sum(each <= table[10, 1] * (1 + 1e-9) for each in ever) / len(ever)
    assert share < table[10, 1] < 0.05 < 2 * table[10, 1]  # the rest comes after 10 seeds
    assert table[10, 1] == pytest.approx(0.0308, abs=5e-5)


@given(signs)
def test_evidence_grows_with_agreeing_seeds(disagree):
    assert 0 < chance(disagree) <= chance([True, *disagree[1:]]) <= 1
    assert chance([False, *disagree[1:]]) <= chance(disagree)


@given(st.lists(st.floats(-10, 10, allow_nan=False), min_size=1, max_size=25), st.sampled_from(LEVELS))
def test_bounds_exclude_the_medians_that_the_test_rejects(values, level):
    low, high = median_interval(values, most_against(all_looks(LAST), level))
    for threshold in {*values, 0.0}:
        assert (chance(value <= threshold for value in values) <= level) == (threshold < low)
        assert (chance(value >= threshold for value in values) <= level) == (threshold > high)


def test_bounds_of_one_look_equal_scipy_s():
    """At the first look with bounds these are order statistics, like SciPy's interval of a median."""
    from scipy.stats import quantile_test

    values, allowed = [3.0, 1.0, 5.0, 2.0, 4.0], most_against(all_looks(LAST), 0.05)
    theirs = quantile_test(values, p=0.5).confidence_interval(0.9)
    assert median_interval(values, allowed) == (theirs.low, theirs.high) == (1.0, 5.0)
    assert median_interval(values[:4], allowed) == (-math.inf, math.inf)
    assert median_interval([*values[:4], math.nan], allowed) == (-math.inf, math.inf)


class TestForecast:
    @pytest.mark.parametrize(("seeds", "against"), [(3, 0), (5, 1), (8, 1)])
    def test_equals_simulated_walks(self, seeds, against):
        level, at_most, count = 0.05 / 8, 27, 20_000
        allowed = most_against(all_looks(at_most), level)
        generator = np.random.default_rng(1)
        share = generator.beta(against + 0.5, seeds - against + 0.5, size=count)
        k = np.full(count, against)
        ends = np.full(count, at_most)
        decided = np.zeros(count, bool)
        for n in range(seeds + 1, at_most + 1):
            k = k + (generator.random(count) < share)
            now = ~decided & ((k <= allowed[n]) | (n - k <= allowed[n])) & (allowed[n] >= 0)
            ends[now] = n
            decided |= now
        found = forecast(level, at_most, seeds, against)
        assert found.decided == pytest.approx(decided.mean(), abs=0.015)
        assert found.expected == pytest.approx(ends.mean(), abs=0.15)

    def test_either_side_may_be_decided_or_none(self):
        assert forecast(0.05 / 55, 24, 8, 4) == Forecast(0.0, 24.0, 24)
        assert forecast(0.05 / 55, 24, 24, 4).decided == 0.0
        assert forecast(0.05, 24, 7, 2) == pytest.approx(forecast(0.05, 24, 7, 5))
        assert forecast(0.05 / 8, 24, 5, 0).earliest == forecast(0.05 / 8, 24, 5, 5).earliest == 8

    def test_expects_decisions_for_known_effects(self):
        assert 1.2 * 0.05 < forecast(0.05, 24, effect=0.0).decided <= 2 * 0.05  # wrong on either side
        found = forecast(0.05, 24, effect=1.5)
        simulation = simulated(DRAWS["normal"], until_decided, studies=4_000, claims=1, effect=1.5)
        assert found.decided == pytest.approx(simulation.decided, abs=0.01)
        assert found.expected == pytest.approx(simulation.seeds, abs=0.15)
        assert found.earliest == 5
