"""Curves thinned out for drawing keep everything that a plot of the whole curve would show."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.curves import thinned

curves = st.lists(
    st.tuples(st.integers(0, 50), st.floats(-1e9, 1e9) | st.sampled_from([np.nan, np.inf, -np.inf])),
    min_size=30,
    max_size=400,
)


def test_keeps_first_last_lowest_and_highest_of_two_columns():
    y = np.array([0.0, 5, 1, -3, 2, 4, 7, 6, 9, 8, -1, 3])
    assert thinned(np.arange(10, 22), y, 2).tolist() == [0, 1, 3, 5, 6, 8, 10, 11]
    assert thinned(np.arange(4), np.arange(4.0), 1).tolist() == [0, 1, 2, 3]  # all of a few points
    assert thinned(np.array([3] * 9), np.arange(9.0), 2).tolist() == [0, 8]
    assert thinned(np.arange(9), np.arange(9.0), 2).tolist() == [0, 3, 4, 8]  # the last is in the second


@given(curves, st.integers(1, 8))
def test_each_column_of_pixels_keeps_its_first_last_lowest_and_highest(curve, width):
    gaps, values = zip(*curve, strict=True)
    x, y = np.cumsum(gaps), np.array(values)
    kept = thinned(x, y, width)
    assert np.array_equal(kept, np.unique(kept))
    if len(x) <= 4 * width:
        assert len(kept) == len(x)
        return
    assert len(kept) <= 5 * width
    span = max(x[-1] - x[0], 1)
    columns = np.minimum((x - x[0]) * width // span, width - 1)
    for column in set(columns):
        inside = np.flatnonzero(columns == column)
        here = kept[np.isin(kept, inside)]
        assert {inside[0], inside[-1]} <= set(here)
        finite, left = y[inside][np.isfinite(y[inside])], y[here][np.isfinite(y[here])]
        if len(finite):
            assert (left.min(), left.max()) == (finite.min(), finite.max())
        assert np.isfinite(y[inside]).all() == np.isfinite(y[here]).all()
