"""The front against its definition, with ties, copies, NaN and infinities; and its speed."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jestlab.analysis import pareto


def by_definition(cost, score):
    """O(n²): a point is on the front unless another costs no more, scores no less, and differs."""
    cost, score = np.asarray(cost, float), np.asarray(score, float)
    no_worse = (cost[:, None] <= cost) & (score[:, None] >= score)
    better = (cost[:, None] < cost) | (score[:, None] > score)
    return ~(no_worse & better).any(axis=0) & ~np.isnan(cost) & ~np.isnan(score)


few_values = st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, np.inf, -np.inf, np.nan])
points = st.lists(st.tuples(few_values | st.floats(0, 1), few_values | st.floats(0, 1)), max_size=40)


@given(points)
def test_front_is_the_definition(pairs):
    cost, score = [c for c, _ in pairs], [s for _, s in pairs]
    expected = by_definition(cost, score) if pairs else np.zeros(0, bool)
    np.testing.assert_array_equal(pareto.front(cost, score), expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["uniform", "grid", "anti", "curve", "one cost"]))
def test_many_points_are_prefiltered_without_loss(seed, kind):
    rng = np.random.default_rng(seed)
    cost, score = rng.random((2, 2500))
    if kind == "grid":
        cost, score = np.round(cost * 6), np.round(score * 6)
    elif kind == "anti":
        score = cost + 0.01 * score
    elif kind == "curve":
        score = np.sqrt(cost)
    elif kind == "one cost":
        cost = np.zeros_like(cost)
    np.testing.assert_array_equal(pareto.front(cost, score), by_definition(cost, score))


def test_ties_and_copies():
    cost = [1, 1, 1, 2, 2, 3, 3]
    score = [5, 4, 5, 5, 6, 6, 6]
    # Copies of (1, 5) stay together; (2, 5) costs more for as much; (3, 6) too.
    assert list(pareto.front(cost, score)) == [True, False, True, False, True, False, False]


def test_shapes_are_checked():
    assert pareto.front([], []).shape == (0,)
    with pytest.raises(ValueError, match=r"cost \(2,\) and score \(3,\)"):
        pareto.front([1, 2], [1, 2, 3])


@pytest.mark.parametrize("kind", ["uniform", "anti-correlated"])
def test_a_million_points_take_less_than_sorting_them_by_both(kind):
    rng = np.random.default_rng(0)
    cost, score = rng.random((2, 1_000_000))
    if kind == "anti-correlated":
        score = cost + 0.02 * score

    def seconds(function):
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    ours = min(seconds(lambda: pareto.front(cost, score)) for _ in range(3))
    sort = min(seconds(lambda: np.lexsort((-score, cost))) for _ in range(3))
    assert ours < sort
