"""What every executor guarantees, checked for each of them: real clients that talk to real servers."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from executor_harnesses import HARNESSES, KEY, STORE, VertexHarness, ready

from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    ExecutorUnavailable,
    JobState,
    LaunchedJob,
)
from jestlab.testing.executors import CASES, Harness

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
def harness(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    if request.param not in HARNESSES:
        yield request.getfixturevalue(f"{request.param}_harness")
        return
    with ready(HARNESSES[request.param](tmp_path, monkeypatch), monkeypatch) as made:
        yield made


@pytest.fixture(params=["vertex", *ON_CLUSTERS])
def remote(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param != "vertex":
        yield request.getfixturevalue(f"{request.param}_harness")
        return
    with ready(VertexHarness(tmp_path, monkeypatch), monkeypatch) as made:
        yield made


def state(executor: Executor, started: LaunchedJob) -> JobState:
    return executor.statuses([started])[started].state


def launched(harness: Any) -> tuple[Any, LaunchedJob]:
    executor = harness.executor()
    return executor, executor.launch(harness.job(NAME))


def running(harness: Any) -> tuple[Any, LaunchedJob]:
    executor, started = launched(harness)
    harness.run(started)
    return executor, started


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_executor_passes_the_contract(harness, case):
    """`testing.check_executor` checks custom executors in the same way."""
    case(harness)


@pytest.mark.parametrize(("code", "known_as"), [(1, 1), (143, 143)])
def test_a_job_that_fails_says_how_its_process_ended(harness, code, known_as):
    executor, started = running(harness)
    harness.end(started, code)
    status = executor.statuses([started])[started]
    assert (status.state, status.exit_code) == (JobState.FAILED, known_as)
    assert status.reason


def test_machines_that_are_taken_away_are_no_failure(remote):
    executor, started = running(remote)
    remote.preempt(started)
    assert state(executor, started) == JobState.PREEMPTED


def test_one_that_stops_is_not_over_before_it_is(remote):
    executor, started = running(remote)
    executor.stop(started, now=False)
    assert state(executor, started) == JobState.RUNNING
    executor.stop(started, now=True)  # asked for again, harder


def test_a_job_that_somebody_removed_is_gone(remote):
    """Or preempted, if the service remembers it: the run continues in another job."""
    executor = remote.executor()
    gone = JobState.PREEMPTED if remote.remembers_removed else JobState.GONE
    all_started = [executor.launch(remote.job(f"{NAME}{number}")) for number in range(10)]
    for started in all_started:
        remote.vanish(started)
    assert state(executor, all_started[0]) == gone
    assert {status.state for status in executor.statuses(all_started).values()} == {gone}
    executor.stop(all_started[0], now=False)
    with pytest.raises(ExecutorError) as raised:
        b"".join(executor.logs(all_started[0]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_error_that_passes_is_waited_out(remote, status):
    executor = remote.executor()
    remote.spoil(status, status)
    started = executor.launch(remote.job(NAME))
    remote.spoil(status)
    assert state(executor, started) == JobState.QUEUED
    remote.spoil(status, status)
    executor.stop(started, now=False)


def test_a_launch_whose_answer_is_lost_is_one_job(remote):
    executor = remote.executor()
    remote.lose_an_answer()
    started = executor.launch(remote.job(NAME))
    assert remote.count() == 1
    assert state(executor, started) == JobState.QUEUED


def test_where_nobody_answers_a_job_is_unknown_and_calls_are_errors(remote):
    executor, started = launched(remote)
    with remote.outage():
        status = executor.statuses([started])[started]
        assert status.state == JobState.UNKNOWN
        assert status.reason
        for call in (
            lambda: executor.stop(started, now=False),
            *([lambda: b"".join(executor.logs(started))] if remote.logs_are_asked_for else []),
            lambda: executor.launch(remote.job(f"{NAME}0")),
        ):
            with pytest.raises(ExecutorUnavailable) as raised:
                call()
            assert "\n" not in str(raised.value)
    assert state(executor, started) == JobState.QUEUED


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 500, 503])
def test_a_refusal_is_final_only_if_it_would_come_again(remote, status):
    """Either way it is one line without secrets, and nothing was launched."""
    executor, started = launched(remote)
    refused = ""
    if status in (401, 403, 500):
        remote.spoil(*[status] * 5)
        assert state(executor, started) == JobState.UNKNOWN
    for call in (
        lambda: executor.launch(remote.job(f"{NAME}0")),
        *([lambda: b"".join(executor.logs(started))] if remote.logs_are_asked_for else []),
    ):
        remote.spoil(*[status] * 10)
        with pytest.raises(ExecutorError) as raised:
            call()
        remote.spoil()
        assert isinstance(raised.value, ExecutorUnavailable) == (status in (401, 429, 500, 503))
        line = str(raised.value)
        assert "\n" not in line
        assert not {"correct-horse", "the-users-token"} & set(re.split("[ :@]", line))
        if line.startswith("quickstart joint, seed 1 was not launched: "):
            refused = line
    assert refused and remote.said(status) in refused
    assert remote.count() == 1
    # The same executor, once all is well again: the first job is still there, and launches another one.
    again = executor.launch(remote.job(f"{NAME}0"))
    assert state(executor, again) == state(executor, started) == JobState.QUEUED


def test_another_labs_job_of_the_same_name_is_left_alone(remote):
    """The fingerprints of two labs' runs are the same where their configs are."""
    executor, theirs = running(remote)
    for field, value in OTHERS.items():
        ours = dataclasses.replace(remote.job(NAME), key=theirs.key._replace(**{field: value}))
        if remote.names_are_unique:
            with pytest.raises(ExecutorError, match="another store") as raised:
                executor.launch(ours)
            assert not isinstance(raised.value, ExecutorUnavailable)
        else:
            assert executor.launch(ours) != theirs
        assert state(executor, theirs) == JobState.RUNNING


@pytest.mark.parametrize("field", OTHERS)
def test_a_job_with_another_key_is_neither_watched_nor_stopped_nor_read(remote, field):
    """As a copy of a store, or a forged archive, may know its handle."""
    executor, theirs = running(remote)
    remote.prints(theirs, ["a secret"])
    forged = LaunchedJob(theirs.handle, theirs.key._replace(**{field: OTHERS[field]}))
    status = executor.statuses([forged])[forged]
    assert (status.state, "another attempt" in status.reason) == (JobState.GONE, True)
    for now in (False, True):
        executor.stop(forged, now=now)
    with pytest.raises(ExecutorError):
        b"".join(executor.logs(forged))
    remote.finish_stop()
    assert state(executor, theirs) == JobState.RUNNING
    assert b"".join(executor.logs(theirs)) == b"a secret\n"


def test_a_slow_answer_is_not_waited_for_for_ever(remote):
    started = remote.executor().launch(remote.job(NAME))
    remote.answer_late(1.0)
    assert state(remote.executor(answer_seconds=0.05), started) == JobState.UNKNOWN


def test_a_handle_of_something_else_is_unknown(remote):
    executor = remote.executor()
    something = LaunchedJob("pid 4711", KEY)
    assert state(executor, something) == JobState.UNKNOWN
    with pytest.raises(ExecutorError, match=r"'pid 4711' is not a "):
        executor.stop(something, now=True)


def test_nobody_sees_the_stores_password(remote):
    executor = remote.executor()
    rendered = repr(executor.render(remote.job(NAME)))
    started = executor.launch(remote.job(NAME))
    shown = [rendered, started.handle, remote.shown()]
    remote.run(started)
    assert not [text for text in [*shown, remote.shown()] if "correct-horse" in text]
    assert "JESTLAB_STORE" in rendered


@pytest.mark.parametrize(
    "leak",
    [
        {"arguments": [f"--store={STORE}"]},
        {"arguments": ["--tracker", "https://ada:correct-horse@tracker.example"]},
        {"environment": {"JESTLAB_STORE": STORE, "OTHER": f"x {STORE}"}},
        {"environment": {"PROXY": "http://ada:p@ss/correct-horse@proxy.example"}},
    ],
)
def test_a_job_that_would_show_a_password_is_refused(remote, leak):
    executor = remote.executor()
    leaking = dataclasses.replace(remote.job(NAME), **leak)
    if "environment" in leak and not remote.variables_are_shown:
        executor.launch(leaking)
        assert "correct-horse" not in remote.shown()
        return
    with pytest.raises(ExecutorError, match=r"can be (read|seen) by others") as raised:
        executor.launch(leaking)
    assert "correct-horse" not in str(raised.value)
    assert remote.count() == 0
