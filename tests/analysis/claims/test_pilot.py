"""Claims in the order of a pilot: against closed testing, and in simulated studies."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation import DRAWS, FIRST, LAST, after_a_pilot, piloted, simulated, slack

from jestlab.analysis.claims import pilot as module
from jestlab.analysis.claims.evidence import any_look
from jestlab.analysis.claims.pilot import Expected, Pilot, Turn, turns

STUDIES = 10_000

chances = st.lists(
    st.sampled_from([0.001, 0.01, 0.012, 0.02, 0.024, 0.03, 0.06, 0.5]), min_size=1, max_size=7
)


def by_closed_testing(chances, error):
    """Decide a claim if each set with it is rejected: by Bonferroni, of the first claims of the set."""
    claims = range(len(chances))
    sets = [kept for size in claims for kept in itertools.combinations(claims, size + 1)]
    kept_sets = [
        kept
        for kept in sets
        if min(chances[claim] for claim in kept[: module.AT_ONCE]) > error / min(module.AT_ONCE, len(kept))
    ]
    return [not any(claim in kept for kept in kept_sets) for claim in claims]


@given(chances, st.sampled_from([1, 2, 3, 8]))
def test_decides_the_claims_that_closed_testing_decides(chances, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", at_once)
        found = turns(chances, 0.05)
        assert [turn.chance <= 0.05 for turn in found] == by_closed_testing(chances, 0.05)
        for chance, turn in zip(chances, found, strict=True):
            assert (turn.chance <= 0.05) == (chance <= 0.05 / turn.at_once and not turn.waits)
            assert turn.chance >= min(1.0, chance)


def test_a_decided_claim_makes_room_for_the_next(monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 2)
    assert turns([0.02, 0.5, 0.01, 0.9, 0.01], 0.05) == [
        Turn(2, 0.04, False), Turn(2, 1.0, False), Turn(2, 0.04, False), Turn(2, 1.0, False),
        Turn(2, 1.0, True),
    ]  # fmt: skip
    assert turns([0.02, 0.04], 0.05) == [Turn(2, 0.04, False), Turn(1, 0.04, False)]
    assert turns([], 0.05) == []


def test_parses_a_pilot_that_it_has_written():
    pilot = Pilot(3, (Expected("a", "One", "holds"), Expected("b", "Two", "does not hold")))
    assert Pilot.parse(pilot.written()) == pilot
    assert Pilot.parse(None) is None
    assert [pilot.place(*each) for each in (("a", "One"), ("b", "Two"), ("a", "Two"))] == [0, 1, 2]
    assert pilot.verdict("b", "Two") == "does not hold"
    assert pilot.verdict("a", "Two") == "holds"


def test_few_studies_are_wrong_by_any_claim():
    found = simulated(DRAWS["skewed (exponential)"], piloted, studies=2_000, claims=8)
    assert 0.005 < found.wrong <= 0.05 + slack(2_000)


def test_the_simulation_judges_like_the_product():
    """The same studies, one by one, by the functions that judge claims."""
    values = DRAWS["normal"](np.random.default_rng(3), (20, 12, LAST)) + 0.9
    whole = piloted(values, 0.05)
    verdicts = []
    for study in values:
        first, rest = study[:, :FIRST], study[:, FIRST:]
        strength = first.mean(axis=1) / first.std(axis=1, ddof=1)
        order = np.argsort(-np.abs(strength))
        only = ["holds" if strength[claim] > 0 else "does not hold" for claim in order]

        def evidence(at_once, order=order, only=only, rest=rest):
            return [
                any_look(list(rest[claim]), "above", 0.0, 0.05 / sharing, LAST - FIRST, verdict)
                for claim, verdict, sharing in zip(order, only, at_once, strict=True)
            ]

        tested = turns([each.chance for each in evidence([module.AT_ONCE] * 12)], 0.05)
        found = evidence([turn.at_once for turn in tested])
        verdicts += [
            "undecided" if turn.waits else each.verdict for each, turn in zip(found, tested, strict=True)
        ]
    assert whole.right == np.mean([verdict == "holds" for verdict in verdicts])
    assert whole.decided == np.mean([verdict != "undecided" for verdict in verdicts])


@pytest.mark.full
@pytest.mark.parametrize("name", DRAWS)
class TestEveryDistribution:
    @pytest.mark.parametrize("claims", [1, 8, 55])
    def test_few_studies_are_wrong_by_any_claim(self, name, claims):
        found = simulated(DRAWS[name], piloted, studies=STUDIES, claims=claims)
        assert 0.005 < found.wrong <= 0.05 + slack(STUDIES)

    @pytest.mark.parametrize("seeds", [4, 8, 12, 24])
    def test_the_error_is_kept_wherever_a_study_ends(self, name, seeds):
        effect = np.repeat((4.0, 0.0), (4, 8))[:, None]  # the claims with an effect make room for the others
        values = DRAWS[name](np.random.default_rng(1), (STUDIES, 12, seeds)) + effect
        is_held, ends = after_a_pilot(values, 0.05)
        assert (ends[:, 4:] <= seeds).any(axis=1).mean() <= 0.05 + slack(STUDIES)
        if seeds > 12:
            assert is_held[:, :4].mean() > 0.9
