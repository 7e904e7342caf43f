"""Tests that count what disagrees: bounds, lost seeds, and error rates, by signs and by signed ranks."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.studies import DRAWS, simulated, slack, until_decided

from jestlab.analysis.claims.family import MOST_RANKED
from jestlab.analysis.claims.sign_test import SIGN
from jestlab.analysis.claims.signed_rank import SIGNED_RANK

TESTS = (SIGN, SIGNED_RANK)
LEVELS = (0.05, 0.025, 0.05 / 8, 0.05 / 55)

numbers = st.integers(-64, 64).map(lambda n: n / 16)
differences = st.lists(numbers, min_size=1, max_size=MOST_RANKED).map(np.array)


def p_value(test, values, threshold, is_once=False):
    return test.p_values(np.asarray(values, float), threshold, False, is_once).min(initial=1.0)


@given(differences, st.data(), st.sampled_from(TESTS), st.booleans())
def test_a_lost_seed_counts_against_the_claim_however_it_would_have_ended(values, data, test, is_once):
    """A failed run is NaN, a diverged one an infinity; ties and zeros count against it too."""
    at = data.draw(st.integers(0, len(values) - 1))
    for lost in (math.nan, -math.inf, 0.0):
        changed = values.copy()
        changed[at] = lost if lost != 0.0 else -np.abs(values).max()
        assert p_value(test, changed, 0.0, is_once) >= p_value(test, values, 0.0, is_once)


@given(differences, st.sampled_from(TESTS))
def test_the_p_value_never_rises_with_further_seeds(values, test):
    found = test.p_values(values, 0.0, False, False)
    assert (np.diff(found) <= 0).all()
    assert ((found > 0) & (found <= 1)).all()


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("claims", [1, 8])
def test_few_studies_are_wrong(test, claims):
    judge, draw = partial(until_decided, test=test), DRAWS["heavy-tailed (t of 2)"]
    found = simulated(draw, judge, studies=4_000, claims=claims, seeds=MOST_RANKED)
    assert 0.025 < found.wrong <= 0.05 + slack(4_000)  # nor is power wasted


def test_the_signed_rank_test_finds_more_than_the_sign_test():
    sign, ranked = (
        simulated(
            DRAWS["normal"],
            partial(until_decided, test=test),
            studies=500,
            claims=8,
            seeds=MOST_RANKED,
            effect=1.0,
        )
        for test in TESTS
    )
    assert ranked.right > sign.right + 0.05
