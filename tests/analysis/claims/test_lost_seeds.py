"""Seeds that diverged or failed count against the side that lost them, in one look and in sequences."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims.evidence import one_look
from jestlab.analysis.claims.verdicts import read
from jestlab.analysis.intervals import moments
from jestlab.analysis.tables import table

INF, NAN = math.inf, math.nan
CLAIM = {"statement": "A learns more", "of": "a", "better_than": "b"}
LOSS = {"metrics": {"loss": {"goal": "min"}}}


def claimed(new_store, stored_run, a, b, seeds=None, **claim):
    """The verdict on a claim that a is better than b, whose final scores are given; a state stands for a run
    that ended in it."""

    def run(name, seed, value):
        ended = isinstance(value, str)
        scores, state = ([0.1, 0.2], value) if ended else ([0.1, value], "COMPLETED")
        return stored_run(name, scores, seed=seed, state=state)

    runs = [
        run(name, seed, value) for name, values in (("a", a), ("b", b)) for seed, value in enumerate(values)
    ]
    spec = {"claims": [CLAIM | claim]} | ({"seeds": seeds} if seeds else {})
    (found,) = read(new_store().add(*runs, spec=spec).url, ["study"])
    return found


BETTER, WORSE = [0.50, 0.51, 0.52, 0.50, 0.51], [0.30, 0.31, 0.30, 0.32, 0.31]


@pytest.mark.parametrize("lost", [INF, -INF, None, "FAILED", "SKIPPED", "CANCELLED"])
def test_a_better_run_that_is_lost_in_two_seeds_decides_nothing_in_its_favor(new_store, stored_run, lost):
    """By the three seeds that are left, Student's t would be sure."""
    assert (
        one_look([a - b for a, b in zip(BETTER[:3], WORSE[:3], strict=True)], "above", 0, 0.05).verdict
        == "holds"
    )
    found = claimed(new_store, stored_run, [*BETTER[:3], lost, lost], WORSE)
    verb = {"FAILED": "failed", "SKIPPED": "was skipped", "CANCELLED": "was stopped"}.get(lost, "diverged")
    assert (found.verdict, found.seeds, found.evidence.agree) == ("undecided", 5, 3)
    assert found.lost == f"a {verb} in 2 of 5 seeds"
    assert found.reason.startswith(f"a {verb} in 2 of 5 seeds; currently")


def test_a_loss_that_is_not_a_number_is_the_worst_one(new_store, stored_run):
    runs = [
        stored_run(name, [0.1], seed=seed, logged={"loss": [3.0, value]})
        for name, values in (("a", [0.2, 0.2, 0.2, None, INF]), ("b", [0.5, 0.5, 0.6, 0.5, 0.5]))
        for seed, value in enumerate(values)
    ]
    claims = [
        CLAIM | {"measure": "loss"},
        CLAIM | {"measure": "loss", "statement": "B learns more", "of": "b", "better_than": "a"},
    ]
    one, other = read(new_store().add(*runs, spec=LOSS | {"claims": claims}).url, ["study"])
    assert (one.verdict, one.evidence.agree) == ("undecided", 3)
    assert (other.verdict, other.evidence.agree) == ("undecided", 2)
    assert one.lost == other.lost == "a diverged in 2 of 5 seeds"


def test_many_seeds_that_diverge_decide_against_their_side(new_store, stored_run):
    found = claimed(new_store, stored_run, [None] * 8, [0.1] * 8)
    assert (found.verdict, found.difference) == ("does not hold", -INF)
    found = claimed(new_store, stored_run, [0.1] * 8, [None] * 8)
    assert found.verdict == "holds"
    assert found.lost == "b diverged in 8 of 8 seeds"
    both = claimed(new_store, stored_run, [None] * 8, [None] * 8)
    assert (both.verdict, both.evidence.agree) == ("undecided", 0)


def test_runs_that_failed_decide_nothing(new_store, stored_run):
    """Too little memory for one side says nothing about the other."""
    most = ["FAILED"] * 7 + [0.1]
    for a, b in ((most, [0.2] * 8), ([0.2] * 8, most)):
        found = claimed(new_store, stored_run, a, b)
        assert (found.verdict, found.seeds) == ("undecided", 8)
        assert "failed in 7 of 8 seeds" in found.lost


def test_a_sequence_counts_lost_seeds_and_goes_on(new_store, stored_run):
    until = {"until": "decided", "at_most": 24}
    found = claimed(new_store, stored_run, [0.5, None, "FAILED", 0.5, 0.5, 0.5], [0.3] * 6, seeds=until)
    assert (found.verdict, found.seeds, found.evidence.agree) == ("undecided", 6, 4)
    assert found.lost == "a diverged in 1 of 6, failed in 1 of 6 seeds"
    assert found.is_open
    held = claimed(new_store, stored_run, [None, *[0.5] * 11], [0.3] * 12, seeds=until)
    assert (held.verdict, held.lost) == ("holds", f"a diverged in 1 of {held.seeds} seeds")
    stopped = claimed(new_store, stored_run, [0.5, "CANCELLED", 0.5], [0.3] * 3, seeds=until)
    assert (stopped.seeds, stopped.lost) == (1, "")  # it resumes with the next launch


def test_a_seed_without_a_value_is_told(new_store, stored_run):
    runs = [
        stored_run(name, [value] * 4, seed=seed, logged={"speed": [1.0] * (name == "b" or seed > 0)})
        for name, value in (("a", 0.5), ("b", 0.3))
        for seed in range(7)
    ]
    spec = {"claims": [CLAIM | {"measure": "speed", "above": "b", "better_than": None}]}
    (found,) = read(new_store().add(*runs, spec=spec).url, ["study"])
    assert found.lost == "a has no value in 1 of 7 seeds"


def test_a_side_that_is_a_difference_is_unknown_where_a_run_of_it_diverged(new_store, stored_run):
    side = {"of": "a", "minus": "b"}
    for claim in ({"above": "b"}, {"below": "b"}):
        spec = {"statement": "so", "of": side} | claim
        runs = [
            stored_run(n, [v], seed=s)
            for n, vs in (("a", [0.5] * 8), ("b", [None] * 8))
            for s, v in enumerate(vs)
        ]
        (found,) = read(new_store().add(*runs, spec={"claims": [spec]}).url, ["study"])
        assert (found.verdict, found.evidence.agree) == ("undecided", 0)


def test_spikes_of_a_loss_that_diverged_are_not_few(new_store, stored_run):
    calm = [1.0 + 0.01 * (step % 3) for step in range(60)]
    runs = [
        stored_run(name, [0.1], seed=seed, logged={"loss": loss})
        for name, loss in (("a", [*calm, None]), ("b", [*calm[:30], 9.0, *calm[30:]]))
        for seed in range(5)
    ]
    spec = {"claims": [CLAIM | {"measure": "loss_spikes"}]}
    (found,) = read(new_store().add(*runs, spec=spec).url, ["study"])
    assert (found.evidence.agree, found.lost) == (0, "a diverged in 5 of 5 seeds")


def test_the_table_says_what_was_lost(new_store, stored_run):
    store = new_store().add(
        *(stored_run("a", [value], seed=seed) for seed, value in enumerate([*BETTER[:3], None, INF])),
        *(stored_run("b", [value], seed=seed) for seed, value in enumerate(WORSE)),
        spec={"claims": [CLAIM]},
    )
    made = table(store.url, "claims", ["study"])
    assert "a diverged in 2 of 5 seeds" in made.markdown()
    (row,) = json.loads(made.json())["rows"]
    assert (row["verdict"], row["agree"], row["seeds"]) == ("undecided", 3, 5)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30))
def test_moments_of_any_values_are_numbers(values):
    mean, std = moments(values)
    if all(map(math.isfinite, values)):
        assert (
            min(values) <= mean <= max(values)
            or math.isclose(mean, max(values))
            or math.isclose(mean, min(values))
        )
        assert std >= 0 or len(values) == 1
