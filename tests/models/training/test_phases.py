"""The clock that divides an attempt's time among phases."""

from __future__ import annotations

import threading
import time

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.training import phases
from jestlab.models.training.phases import PHASES, PhaseClock, Spent, count_compilation


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def moment(monkeypatch) -> Time:
    made = Time()
    monkeypatch.setattr(phases, "time", made)
    return made


def seconds(spent: Spent) -> dict[str, float]:
    return {name: found for name in PHASES if (found := getattr(spent, f"{name}_seconds") or 0.0)}


def test_each_moment_is_in_one_phase(moment):
    clock = PhaseClock(already=2.0)
    moment.now += 1
    clock.reports(40)
    moment.now += 10
    with clock.phase("evaluation", 45):
        moment.now += 3
        with clock.phase("checkpoint"):
            moment.now += 0.5
        moment.now += 1
    moment.now += 5
    clock.wind_down()
    moment.now += 0.25
    spent = clock.spent()
    assert seconds(spent) == {
        "startup": 3, "training": 15, "evaluation": 4, "checkpoint": 0.5, "winddown": 0.25,
    }  # fmt: skip
    assert (spent.resumed_step, spent.reached_step, spent.whole_seconds) == (40, 45, 22.75)


def test_an_exception_ends_a_phase(moment):
    clock = PhaseClock()
    with pytest.raises(ValueError), clock.phase("evaluation"):
        moment.now += 1
        raise ValueError
    moment.now += 1
    assert seconds(clock.spent()) == {"startup": 1, "evaluation": 1}


def test_a_checkpoint_holds_the_time_until_it_was_begun(moment):
    """It is complete while training goes on, even when the next one has been begun."""
    clock = PhaseClock()
    clock.reports(0)
    moment.now += 10
    with clock.phase("checkpoint", 5):
        moment.now += 1
    moment.now += 10
    with clock.phase("checkpoint", 10):
        clock.saved(5)
    moment.now += 10
    found = clock.spent()
    assert (found.saved_step, found.saved_seconds) == (5, 10)
    clock.saved(10)
    found = clock.spent()
    assert (found.saved_step, found.saved_seconds) == (10, 20)


def test_a_checkpoint_without_a_step_is_that_of_the_last_report(moment):
    clock = PhaseClock()
    clock.reports(3)
    moment.now += 2
    clock.saved()
    moment.now += 2
    assert (clock.spent().saved_step, clock.spent().saved_seconds) == (3, 2)


def test_compiling_within_compiling_counts_once(moment):
    clock = PhaseClock()
    clock.reports(0)
    moment.now += 10
    clock.compiled(1.0)  # from 9 to 10
    moment.now += 2
    clock.compiled(3.0)  # from 9 to 12: traced another function in the middle
    moment.now += 4
    clock.compiled(1.5)
    assert seconds(clock.spent()) == {"training": 16 - 4.5, "compilation": 4.5}


def test_other_threads_compile_beside_training(moment):
    clock = PhaseClock()
    moment.now += 10
    other = threading.Thread(target=lambda: clock.compiled(5.0))
    other.start()
    other.join()
    assert seconds(clock.spent()) == {"startup": 10}


def test_time_before_the_first_evaluation_is_training_if_nothing_was_reported_before(moment):
    clock = PhaseClock()
    moment.now += 10
    clock.reports(100, since=99, trained=True)
    assert seconds(clock.spent()) == {"training": 10}


def test_a_program_that_reports_no_step_has_no_start_up(moment):
    clock = PhaseClock()
    moment.now += 10
    assert seconds(clock.spent()) == {"startup": 10}
    clock.wind_down()
    assert seconds(clock.spent()) == {"training": 10}


@pytest.mark.parametrize("step", [-1, 2**63])
def test_a_step_that_no_store_can_hold_is_left_to_whoever_records_it(step):
    clock = PhaseClock()
    clock.reports(step)
    assert clock.spent().reached_step is None


def test_what_is_moved_was_there(moment):
    clock = PhaseClock()
    clock.reports(0)
    moment.now += 3
    clock.move("checkpoint", 1.0)
    clock.move("evaluation", 100.0)
    assert seconds(clock.spent()) == {"checkpoint": 1, "evaluation": 2}


def test_what_is_moved_was_start_up_if_the_report_came_late(moment):
    clock = PhaseClock()
    moment.now += 5
    clock.reports(0)
    moment.now += 1
    clock.move("compilation", 3.0)
    assert seconds(clock.spent()) == {"startup": 3, "compilation": 3}


acts = st.tuples(
    st.sampled_from(
        ["startup", "compilation", "evaluation", "checkpoint", "reports", "compiled", "saved", "end"]
    ),
    st.floats(0, 100),
)


@given(st.lists(acts, max_size=20))
def test_phases_add_up_to_the_time_that_passed(made_up):
    moment = Time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "time", moment)
        clock = PhaseClock(already=1.0)
        for step, (act, amount) in enumerate(made_up):
            moment.now += amount / 3
            if act == "reports":
                clock.reports(step)
            elif act == "compiled":
                clock.compiled(amount)
            elif act == "saved":
                clock.saved()
            elif act == "end":
                clock.wind_down()
            else:
                with clock.phase(act, step):
                    moment.now += amount
        spent = clock.spent()
    assert min(seconds(spent).values(), default=0.0) >= 0
    assert spent.whole_seconds == pytest.approx(1.0 + moment.now - 100.0)
    if any(act == "end" for act, _ in made_up):
        assert spent.winddown_seconds is not None


def test_jax_says_what_it_compiles():
    clock = PhaseClock()
    count_compilation(clock)

    @jax.jit
    def inner(x: jax.Array) -> jax.Array:
        return jnp.sin(x) @ x

    @jax.jit
    def outer(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (inner(c), None), x, length=3)[0]

    x = jnp.ones((8, 8))
    before, began = clock.spent().compilation_seconds, time.perf_counter()
    outer(x).block_until_ready()
    took, compiled = time.perf_counter() - began, clock.spent().compilation_seconds - before
    assert 0.3 * took < compiled <= took
    outer(x).block_until_ready()
    assert clock.spent().compilation_seconds - before == compiled  # once
