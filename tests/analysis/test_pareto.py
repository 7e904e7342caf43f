"""The front and its certainty: against definitions, and by hand."""

import numpy as np
from hypothesis import example, given
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


@given(st.integers(0, 2**32 - 1), st.sampled_from(["uniform", "grid", "anti", "odd"]))
def test_front_of_many_points(seed, kind):
    rng = np.random.default_rng(seed)
    cost, score = rng.random((2, 1500))
    if kind == "grid":
        cost, score = np.round(cost * 6), np.round(score * 6)
    elif kind == "anti":
        score = cost + 0.01 * score
    elif kind == "odd":
        for values in (cost, score):
            values[rng.integers(0, 1500, 60)] = rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0], 60)
    np.testing.assert_array_equal(pareto.front(cost, score), by_definition(cost, score))


def dominates(a, b):
    return a[0] <= b[0] and a[1] >= b[1] and a != b


def standing_by_definition(boxes):
    """Each point (cheap, dear, low, high) at its worst against the others at their best, and the reverse."""
    found = []
    for i, (cheap, dear, low, high) in enumerate(boxes):
        others = [box for j, box in enumerate(boxes) if j != i and not np.isnan(box).any()]
        if np.isnan(boxes[i]).any():
            found.append("unknown")
        elif any(dominates((other[1], other[2]), (cheap, high)) for other in others):
            found.append("dominated")
        elif any(dominates((other[0], other[3]), (dear, low)) for other in others):
            found.append("ambiguous")
        else:
            found.append("front")
    return found


values = st.sampled_from([-np.inf, 0.0, 1.0, 2.0, 3.0, 4.0, np.inf]) | st.floats(0, 4)
intervals = st.tuples(values, values).map(sorted)
boxes = st.tuples(intervals, intervals).map(lambda pair: (*pair[0], *pair[1]))
unknown = st.just((1.0, 1.0, np.nan, np.nan))


@given(st.lists(boxes | boxes.map(lambda b: (b[0], b[0], b[2], b[2])) | unknown, min_size=1, max_size=25))
@example([(1.0, 1.0, 0.0, 2.0)])  # it doesn't compete with itself
def test_standing_is_the_definition(found):
    assert list(pareto.standing(*zip(*found, strict=True))) == standing_by_definition(found)
