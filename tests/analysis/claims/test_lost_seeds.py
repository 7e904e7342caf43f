"""Seeds that diverged or failed count against the side that lost them, in one look and in sequences."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims.evidence import Sample
from jestlab.analysis.claims.verdicts import read
from jestlab.analysis.intervals import moments
from jestlab.analysis.tables import table

INF = math.inf
CLAIM = {"statement": "A learns more", "of": "a", "better_than": "b"}
BETTER, WORSE = [0.50, 0.51, 0.52, 0.50, 0.51], [0.30, 0.31, 0.30, 0.32, 0.31]
UNTIL = {"until": "decided", "at_most": 24}


@pytest.fixture
def stored(new_store, stored_run):
    """A function that stores runs: final scores by seed, or the states in which they ended."""

    def store(a, b, *claims, **spec):
        runs = [
            stored_run(name, [0.1, 0.2], seed=seed, state=value)
            if isinstance(value, str)
            else stored_run(name, [0.1, value], seed=seed)
            for name, values in (("a", a), ("b", b))
            for seed, value in enumerate(values)
        ]
        return new_store().add(*runs, spec={"claims": claims or [CLAIM]} | spec)

    return store


def test_a_better_run_that_is_lost_in_two_seeds_decides_nothing_in_its_favor(stored):
    """By the three seeds that are left, Student's t would be sure."""
    left = [a - b for a, b in zip(BETTER[:3], WORSE[:3], strict=True)]
    assert Sample(left, "above").evidence(0.05).verdict == "holds"
    verbs = {"FAILED": "failed", "SKIPPED": "was skipped", "CANCELLED": "was stopped"}
    for lost in (INF, -INF, None, *verbs):
        (found,) = read(stored([*BETTER[:3], lost, lost], WORSE).url, ["study"])
        assert (found.verdict, found.seeds, found.evidence.agree) == ("undecided", 5, 3)
        assert found.contrast.lost == f"a {verbs.get(str(lost), 'diverged')} in 2 of 5 seeds"
        assert found.reason.startswith(f"{found.contrast.lost}; currently")
    made = table(stored([*BETTER[:3], None, INF], WORSE).url, "claims", ["study"])
    assert "a diverged in 2 of 5 seeds" in made.markdown()


def test_many_lost_seeds(stored):
    """Too little memory for one side says nothing about the other."""
    all_lost, failed = [None] * 8, ["FAILED"] * 7 + [0.1]
    for a, b, verdict, agree, lost in (
        (all_lost, [0.1] * 8, "does not hold", 0, "a diverged in 8"),
        ([0.1] * 8, all_lost, "holds", 8, "b diverged in 8"),
        (all_lost, all_lost, "undecided", 0, "a diverged in 8 of 8 seeds; b diverged in 8"),
        (failed, [0.2] * 8, "undecided", 0, "a failed in 7"),
        ([0.2] * 8, failed, "undecided", 1, "b failed in 7"),
    ):
        (found,) = read(stored(a, b).url, ["study"])
        assert (found.verdict, found.seeds, found.evidence.agree) == (verdict, 8, agree)
        assert found.contrast.lost == f"{lost} of 8 seeds"
        assert verdict != "does not hold" or found.contrast.difference.mean == -INF


def test_a_sequence_counts_lost_seeds_and_continues(stored):
    def read_one(a, b):
        return read(stored(a, b, seeds=UNTIL).url, ["study"])[0]

    found = read_one([0.5, None, "FAILED", 0.5, 0.5, 0.5], [0.3] * 6)
    assert (found.verdict, found.seeds, found.evidence.agree) == ("undecided", 6, 4)
    assert found.contrast.lost == "a diverged in 1 of 6, failed in 1 of 6 seeds"
    assert found.is_open
    held = read_one([None, *[0.5] * 11], [0.3] * 12)
    assert (held.verdict, held.contrast.lost) == ("holds", f"a diverged in 1 of {held.seeds} seeds")
    stopped = read_one([0.5, "CANCELLED", 0.5], [0.3] * 3)
    assert (stopped.seeds, stopped.contrast.lost) == (1, "")  # it resumes with the next launch


def test_a_side_that_is_a_difference_is_unknown_if_one_of_its_runs_diverged(stored):
    claims = [{"statement": side, "of": {"of": "a", "minus": "b"}, side: "b"} for side in ("above", "below")]
    for found in read(stored([0.5] * 8, [None] * 8, *claims).url, ["study"]):
        assert (found.verdict, found.evidence.agree) == ("undecided", 0)


CALM = [1.0 + 0.01 * (step % 3) for step in range(60)]
SPIKY = [*CALM[:30], 9.0, *CALM[30:]]


@pytest.mark.parametrize(
    ("measure", "a", "b", "agree", "lost"),
    [
        ("loss", [[3.0, x] for x in (0.2, 0.2, 0.2, None, INF)], [[3.0, 0.5]] * 5, 3, "diverged in 2 of 5"),
        ("loss_spikes", [[*CALM, None]] * 5, [SPIKY] * 5, 0, "diverged in 5 of 5"),
        ("speed", [[], *[[0.3]] * 6], [[0.5]] * 7, 6, "has no value in 1 of 7"),
    ],
)
def test_training_metrics_that_were_lost(new_store, stored_run, measure, a, b, agree, lost):
    runs = [
        stored_run(name, [0.1], seed=seed, logged={"loss" if "loss" in measure else measure: logged})
        for name, of_seeds in (("a", a), ("b", b))
        for seed, logged in enumerate(of_seeds)
    ]
    spec = {"metrics": {name: {"goal": "min"} for name in ("loss", "speed")}}
    claim = CLAIM | {"measure": measure}
    (found,) = read(new_store().add(*runs, spec=spec | {"claims": [claim]}).url, ["study"])
    assert (found.evidence.agree, found.contrast.lost) == (agree, f"a {lost} seeds")


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30))
def test_moments_of_any_values_are_numbers(values):
    mean, std = moments(values)
    if all(map(math.isfinite, values)):
        low, high = min(values), max(values)
        assert low <= mean <= high or math.isclose(mean, high) or math.isclose(mean, low)
        assert std >= 0 or len(values) == 1
