"""Families of claims: their levels, and the number of claims that are decided."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation import families
from tests.simulation.studies import DRAWS, slack

from jestlab.analysis.claims import Family, Until
from jestlab.analysis.claims.family import MOST_RANKED
from jestlab.analysis.claims.judged import Judging

p_values = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=30)


def test_ten_claims_share_a_rate_and_fewer_an_error():
    assert [Family().has_rate(claims) for claims in (1, 9, 10, 55)] == [False, False, True, True]
    assert [Family(error=0.01).level(claims, 20) for claims in (8, 40)] == [0.01 / 8, 0.01 / 40]
    assert [Family(rate=0.01).level(8, decided) for decided in (0, 1, 8)] == [0.01 / 8, 0.01 / 8, 0.01]
    assert Family(adjust="none").level(55, 3) == Family().level(0, 0) == 0.05
    assert not Family(adjust="none").has_rate(55)


@pytest.mark.parametrize(
    ("family", "text"),
    [
        (Family(), "a false discovery rate of at most 5% for all together"),
        (Family(error=0.01), "an error rate of at most 1% for all together"),
        (Family(adjust="none"), "an error rate of at most 5% per claim"),
        (Family(rate=0.1, test="signed_rank"), "a false discovery rate of at most 10% for all together, by"),
    ],
)
def test_text(family, text):
    assert family.text(12).startswith(text)


@given(p_values, st.sampled_from([0.01, 0.05, 0.2]))
def test_a_rate_decides_as_many_claims_as_scipy_and_an_error_those_below_its_share(found, bound):
    from scipy.stats import false_discovery_control

    assert Family(rate=bound).decided(found) == np.count_nonzero(
        false_discovery_control(found) <= bound * (1 + 1e-12)
    )
    level = bound / len(found)
    assert Family(error=bound).decided(found) == sum(p <= level for p in found)


@given(p_values, st.data())
def test_more_evidence_for_a_claim_undecides_no_other(found, data):
    at = data.draw(st.integers(0, len(found) - 1))
    lower = [*found[:at], found[at] * data.draw(st.floats(0.0, 1.0)), *found[at + 1 :]]
    family = Family(rate=0.05)
    before, after = (family.level(len(found), family.decided(p)) for p in (found, lower))
    assert after >= before


@pytest.mark.parametrize("test", ["sign", "signed_rank"])
def test_the_simulation_judges_like_the_product(test):
    values = np.random.default_rng(2).normal(1.0, 1.0, size=(4, families.CLAIMS, MOST_RANKED))
    is_true = np.arange(families.CLAIMS) % 3 > 0
    wrong, verdicts = families.verdicts(values, is_true, test)
    judging = Judging(
        Family(rate=families.RATE, test=test), families.CLAIMS, Until(until="decided", at_most=20)
    )
    for study, found in enumerate(values):
        samples = [judging.sample(each, "above", 0.0) for each in found]
        decided = judging.family.decided([each.p_value for each in samples])
        assert verdicts[study, -1] == decided > 10
        level = judging.family.level(families.CLAIMS, decided)
        said = [each.evidence(level, level).verdict for each in samples]
        is_wrong = [verdict == ("does not hold" if is_true[i] else "holds") for i, verdict in enumerate(said)]
        assert wrong[study, -1] == sum(is_wrong) > 0


def test_few_verdicts_are_wrong_in_expectation():
    """Where most verdicts could be wrong: no claim has a difference, and each is stated both ways."""
    kind = families.KINDS["every claim also stated the other way round"]
    found = families.simulated(kind, DRAWS["normal"], "sign", 1_000)
    assert 0.02 < found.wrong <= 0.05 + slack(1_000)
