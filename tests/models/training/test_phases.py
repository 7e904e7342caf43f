"""The clock that divides an attempt's time among phases."""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.training import phases
from jestlab.models.training.phases import PHASES, PhaseClock, ResumePoint, Spent, count_compilation


class Time:
    """A clock that the test moves."""

    now = 100.0

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
    with pytest.raises(ValueError), clock.phase("evaluation", 45):
        moment.now += 3
        with clock.phase("checkpoint"):
            moment.now += 0.5
        moment.now += 1
        raise ValueError  # ends the phase as well
    moment.now += 5
    clock.wind_down()
    moment.now += 0.25
    spent = clock.spent()
    expected = {"startup": 3, "training": 15, "evaluation": 4, "checkpoint": 0.5, "winddown": 0.25}
    assert seconds(spent) == expected
    assert (spent.resumed_step, spent.reached_step, spent.whole_seconds) == (40, 45, 22.75)


def test_a_checkpoint_holds_the_time_until_it_was_begun(moment):
    """It is complete while training continues, even after the start of the next one."""
    clock = PhaseClock()
    clock.reports(0)
    moment.now += 10
    with clock.phase("checkpoint", 5):
        moment.now += 1
    moment.now += 10
    with clock.phase("checkpoint", 10):
        pass
    moment.now += 10
    for saved, expected in (([5], (5, 10)), ([10], (10, 20)), ([], (10, 30))):  # no step: the last report's
        clock.saved(*saved)
        found = clock.spent()
        assert (found.saved_step, found.saved_seconds) == expected


def test_compiling_within_compiling_counts_once(moment):
    clock = PhaseClock()
    clock.reports(0)
    for passed, compiled in ((10, 1.0), (2, 3.0), (4, 1.5)):  # from 9 to 10; from 9 to 12; from 14.5 to 16
        moment.now += passed
        clock.compiled(compiled)
    with ThreadPoolExecutor() as pool:
        pool.submit(clock.compiled, 5.0).result()  # other threads compile while training continues
    assert seconds(clock.spent()) == {"training": 16 - 4.5, "compilation": 4.5}


def test_time_is_startup_until_the_first_step_unless_that_was_trained(moment):
    without_steps, trained = PhaseClock(), PhaseClock()
    moment.now += 10
    trained.reports(100, is_value=True, trained=True)
    assert seconds(trained.spent()) == {"training": 10}
    assert seconds(without_steps.spent()) == {"startup": 10}
    without_steps.wind_down()  # a program that reports no step has no start-up
    assert seconds(without_steps.spent()) == {"training": 10}


def test_only_time_that_has_passed_is_moved_to_another_phase(moment):
    """From startup as well: a report may have come late."""
    clock = PhaseClock()
    moment.now += 5
    clock.reports(0)
    moment.now += 1
    clock.move("compilation", 3.0)
    assert seconds(clock.spent()) == {"startup": 3, "compilation": 3}
    clock.move("evaluation", 100.0)
    assert seconds(clock.spent()) == {"compilation": 3, "evaluation": 3}


ACTS = ["startup", "compilation", "evaluation", "checkpoint", "reports", "compiled", "saved", "wind_down"]


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.floats(0, 100)), max_size=20))
def test_phases_add_up_to_the_time_that_passed(acts):
    moment = Time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases, "time", moment)
        clock = PhaseClock(already=1.0)
        for step, (act, amount) in enumerate(acts):
            moment.now += amount / 3
            if act in PHASES:
                with clock.phase(act, step):
                    moment.now += amount
            else:
                getattr(clock, act)(*{"reports": [step], "compiled": [amount]}.get(act, []))
        spent = clock.spent()
    assert min(seconds(spent).values(), default=0.0) >= 0
    assert spent.whole_seconds == pytest.approx(1.0 + moment.now - 100.0)
    assert (spent.winddown_seconds is not None) == any(act == "wind_down" for act, _ in acts)


def test_compilation_by_jax_is_counted():
    clock = PhaseClock()
    count_compilation(clock)
    function, compiled = jax.jit(lambda x: x * 3), []
    for _ in range(3):
        compiled.append(clock.spent().compilation_seconds)
        function(np.ones(5)).block_until_ready()
    assert 0 == compiled[0] < compiled[1] == compiled[2]


@pytest.mark.parametrize(
    ("reports", "resumed", "if_empty"),
    [
        ([("log", 600), ("log", 1200)], 599, 0),
        ([("log", 0), ("log", 100)], 99, 0),  # step 0: values of the whole run
        ([("progress", 30), ("log", 40)], 30, 30),
        ([("progress", 0), ("log", 100)], 0, 0),
        ([("log", 0)], None, 0),
        ([("log", 0), ("progress", 30), ("log", 40)], 30, 30),
    ],
)
def test_the_first_report_states_the_resumed_step_unless_the_folder_was_empty(reports, resumed, if_empty):
    point, empty, first = ResumePoint(), ResumePoint(is_empty=True), ResumePoint(is_first=True)
    for what, step in reports:
        for each in (point, empty, first):
            each.reports(step, is_value=what == "log")
    empty.completes()
    assert (point.step, empty.step, first.step) == (resumed, if_empty, 0)
