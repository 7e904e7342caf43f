"""The best label of a seed, and claims about it."""

import math

import pytest

from jestlab.analysis.claims.best import best_of


@pytest.mark.parametrize(
    ("values", "sign", "best"),
    [
        ({"a": 1.0, "b": 3.0, "c": 2.0}, 1, "b"),
        ({"a": 1.0, "b": 3.0, "c": 2.0}, -1, "a"),
        ({"a": 1.0, "b": 2.0, "c": 2.0}, 1, "b"),  # the first of equal ones
        ({"b": 5.0}, -1, "b"),  # failed runs can't be chosen
        ({"a": -math.inf, "b": math.inf, "c": -9.0}, 1, "c"),  # nor diverged ones
        ({"a": math.inf, "b": math.nan, "c": math.inf}, -1, "a"),  # unless all are
        ({"a": math.inf, "c": math.inf}, -1, None),
        ({}, 1, None),
    ],
)
def test_the_best_label_is_chosen_by_the_goal(values, sign, best):
    assert best_of(values, ["a", "b", "c"], sign) == best
