"""Error rates of sequential verdicts, in simulated studies with a look after every seed."""

import numpy as np
import pytest
from tests.simulation import DRAWS, LAST, one_look, peeking, simulated, slack, until_decided

from jestlab.analysis.claims.evidence import evidence_of

STUDIES = 10_000


def wrong_shares(values, near):
    """Shares of runs of differences, one a row, that are called near and not near."""
    found = [evidence_of(list(each), "near", near, 0.05, LAST).verdict for each in values]
    return found.count("holds") / len(found), found.count("does not hold") / len(found)


def test_few_studies_are_wrong_by_any_claim():
    found = simulated(DRAWS["skewed (exponential)"], until_decided, studies=2_000, claims=8)
    assert 0.02 < found.wrong <= 0.05 + slack(2_000)  # nor is power wasted
    peeked = simulated(DRAWS["normal"], peeking, studies=1_000, claims=55)
    assert peeked.wrong > 0.98  # which the sequential test avoids


def test_a_real_effect_is_found():
    one, many = (
        simulated(DRAWS["normal"], until_decided, studies=2_000, claims=claims, effect=1.5)
        for claims in (1, 55)
    )
    assert one.right > 0.99
    assert one.seeds == pytest.approx(6.7, abs=0.2)
    assert many.right == pytest.approx(0.94, abs=0.01)
    assert many.seeds == pytest.approx(15.2, abs=0.3)
    fixed = simulated(DRAWS["normal"], one_look, studies=2_000, claims=1, effect=1.5, seeds=7)
    assert fixed.right < one.right  # with as many seeds as the sequential test takes on average


def test_the_simulation_judges_like_the_product():
    """The same studies, one by one, by the function that judges claims."""
    values = DRAWS["heavy-tailed (t of 2)"](np.random.default_rng(3), (40, 5, LAST)) + 0.6
    whole = until_decided(values, 0.05)
    found = [evidence_of(list(each), "above", 0.0, 0.05 / 5, LAST) for each in values.reshape(-1, LAST)]
    assert whole.right == np.mean([each.verdict == "holds" for each in found])
    assert whole.decided == np.mean([each.verdict != "undecided" for each in found])
    assert whole.seeds == np.mean([each.seeds for each in found])


def test_few_differences_at_the_limit_are_called_near():
    """Medians at the limit of what counts as near, and in the middle of a tiny range."""
    values = DRAWS["normal"](np.random.default_rng(4), (150, LAST))
    assert wrong_shares(0.1 * values + 0.5, 0.5)[0] <= 0.05 + slack(150)
    assert wrong_shares(values, 1e-9)[1] <= 0.05 + slack(150)


@pytest.mark.full
@pytest.mark.parametrize("name", DRAWS)
class TestEveryDistribution:
    @pytest.mark.parametrize("claims", [1, 8, 55])
    def test_few_studies_are_wrong_by_any_claim(self, name, claims):
        found = simulated(DRAWS[name], until_decided, studies=STUDIES, claims=claims)
        assert 0.02 < found.wrong <= 0.05 + slack(STUDIES)

    @pytest.mark.parametrize("seeds", [3, 5, 8, 12, 24])
    def test_the_error_is_kept_wherever_a_study_ends(self, name, seeds):
        found = simulated(DRAWS[name], until_decided, studies=STUDIES, claims=8, seeds=seeds)
        assert found.wrong <= 0.05 + slack(STUDIES)
