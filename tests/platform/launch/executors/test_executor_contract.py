"""What every executor guarantees, checked for each of them: real clients that talk to real servers."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from executor_harnesses import HARNESSES, KEY, STORE, ready

from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    ExecutorUnavailable,
    JobState,
    LaunchedJob,
)
from jestlab.testing.executors import CASES

NAME = "jestlab-0a1b2c3d-1"

OTHERS: dict[str, Any] = {
    "store": "0f" * 16,
    "fingerprint": "0a1b2c3d" * 3 + "ffffffff" * 5,
    "attempt": 2,
    "token": "0e" * 16,
}
"""Each changes a key to that of another attempt."""

ON_CLUSTERS = [pytest.param(name, marks=pytest.mark.cluster) for name in ("kubernetes", "slurm")]


@pytest.fixture(params=[*HARNESSES, *ON_CLUSTERS])
def harness(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param not in HARNESSES:
        yield request.getfixturevalue(f"{request.param}_harness")
        return
    with ready(HARNESSES[request.param](tmp_path, monkeypatch), monkeypatch) as made:
        yield made


on_remotes = pytest.mark.parametrize("harness", ["vertex", *ON_CLUSTERS], indirect=True)


@pytest.fixture
def executor(harness: Any) -> Any:
    return harness.executor()


@pytest.fixture
def started(harness: Any, executor: Executor) -> LaunchedJob:
    return executor.launch(harness.job(NAME))


@pytest.fixture
def running(harness: Any, started: LaunchedJob) -> LaunchedJob:
    harness.run(started)
    return started


def state(executor: Executor, started: LaunchedJob) -> JobState:
    return executor.statuses([started])[started].state


def error_of(*call: Any) -> ExecutorError:
    """Return the error of a launch, a stop, or a log, which is one line without secrets."""
    with pytest.raises(ExecutorError) as raised:
        function, *values = call
        b"".join(function(*values) or ())
    assert "\n" not in str(raised.value)
    assert not {"correct-horse", "the-users-token"} & set(re.split("[ :@]", str(raised.value)))
    return raised.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_executor_passes_the_contract(harness, case):
    """`testing.check_executor` checks custom executors in the same way."""
    case(harness)


@pytest.mark.parametrize("code", [1, 143])
def test_a_job_that_fails_says_how_its_process_ended(harness, executor, running, code):
    harness.end(running, code)
    status = executor.statuses([running])[running]
    assert (status.state, status.exit_code) == (JobState.FAILED, code)
    assert status.reason


@on_remotes
def test_machines_that_are_taken_away_are_no_failure(harness, executor, running):
    harness.preempt(running)
    assert state(executor, running) == JobState.PREEMPTED


@on_remotes
def test_one_that_stops_is_not_over_before_it_is(executor, running):
    executor.stop(running, now=False)
    assert state(executor, running) == JobState.RUNNING
    executor.stop(running, now=True)  # asked for again, harder


@on_remotes
def test_a_job_that_somebody_removed_is_gone(harness, executor):
    """Or preempted, if the service remembers it: the run continues in another job."""
    gone = JobState.PREEMPTED if harness.remembers_removed else JobState.GONE
    all_started = [executor.launch(harness.job(f"{NAME}{number}")) for number in range(10)]
    for started in all_started:
        harness.vanish(started)
    assert state(executor, all_started[0]) == gone
    assert {status.state for status in executor.statuses(all_started).values()} == {gone}
    executor.stop(all_started[0], now=False)
    error_of(executor.logs, all_started[0])


@on_remotes
@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_error_that_passes_is_waited_out(harness, executor, status):
    harness.spoil(status, status)
    started = executor.launch(harness.job(NAME))
    harness.spoil(status)
    assert state(executor, started) == JobState.QUEUED
    harness.spoil(status, status)
    executor.stop(started, now=False)


@on_remotes
def test_a_launch_whose_answer_is_lost_is_one_job(harness, executor):
    harness.lose_an_answer()
    started = executor.launch(harness.job(NAME))
    assert (harness.count(), state(executor, started)) == (1, JobState.QUEUED)


@on_remotes
def test_where_nobody_answers_a_job_is_unknown_and_calls_are_errors(harness, executor, started):
    with harness.outage():
        status = executor.statuses([started])[started]
        assert status.state == JobState.UNKNOWN and status.reason
        errors = [error_of(executor.launch, harness.job(f"{NAME}0"))]
        errors.append(error_of(lambda: executor.stop(started, now=False)))
        if harness.logs_are_asked_for:
            errors.append(error_of(executor.logs, started))
        assert {type(error) for error in errors} == {ExecutorUnavailable}
    assert state(executor, started) == JobState.QUEUED


@on_remotes
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 500, 503])
def test_a_refusal_is_final_only_if_it_would_come_again(harness, executor, started, status):
    """Either way nothing was launched."""
    if status in (401, 403, 500):
        harness.spoil(*[status] * 5)
        assert state(executor, started) == JobState.UNKNOWN
    calls: list[Any] = [(executor.launch, harness.job(f"{NAME}0")), (executor.check,)]
    calls += [(executor.logs, started)] if harness.logs_are_asked_for else []
    lines = []
    for call in calls:
        harness.spoil(*[status] * 10)
        error = error_of(*call)
        assert isinstance(error, ExecutorUnavailable) == (status in (401, 429, 500, 503))
        lines.append(str(error))
    harness.spoil()
    assert lines[0].startswith("not launched: ")
    assert all(harness.said(status) in line for line in lines[:2])
    assert harness.count() == 1
    # The same executor, once all is well again: the first job is still there, and launches another one.
    executor.check()
    again = executor.launch(harness.job(f"{NAME}0"))
    assert state(executor, again) == state(executor, started) == JobState.QUEUED


@on_remotes
@pytest.mark.parametrize("field", OTHERS)
def test_a_job_with_another_key_is_left_alone(harness, executor, running, field):
    """Another lab may have its name; a copy of a store, or a forged archive, may know its handle."""
    key = running.key._replace(**{field: OTHERS[field]})
    ours = dataclasses.replace(harness.job(NAME), key=key)
    if harness.names_are_unique:
        error = error_of(executor.launch, ours)
        assert "another store" in str(error) and type(error) is ExecutorError
    else:
        assert executor.launch(ours) != running
    harness.prints(running, ["a secret"])
    forged = LaunchedJob(running.handle, key)
    status = executor.statuses([forged])[forged]
    assert (status.state, "another attempt" in status.reason) == (JobState.GONE, True)
    for now in (False, True):
        executor.stop(forged, now=now)
    error_of(executor.logs, forged)
    harness.finish_stop()
    assert state(executor, running) == JobState.RUNNING
    assert b"".join(executor.logs(running)) == b"a secret\n"


@on_remotes
def test_a_slow_answer_is_not_waited_for_for_ever(harness, started):
    harness.answer_late(1.0)
    assert state(harness.executor(answer_seconds=0.05), started) == JobState.UNKNOWN


@on_remotes
def test_a_handle_of_something_else_is_unknown(executor):
    something = LaunchedJob("pid 4711", KEY)
    assert state(executor, something) == JobState.UNKNOWN
    assert "'pid 4711' is not a " in str(error_of(lambda: executor.stop(something, now=True)))


@on_remotes
def test_nobody_sees_the_stores_password(harness, executor, started):
    rendered = repr(executor.render(harness.job(NAME)))
    shown = [rendered, started.handle, harness.shown()]
    harness.run(started)
    assert not [text for text in [*shown, harness.shown()] if "correct-horse" in text]
    assert "JESTLAB_STORE" in rendered


@on_remotes
@pytest.mark.parametrize(
    "leak",
    [
        {"arguments": [f"--store={STORE}"]},
        {"arguments": ["--tracker", "https://ada:correct-horse@tracker.example"]},
        {"environment": {"JESTLAB_STORE": STORE, "OTHER": f"x {STORE}"}},
        {"environment": {"PROXY": "http://ada:p@ss/correct-horse@proxy.example"}},
    ],
)
def test_a_job_that_would_show_a_password_is_refused(harness, executor, leak):
    leaking = dataclasses.replace(harness.job(NAME), **leak)
    if "environment" in leak and not harness.variables_are_shown:
        executor.launch(leaking)
        assert "correct-horse" not in harness.shown()
    else:
        assert re.search("can be (read|seen) by others", str(error_of(executor.launch, leaking)))
        assert harness.count() == 0
