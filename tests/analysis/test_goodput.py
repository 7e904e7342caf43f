"""How runs spent their time: the parts add up to the time held, and repeated work counts as lost."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis import goodput
from jestlab.analysis.goodput import CAUSES, AttemptTime, Goodput, by_run, divide, of_run, total

SECOND = 1_000_000


def attempt(number: int = 1, state: str = "COMPLETED", **values: Any) -> AttemptTime:
    """An attempt that trained from step 0 to 100 in 80 of 100 seconds, and saved step 60 after 48."""
    measured: dict[str, Any] = {
        "chips": 0, "queue_seconds": 3.0, "held_seconds": 100.0, "startup_seconds": 5.0,
        "compilation_seconds": 5.0, "training_seconds": 75.0, "evaluation_seconds": 5.0,
        "checkpoint_seconds": 7.0, "winddown_seconds": 3.0, "resumed_step": 0, "reached_step": 100,
        "saved_step": 60, "saved_seconds": 48.0,
    }  # fmt: skip
    return AttemptTime("f", number, state, **measured | values)


def seconds(found: Goodput) -> dict[str, float]:
    return {cause: amount / SECOND for cause, amount in found.parts.items() if amount}


def test_a_completed_attempt_is_divided_by_its_measurements():
    found = of_run([attempt()])
    assert seconds(found) == {
        "training": 75, "evaluation": 5, "startup": 5, "compilation": 5, "checkpoint": 7, "winddown": 3,
    }  # fmt: skip
    assert found.ratio == 0.8
    assert (found.waited, found.attempts, found.unknown_attempts) == (3 * SECOND, 1, 0)


def test_steps_that_the_next_attempt_repeats_are_lost():
    """Killed at step 100, resumed at 60: 32 of 80 useful seconds are repeated; the wind-down is lost, too."""
    killed = attempt(1, "PREEMPTED", winddown_seconds=None)
    found = of_run([killed, attempt(2, resumed_step=60)])
    first = divide(killed, 60)
    assert first["preempted"] == (32 + 3) * SECOND
    assert first["training"] + first["evaluation"] == 48 * SECOND
    assert first["training"] == 45 * SECOND  # evaluation is repeated in proportion
    assert seconds(found)["preempted"] == 35
    assert found.ratio == (48 + 80) / 200
    # An older checkpoint loses more, one that the store has no record of less.
    lost = {step: divide(attempt(1, "PREEMPTED"), step)["preempted"] / SECOND for step in (30, 80, 100, None)}
    assert lost == {30: 80 - 24, 80: 80 - 64, 100: 0, None: 32}
    # The second attempt resumed at step 60, the third, since that checkpoint was damaged, at 30.
    attempts = [attempt(1, "PREEMPTED"), attempt(2, "FAILED", resumed_step=60), attempt(3, resumed_step=30)]
    assert seconds(of_run(attempts))["preempted"] == lost[30]


@pytest.mark.parametrize("state", ["PREEMPTED", "FAILED", "CANCELLED"])
def test_an_attempt_without_a_checkpoint_is_lost(state):
    before_first = attempt(1, state, saved_step=None, saved_seconds=None)
    before_any_step = attempt(1, state, resumed_step=None, reached_step=None, saved_step=None)
    for lost in (before_first, before_any_step):
        assert seconds(of_run([lost])) == {state.lower(): 100}
    assert divide(attempt(2, state, resumed_step=60, saved_step=None), 60)[state.lower()] == 100 * SECOND
    # A completed attempt is kept when the run starts over.
    assert "preempted" not in seconds(of_run([attempt(1), attempt(2, "RUNNING", resumed_step=0)]))


def test_unmeasured_time_is_unknown_and_not_in_the_ratio():
    old = attempt(1, training_seconds=None)
    found = of_run([old, attempt(2)])
    assert (found.unknown, found.unknown_attempts, found.ratio) == (100 * SECOND, 1, 0.8)
    assert of_run([old]).ratio is None
    assert of_run([attempt(held_seconds=None)]) == Goodput(waited=3 * SECOND)


def test_chips_count_an_attempt_counts_once_and_disagreeing_clocks_add_no_time():
    found = of_run([attempt(chips=4)])
    both = total([found, of_run([attempt()])])
    assert (found.held, found.ratio) == (400 * SECOND, 0.8)
    assert (both.held, both.waited) == (500 * SECOND, 6 * SECOND)
    assert by_run([attempt(), attempt()]) == {"f": of_run([attempt()])}
    found = of_run([attempt(held_seconds=50.0)])
    assert found.held == 50 * SECOND
    assert found.ratio == pytest.approx(0.8)


def test_shares_in_words():
    assert goodput.summary(of_run([attempt()])) == (
        "goodput 80%: checkpoints 7%, start-up 5%, compilation 5%, wind-down 3%; waited 3 s in queues"
    )
    shares = [goodput.percent(share) for share in (0.0, 0.001, 0.5, 0.999, 1.0)]
    assert shares == ["0%", "<1%", "50%", ">99%", "100%"]


amounts = st.none() | st.floats(-1.0, 1e6) | st.sampled_from([math.inf, math.nan])
steps = st.none() | st.integers(0, 2**40)
made_up = st.builds(
    AttemptTime,
    fingerprint=st.sampled_from("ab"),
    number=st.integers(1, 6),
    state=st.sampled_from(["PENDING", "RUNNING", "COMPLETED", "FAILED", "PREEMPTED", "CANCELLED"]),
    chips=st.integers(0, 256),
    **{name: amounts for name in AttemptTime._fields if name.endswith("_seconds")},
    **{name: steps for name in AttemptTime._fields if name.endswith("_step")},
)


@given(st.lists(made_up, max_size=6))
def test_parts_add_up_to_what_was_held(attempts):
    once = {(one.fingerprint, one.number): one for one in attempts}
    held = sum(
        max(one.chips, 1) * max(0, round(one.held_seconds * SECOND))
        for one in once.values()
        if one.held_seconds is not None and math.isfinite(one.held_seconds)
    )
    found = total(by_run(attempts).values())
    assert sum(found.parts.values()) + found.unknown == held
    assert set(found.parts) <= set(CAUSES)
    assert min(found.parts.values(), default=0) >= 0 <= found.unknown
    assert found.ratio is None or 0 <= found.ratio <= 1
