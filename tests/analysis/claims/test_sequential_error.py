"""How often verdicts are wrong that are looked at after every seed, in 10,000 simulated studies of a kind."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.simulation import DRAWS, LAST, one_look, peeking, simulated, until_decided

from jestlab.analysis.claims.evidence import any_look

STUDIES = 10_000
SLACK = 3 * math.sqrt(0.05 * 0.95 / STUDIES)  # three standard errors of the simulation itself


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("claims", [1, 8, 55])
def test_at_most_five_of_a_hundred_studies_say_that_a_claim_holds_which_does_not(name, claims):
    found = simulated(DRAWS[name], until_decided, studies=STUDIES, claims=claims)
    assert found.wrong <= 0.05 + SLACK
    assert found.wrong > 0.02  # nor is power thrown away


@pytest.mark.parametrize("name", DRAWS)
def test_peeking_at_intervals_for_one_look_is_wrong_more_often(name):
    """What the sequential test is for."""
    assert simulated(DRAWS[name], peeking, studies=STUDIES, claims=1).wrong > 0.08
    assert simulated(DRAWS[name], peeking, studies=STUDIES // 10, claims=55).wrong > 0.98


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("seeds", [3, 5, 8, 12, 24])
def test_the_error_is_kept_wherever_a_study_ends(name, seeds):
    found = simulated(DRAWS[name], until_decided, studies=STUDIES, claims=8, seeds=seeds)
    assert found.wrong <= 0.05 + SLACK


def test_what_is_there_is_found():
    one, many = (
        simulated(DRAWS["normal"], until_decided, studies=2_000, claims=claims, effect=1.5)
        for claims in (1, 55)
    )
    assert one.right > 0.99
    assert one.seeds == pytest.approx(6.7, abs=0.2)
    assert many.right == pytest.approx(0.94, abs=0.01)
    assert many.seeds == pytest.approx(15.2, abs=0.3)
    fixed = simulated(DRAWS["normal"], one_look, studies=2_000, claims=1, effect=1.5, seeds=7)
    assert fixed.right < one.right  # of as many seeds as it takes on average


@pytest.mark.parametrize("name", DRAWS)
def test_the_simulation_judges_as_claims_are_judged(name):
    """The same studies, one by one, by the function that judges claims."""
    values = DRAWS[name](np.random.default_rng(3), (40, 5, LAST)) + 0.6
    whole = until_decided(values, 0.05)
    found = [any_look(list(each), "above", 0.0, 0.05 / 5, LAST) for each in values.reshape(-1, LAST)]
    assert whole.right == np.mean([each.verdict == "holds" for each in found])
    assert whole.decided == np.mean([each.verdict != "undecided" for each in found])
    assert whole.seeds == np.mean([each.seeds for each in found])


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_as_far_off_as_is_just_not_near_is_rarely_called_near(name):
    """Medians that lie at the end of what counts as near, from either side."""
    values = DRAWS[name](np.random.default_rng(4), (1_000, LAST)) * 0.1
    for sign in (1, -1):
        wrong = [
            any_look(list(each), "near", 0.5, 0.05, LAST).verdict == "holds" for each in values + sign * 0.5
        ]
        assert np.mean(wrong) <= 0.05 + 3 * math.sqrt(0.05 / len(values))


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_near_is_rarely_called_far(name):
    """Medians in the middle of a range so small that nearly all differences lie beyond it."""
    values = DRAWS[name](np.random.default_rng(5), (1_000, LAST))
    wrong = [any_look(list(each), "near", 1e-9, 0.05, LAST).verdict == "does not hold" for each in values]
    assert np.mean(wrong) <= 0.05 + 3 * math.sqrt(0.05 / len(values))
