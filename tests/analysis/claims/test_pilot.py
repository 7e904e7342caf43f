"""Claims in the order of a pilot: against closed testing, by simulation, and as they are judged."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation import DRAWS, FIRST, LAST, MIXED, after_a_pilot, piloted, simulated, until_decided

from jestlab.analysis.claims import pilot as module
from jestlab.analysis.claims.evidence import any_look
from jestlab.analysis.claims.pilot import Expected, Pilot, Turn, turns

STUDIES = 10_000
SLACK = 3 * math.sqrt(0.05 * 0.95 / STUDIES)  # three standard errors of the simulation itself

chances = st.lists(
    st.sampled_from([0.001, 0.01, 0.012, 0.02, 0.024, 0.03, 0.06, 0.5]), min_size=1, max_size=7
)


def by_closed_testing(chances, error):
    """A claim is decided if each set with it is rejected: by Bonferroni, of the first ones of the set."""
    claims = range(len(chances))
    sets = [kept for size in claims for kept in itertools.combinations(claims, size + 1)]
    kept_sets = [
        kept
        for kept in sets
        if min(chances[claim] for claim in kept[: module.AT_ONCE]) > error / min(module.AT_ONCE, len(kept))
    ]
    return [not any(claim in kept for kept in kept_sets) for claim in claims]


@given(chances, st.sampled_from([1, 2, 3, 8]))
def test_those_are_decided_that_closed_testing_decides(chances, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", at_once)
        found = turns(chances, 0.05)
        assert [turn.chance <= 0.05 for turn in found] == by_closed_testing(chances, 0.05)


@given(chances)
def test_a_claim_is_decided_if_it_is_at_its_own_share_of_the_error_and_has_its_turn(chances):
    for chance, turn in zip(chances, turns(chances, 0.05), strict=True):
        assert (turn.chance <= 0.05) == (chance <= 0.05 / turn.at_once and not turn.waits)
        assert turn.chance >= min(1.0, chance)


def test_one_after_the_other_makes_room_for_the_next(monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 2)
    assert turns([0.02, 0.5, 0.01, 0.9, 0.01], 0.05) == [
        Turn(2, 0.04, False), Turn(2, 1.0, False), Turn(2, 0.04, False), Turn(2, 1.0, False),
        Turn(2, 1.0, True),
    ]  # fmt: skip
    assert turns([0.02, 0.04], 0.05) == [Turn(2, 0.04, False), Turn(1, 0.04, False)]
    assert turns([], 0.05) == []


def test_what_is_registered_of_it_is_read_back():
    pilot = Pilot(3, (Expected("a", "One", "holds"), Expected("b", "Two", "does not hold")))
    assert Pilot.parse(pilot.written()) == pilot
    assert Pilot.parse(None) is None
    assert [pilot.place(*each) for each in (("a", "One"), ("b", "Two"), ("a", "Two"))] == [0, 1, 2]
    assert pilot.verdict("b", "Two") == "does not hold"
    assert pilot.verdict("a", "Two") == "holds"


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("claims", [1, 8, 55])
def test_at_most_five_of_a_hundred_studies_say_that_a_claim_holds_which_does_not(name, claims):
    found = simulated(DRAWS[name], piloted, studies=STUDIES, claims=claims)
    assert 0.005 < found.wrong <= 0.05 + SLACK


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("seeds", [4, 8, 12, 24])
def test_the_error_is_kept_wherever_a_study_ends(name, seeds):
    effect = np.repeat((4.0, 0.0), (4, 8))[:, None]  # what is decided rightly makes room for what is not
    values = DRAWS[name](np.random.default_rng(1), (STUDIES, 12, seeds)) + effect
    is_held, ends = after_a_pilot(values, 0.05)
    assert (ends[:, 4:] <= seeds).any(axis=1).mean() <= 0.05 + SLACK
    if seeds > 12:
        assert is_held[:, :4].mean() > 0.9


def test_claims_that_cannot_be_decided_are_in_nobody_s_way_and_further_seeds_are_fewer():
    """As many claims by 8 seeds after the pilot as by 11 without one, about."""
    plain, later = (
        simulated(DRAWS["normal"], judge, studies=300, claims=55, effect=MIXED, seeds=seeds)
        for judge, seeds in ((until_decided, 10), (piloted, FIRST + 8))
    )
    assert (plain.right, plain.decided) == (0, 0)
    assert later.right > 0.8 * 0.6 * 40 / 55
    whole = simulated(DRAWS["normal"], piloted, studies=300, claims=55, effect=MIXED)
    assert whole.right > 0.97 * 40 / 55


@pytest.mark.parametrize("name", DRAWS)
def test_the_simulation_judges_as_claims_are_judged(name):
    """The same studies, one by one: by the functions that judge claims."""
    values = DRAWS[name](np.random.default_rng(3), (20, 12, LAST)) + 0.9
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

        its = turns([each.chance for each in evidence([module.AT_ONCE] * 12)], 0.05)
        found = evidence([turn.at_once for turn in its])
        verdicts += [
            "undecided" if turn.waits else each.verdict for each, turn in zip(found, its, strict=True)
        ]
    assert whole.right == np.mean([verdict == "holds" for verdict in verdicts])
    assert whole.decided == np.mean([verdict != "undecided" for verdict in verdicts])
