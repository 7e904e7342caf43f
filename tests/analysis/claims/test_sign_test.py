"""The sequential sign test: against all paths and SciPy's tests for one look."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims.family import MOST_SEEDS
from jestlab.analysis.claims.sign_test import SIGN, all_looks, one_look

LEVELS = (0.05, 0.025, 0.05 / 8, 0.05 / 55)
signs = st.lists(st.booleans(), min_size=1, max_size=40)


def most_against(level: float) -> list[int]:
    """Return for each number of seeds how many may disagree in a decision at a level; −1 for no decision."""
    counts: list[int] = ((all_looks() <= level).sum(axis=1) - 1).tolist()
    return counts


def chance(disagree) -> float:
    """Return the p-value of all looks at seeds that agree or disagree."""
    return float(SIGN.p_values(np.where(disagree, -1.0, 1.0), 0.0, False, False)[-1])


@pytest.mark.parametrize(
    ("level", "first"),
    [
        (0.05, {0: 5, 1: 9, 2: 13, 3: 17, 4: 20, 5: 23}),
        (0.05 / 8, {0: 8, 1: 13, 2: 17, 3: 21, 4: 24}),
        (0.05 / 55, {0: 11, 1: 16, 2: 20, 3: 24}),
    ],
)
def test_number_of_seeds_that_decide_by_the_number_against(level, first):
    allowed = most_against(level)
    assert {k: allowed.index(k) for k in first} == first
    assert len(allowed) == MOST_SEEDS + 1


@pytest.mark.parametrize("level", LEVELS)
def test_the_error_of_all_looks_is_at_most_the_level(level):
    """By a walk over all paths, from the allowed numbers alone; and each look is a stricter sign test."""
    from scipy.stats import binomtest

    allowed = most_against(level)
    alive, wrong = {0: 1.0}, 0.0
    for n in range(1, MOST_SEEDS + 1):
        after: dict[int, float] = {}
        for k, probability in alive.items():
            for step in (0, 1):
                after[k + step] = after.get(k + step, 0.0) + probability / 2
        wrong += sum(probability for k, probability in after.items() if k <= allowed[n])
        alive = {k: probability for k, probability in after.items() if k > allowed[n]}
        assert allowed[n] < 0 or binomtest(allowed[n], n, alternative="less").pvalue <= level
        assert allowed[n] < n / 2
    assert 0.6 * level < wrong <= level


def test_the_chance_is_the_share_of_paths_with_evidence_as_strong():
    """Of all 2^10 paths: those whose evidence is ever as strong as that of 10 seeds with one against."""
    table = all_looks()
    ever = [
        min(table[n, k] for n, k in enumerate(itertools.accumulate(path), start=1))
        for path in itertools.product((0, 1), repeat=10)
    ]
    share = sum(each <= table[10, 1] * (1 + 1e-9) for each in ever) / len(ever)
    assert share < table[10, 1] < 0.05 < 2 * table[10, 1]  # the rest comes after 10 seeds
    assert table[10, 1] == pytest.approx(0.0274, abs=5e-5)


@given(signs)
def test_evidence_grows_with_agreeing_seeds(disagree):
    assert 0 < chance(disagree) <= chance([True, *disagree[1:]]) <= 1
    assert chance([False, *disagree[1:]]) <= chance(disagree)


def test_one_look_equals_scipy_s_test():
    from scipy.stats import binomtest

    for n in (1, 5, 12):
        assert one_look(n).tolist() == pytest.approx(
            [binomtest(k, n, alternative="less").pvalue for k in range(n + 1)]
        )
