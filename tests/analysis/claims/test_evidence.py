"""Evidence for claims: one look with Student's t, the sign test after every seed, and the power of both."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.studies import (
    DRAWS,
    LAST,
    losing,
    once,
    one_look,
    peeking,
    simulated,
    slack,
    until_decided,
)

from jestlab.analysis.claims.evidence import Sample, power
from jestlab.analysis.claims.forecast import NO_FORECAST

INF, NAN = math.inf, math.nan
RELATIONS = ("above", "below", "near")
FLIPPED: dict[str, Any] = {"above": "below", "below": "above", "near": "near"}

# Sixteenths: sums and differences of them are exact.
numbers = st.integers(-64, 64).map(lambda n: n / 16)
values = st.lists(numbers, min_size=1, max_size=24)
with_lost = st.lists(
    st.one_of(st.integers(-8, 8).map(float), st.sampled_from([INF, -INF, NAN])), min_size=2, max_size=12
)
within = st.sampled_from([0.25, 1.0])
errors = st.sampled_from([0.05, 0.05 / 8])


def evidence_of(differences, relation, within, error, at_most=None, test=None):
    """Test a claim at a level, after all seeds or after every seed."""
    return Sample(differences, relation, within, error, at_most, test).evidence(error)


looked = partial(evidence_of, at_most=LAST)
JUDGES: tuple[Any, ...] = (evidence_of, looked)


@given(st.one_of(values, with_lost), st.sampled_from(RELATIONS), within, errors)
def test_negated_differences_reverse_the_evidence(differences, relation, near, error):
    for judge in JUDGES:
        one = judge(differences, relation, near, error)
        other = judge([-value for value in differences], FLIPPED[relation], near, error)
        assert (one.verdict, one.seeds, one.agree) == (other.verdict, other.seeds, other.agree)
        assert one.chance == pytest.approx(other.chance)
        assert one.forecast == pytest.approx(other.forecast)


@given(st.one_of(values, with_lost), st.sampled_from(RELATIONS), within, errors, values)
def test_decides_once_the_chance_is_small_and_keeps_the_decision(differences, relation, near, error, later):
    """One look and many looks have the same definition of the error."""
    for judge in JUDGES:
        found = judge(differences, relation, near, error)
        assert (found.verdict != "undecided") == (found.chance <= error)
        assert found.forecast == NO_FORECAST or found.verdict == "undecided"
    if found.verdict != "undecided":
        assert looked(differences + later, relation, near, error) == found


@given(values, st.sampled_from(RELATIONS), within)
def test_a_stricter_error_decides_nothing_else_and_nothing_sooner(differences, relation, near):
    loose, strict = (looked(differences, relation, near, error) for error in (0.05, 0.05 / 55))
    if strict.verdict != "undecided":
        assert strict.verdict == loose.verdict
        assert strict.seeds >= loose.seeds


@given(st.lists(numbers, min_size=2, max_size=8).filter(lambda v: len(set(v)) > 1), within)
def test_one_look_equals_scipy_s_one_sided_t_tests(differences, near):
    from scipy.stats import ttest_1samp

    def p(side, threshold):
        return ttest_1samp(differences, threshold, alternative=side).pvalue

    found = evidence_of(differences, "above", 0.0, 0.05)
    assert found.chance == pytest.approx(min(p("greater", 0.0), p("less", 0.0)), rel=1e-6, abs=1e-12)
    holds = max(p("greater", -near), p("less", near))  # two one-sided tests
    fails = min(1.0, 2 * min(p("greater", near), p("less", -near)))
    found = evidence_of(differences, "near", near, 0.05)
    assert found.chance == pytest.approx(min(holds, fails), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("differences", "relation", "within", "verdict"),
    [
        ([0.5] * 3, "above", 0.0, "holds"),
        ([0.0] * 3, "above", 0.0, "undecided"),
        ([-0.5] * 3, "above", 0.0, "does not hold"),
        ([-0.25] * 3, "above", 0.5, "holds"),  # no worse than
        ([-0.5] * 3, "below", 0.0, "holds"),
        ([0.25] * 3, "below", 0.5, "holds"),
        ([0.75] * 3, "below", 0.5, "does not hold"),
        ([0.5] * 3, "near", 0.5, "holds"),
        ([0.75] * 3, "near", 0.5, "does not hold"),
        ([-0.75] * 3, "near", 0.5, "does not hold"),
        ([0.0, 2.0, -2.0], "near", 0.5, "undecided"),
        ([0.1, 0.2, 0.3, 0.05], "above", 0.0, "holds"),  # one-sided p = .030, two-sided .061
        ([0.1, 0.2, 0.4, 0.0], "above", 0.0, "undecided"),  # one-sided p = .066
        ([0.1], "above", 0.0, "undecided"),
    ],
)
def test_decides_by_one_look(differences, relation, within, verdict):
    assert evidence_of(differences, relation, within, 0.05).verdict == verdict


@pytest.mark.parametrize(
    ("differences", "relation", "within", "claims", "verdict", "seeds", "agree"),
    [
        ([1.0] * 10, "above", 0.0, 55, "undecided", 10, 10),
        ([1.0] * 10 + [2.0], "above", 0.0, 55, "holds", 11, 11),
        ([-1.0] * 11, "above", 0.0, 55, "does not hold", 11, 0),
        ([0.0] * 24, "above", 0.0, 1, "undecided", 24, 0),  # agrees with neither side
        ([0.1, -0.2, 0.0, 0.2, -0.1], "near", 0.2, 1, "holds", 5, 5),
        ([0.3] * 6, "near", 0.2, 1, "does not hold", 6, 0),  # either side could have been far
        ([0.2] + [0.3] * 5, "near", 0.2, 1, "undecided", 6, 1),  # the tolerance itself is near
        ([-0.2] + [-0.3] * 5, "near", 0.2, 1, "undecided", 6, 1),
    ],
)
def test_decides_by_many_looks(differences, relation, within, claims, verdict, seeds, agree):
    found = evidence_of(differences, relation, within, 0.05 / claims, 24)
    assert (found.verdict, found.seeds, found.agree) == (verdict, seeds, agree)


def test_without_seeds_a_claim_is_undecided():
    for judge in JUDGES:
        found = judge([], "above", 0.0, 0.05)
        assert (found.verdict, found.seeds, found.chance, found.agree) == ("undecided", 0, 1.0, 0)
    ahead = looked([], "above", 0.0, 0.05).forecast
    assert ahead == (1.0, LAST, 5)


@given(with_lost, st.data(), st.sampled_from(["above", "below"]))
def test_a_lost_seed_never_makes_a_claim_hold(values, data, relation):
    """It is the worst difference for the claim, or none."""
    if all(map(math.isfinite, values)):
        values[0] = NAN  # so that the other list is also tested by signs
    at = data.draw(st.integers(0, len(values) - 1))
    for lost in (NAN, -INF if relation == "above" else INF):
        for judge in JUDGES:
            before = judge(values, relation, 0.0, 0.05).verdict
            after = judge([*values[:at], lost, *values[at + 1 :]], relation, 0.0, 0.05).verdict
            assert not (after == "holds" and before != "holds")


# ---- the power of one look


def test_power_is_the_share_of_simulated_studies():
    from scipy.stats import ttest_1samp

    for effect, n, error in ((1.0, 3, 0.05), (2.0, 3, 0.05), (1.0, 8, 0.05 / 8)):
        samples = np.random.default_rng(0).normal(effect, 1.0, size=(20_000, n))
        found = ttest_1samp(samples, 0.0, axis=1, alternative="greater")
        assert power(effect, n, error) == pytest.approx((found.pvalue <= error).mean(), abs=0.012)
    assert power(0.0, 5) == pytest.approx(0.05, abs=1e-6)


# ---- error rates of simulated studies


@pytest.mark.parametrize("look", [once, until_decided])
def test_few_studies_are_wrong_if_one_side_loses_its_worst_runs(look):
    found = simulated(
        losing(DRAWS["normal"], 0.3, -INF, the_worst=True), look, studies=300, claims=1, seeds=8
    )
    assert found.right <= 0.05 + slack(300)


@pytest.mark.parametrize(
    ("draw", "look", "shape", "effect", "at_most"),
    [
        (DRAWS["heavy-tailed (t of 2)"], until_decided, (40, 5, LAST), 0.6, LAST),
        *((losing(DRAWS["normal"], 0.1, value), once, (40, 1, 12), 0.8, None) for value in (-INF, INF, NAN)),
    ],
)
def test_the_simulation_judges_like_the_product(draw, look, shape, effect, at_most):
    """The same studies, claim by claim, by the function that judges claims."""
    values, (_, claims, seeds) = draw(np.random.default_rng(5), shape) + effect, shape
    whole, error = look(values, 0.05), 0.05 / claims
    found = [evidence_of(list(each), "above", 0.0, error, at_most) for each in values.reshape(-1, seeds)]
    assert whole.right == np.mean([each.verdict == "holds" for each in found]) > 0.1
    assert whole.decided == np.mean([each.verdict != "undecided" for each in found])
    assert at_most is None or whole.seeds == np.mean([each.seeds for each in found])


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


def test_few_differences_at_the_limit_are_called_near():
    """Medians at the limit of what counts as near, and in the middle of a tiny range."""
    values = DRAWS["normal"](np.random.default_rng(4), (150, LAST))
    assert wrong_shares(0.1 * values + 0.5, 0.5)[0] <= 0.05 + slack(150)
    assert wrong_shares(values, 1e-9)[1] <= 0.05 + slack(150)


@pytest.mark.full
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("look", [once, until_decided])
@pytest.mark.parametrize("value", [-INF, NAN])
@pytest.mark.parametrize("the_worst", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("seeds", [5, 12])
def test_the_error_is_kept_however_seeds_are_lost(name, look, value, the_worst, share, seeds):
    draw = losing(DRAWS[name], share, value, the_worst=the_worst)
    found = simulated(draw, look, studies=10_000, claims=1, seeds=seeds)
    assert found.right <= 0.05 + slack(10_000)


@pytest.mark.full
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(
    ("claims", "seeds"), [(1, LAST), (8, LAST), (55, LAST), *((8, seeds) for seeds in (3, 5, 8, 12))]
)
def test_few_studies_are_wrong_wherever_they_end(name, claims, seeds):
    found = simulated(DRAWS[name], until_decided, studies=10_000, claims=claims, seeds=seeds)
    assert found.wrong <= 0.05 + slack(10_000)
    assert seeds < LAST or found.wrong > 0.02
