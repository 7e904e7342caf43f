"""The controller's decision about a run: each case, and invariants of all of them."""

import signal
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform import processes
from jestlab.platform.launch.executors.base import JobState, JobStatus
from jestlab.platform.launch.reconcile import (
    Adopt,
    Done,
    EndAttempt,
    Observation,
    SetState,
    StartAttempt,
    StopJob,
    Wait,
    decide,
)
from jestlab.platform.launch.retries import RetryRules
from jestlab.platform.store.records import LIVE, Lease, RunState, Standing

NOW = datetime(2026, 1, 1, 12)
RULES = RetryRules(retries=2, backoff_seconds=2.0, max_backoff_seconds=300.0)
LEASE_SECONDS = 90.0


def lease(state: RunState = RunState.RUNNING, **changes) -> Lease:
    ended = None if state in LIVE else NOW - timedelta(hours=1)
    made = ("host:1:0", "local", "host:5:0:log", "5ec12e7", LEASE_SECONDS, NOW, ended, None, "log.txt")
    return replace(Lease(7, "f" * 64, 1, state, None, *made), **changes)


def run(state: RunState, held: Lease | None = None, **changes) -> Standing:
    return replace(Standing("f" * 64, state, "because", 0, None, 0, 3, 9, "runs/a", held), **changes)


def seen(job: JobState | JobStatus | None = None, **changes) -> Observation:
    status = JobStatus(job) if isinstance(job, JobState) else job
    made: dict[str, Any] = {"ours": True, "orphaned": False, "silent_seconds": 0.0, "needs": ()}
    return Observation(status, **made | {"stopping": None, "now": NOW} | changes)


LIVING = RunState.RUNNING
RUNNING = run(LIVING, lease())
UNWANTED = run(LIVING, lease(), stop_reason="me")
STARTING = run(RunState.PENDING, lease(RunState.PENDING))
BLOCKED, CANCELLED, COMPLETED = RunState.BLOCKED, RunState.CANCELLED, RunState.COMPLETED
FAILED, PENDING, PREEMPTED, SKIPPED = RunState.FAILED, RunState.PENDING, RunState.PREEMPTED, RunState.SKIPPED
BUSY = JobStatus(JobState.FAILED, "", processes.EXIT_BUSY)
KILLED = JobStatus(JobState.FAILED, "killed by SIGKILL", -9)
SILENT = "no heartbeat for 1 min 31 s"
LOST = f"in the lab at lab, {SILENT}: launch it there, or cancel it"


def failed(failures: int, **changes) -> Standing:
    return run(RunState.FAILED, lease(RunState.FAILED, **changes), failures=failures)


def preempted(fruitless: int = 0, **changes) -> Standing:
    """A run whose last attempt was preempted, after so many in a row without a step."""
    return run(RunState.PREEMPTED, lease(RunState.PREEMPTED, **changes), fruitless=fruitless)


def end(state: RunState, reason: str, exit_code: int | None = None, **changes) -> EndAttempt:
    return EndAttempt(lease(), state, reason, exit_code, **changes)


def requeued(reason: str = "") -> JobStatus:
    return JobStatus(JobState.QUEUED, reason, requeued=True)


def test_a_run_that_makes_no_progress_between_time_limits_fails_and_names_the_key():
    reason = "stopped before its time limit"
    stuck = replace(preempted(fruitless=10), reason=reason)
    failed = SetState(RunState.FAILED, f"{reason}: 10 attempts without progress: increase `resources.time`")
    assert decide(stuck, seen(), RULES) == failed


def skipped(reason: str) -> SetState:
    return SetState(SKIPPED, reason)


FREE = [
    (run(PENDING), seen(), StartAttempt()),
    (run(BLOCKED), seen(needs=[("reference", COMPLETED)]), StartAttempt()),
    (run(BLOCKED), seen(needs=[("reference", None)]), Wait()),
    (run(BLOCKED), seen(needs=[("reference", None)], can_queue=True), StartAttempt()),
    (run(BLOCKED), seen(needs=[("a", FAILED)], can_queue=True), skipped("depends on a, which is FAILED")),
    (run(BLOCKED), seen(needs=[("reference", None), ("reference", COMPLETED)]), Wait()),
    (run(BLOCKED), seen(needs=[("a", None), ("b", FAILED)]), skipped("depends on b, which is FAILED")),
    (run(BLOCKED), seen(needs=[("a", CANCELLED)]), skipped("depends on a, which is CANCELLED")),
    (run(PENDING), seen(missing="needs files"), skipped("needs files")),
    (run(COMPLETED), seen(), Done(COMPLETED)),
    (preempted(), seen(), StartAttempt()),
    (run(CANCELLED, lease(CANCELLED)), seen(), StartAttempt()),  # by another launch's Ctrl-C
    (run(CANCELLED, stop_reason="me"), seen(), Done(CANCELLED, "because")),
    (run(PENDING, stop_reason="me"), seen(), SetState(CANCELLED, "me")),
    (run(FAILED, stop_reason="me"), seen(), Done(FAILED, "because")),
    (run(PENDING), seen(stopping="stop"), SetState(CANCELLED, "stop")),
    (run(CANCELLED), seen(stopping="stop"), Done(CANCELLED, "because")),
    (failed(1), seen(stopping="stop"), SetState(CANCELLED, "stop")),
    (run(BLOCKED), seen(needs=[("a", CANCELLED)], stopping="stop"), SetState(CANCELLED, "stop")),
    (run(BLOCKED), seen(needs=[("a", FAILED)], stopping="stop"), skipped("depends on a, which is FAILED")),
    # it failed
    (failed(2), seen(), SetState(PENDING, "failed: because; retry 2 of 2")),
    (failed(3), seen(), Done(FAILED, "because")),
    (failed(1, exit_code=processes.EXIT_REFUSED), seen(), Done(FAILED, "not retried: because")),
    (run(PENDING, lease(FAILED, ended_at=NOW), failures=1), seen(), Wait()),
    (run(PENDING, lease(FAILED), failures=1), seen(), StartAttempt()),
    (run(PENDING, lease(FAILED, ended_at=NOW + timedelta(seconds=1)), failures=1), seen(), StartAttempt()),
    # it is preempted again and again
    (preempted(1, ended_at=NOW), seen(), StartAttempt()),
    (preempted(2, ended_at=NOW), seen(), Wait()),
    (preempted(9), seen(), StartAttempt()),
    (preempted(10), seen(), SetState(FAILED, "because: 10 attempts without progress")),
    (run(FAILED, lease(PREEMPTED)), seen(), Done(FAILED, "because")),
]
"""Runs that no attempt holds: the run, the observation, and the action."""

HELD = [
    (RUNNING, seen(JobState.RUNNING), Wait()),
    (RUNNING, seen(JobState.RUNNING, stopping="stop"), StopJob(lease())),
    (UNWANTED, seen(JobState.RUNNING, ours=False), StopJob(lease())),
    (RUNNING, seen(JobState.RUNNING, ours=False, orphaned=True), Adopt(lease())),
    (RUNNING, seen(JobState.RUNNING, ours=False, stopping="stop"), Done(LIVING, "in another launch")),
    (STARTING, seen(JobStatus(JobState.QUEUED, "ImagePullBackOff")), Wait("ImagePullBackOff")),
    (STARTING, seen(JobState.QUEUED, silent_seconds=9_000), Wait()),
    (RUNNING, seen(JobStatus(JobState.QUEUED, "its status is old")), Wait()),
    # its job is over
    (RUNNING, seen(KILLED), end(FAILED, "killed by SIGKILL", -9)),
    (RUNNING, seen(KILLED, stopping="stop"), end(CANCELLED, "stop", -9)),
    (RUNNING, seen(JobStatus(JobState.SUCCEEDED, "", 0)), end(FAILED, "ended without completing", 0)),
    (RUNNING, seen(JobState.GONE), end(PREEMPTED, "its process vanished")),
    (RUNNING, seen(JobStatus(JobState.GONE, "deleted")), end(PREEMPTED, "deleted")),
    (RUNNING, seen(JobState.GONE, ours=False, silent_seconds=90), Wait()),  # its launcher sees it as well
    (RUNNING, seen(JobState.GONE, ours=False, silent_seconds=91), end(PREEMPTED, "its process vanished")),
    (RUNNING, seen(JobState.PREEMPTED), end(PREEMPTED, "its machines were preempted")),
    (RUNNING, seen(JobState.FAILED), end(FAILED, "failed")),
    (RUNNING, seen(JobStatus(JobState.FAILED, "", 3)), end(FAILED, "exit code 3", 3)),
    (RUNNING, seen(JobStatus(JobState.PREEMPTED, "node drained")), end(PREEMPTED, "node drained")),
    (RUNNING, seen(BUSY), end(PREEMPTED, "its worker could not store its end", processes.EXIT_BUSY)),
    (
        STARTING,
        seen(JobStatus(JobState.FAILED, "killed by SIGTERM", -signal.SIGTERM)),  # before it had a handler
        EndAttempt(lease(PENDING), PREEMPTED, "killed by SIGTERM", -signal.SIGTERM),
    ),
    # it has to stop, and its executor cannot find out whether it has
    (
        RUNNING,
        seen(JobState.UNKNOWN, stopping="stop", silent_seconds=91),
        end(CANCELLED, "stop; it is unknown whether it still runs", kill=True),
    ),
    (RUNNING, seen(JobState.UNKNOWN, stopping="stop", silent_seconds=60), StopJob(lease())),
    # an API may be slower than the worker; an evicted job would begin a second time
    (RUNNING, seen(JobState.QUEUED), Wait()),
    (RUNNING, seen(JobState.QUEUED, silent_seconds=91), end(PREEMPTED, SILENT, kill=True)),
    # its queue has taken it back
    (RUNNING, seen(requeued()), end(PREEMPTED, "its job was requeued", kill=True)),
    (RUNNING, seen(requeued(), ours=False), Wait()),
    (STARTING, seen(requeued("waits")), Wait("waits")),
    # it is silent
    (RUNNING, seen(JobState.RUNNING, silent_seconds=90), Wait()),
    (RUNNING, seen(JobState.RUNNING, silent_seconds=91), end(PREEMPTED, SILENT, kill=True)),
    (RUNNING, seen(JobState.RUNNING, silent_seconds=91, ours=False), Wait()),
    (run(RunState.RUNNING, lease(lease_seconds=600)), seen(JobState.RUNNING, silent_seconds=599), Wait()),
    (RUNNING, seen(JobState.UNKNOWN, silent_seconds=91, ours=False), end(PREEMPTED, SILENT, kill=True)),
    # it is in another lab
    (RUNNING, seen(JobState.UNKNOWN, other_lab="lab", silent_seconds=90), Wait()),
    (RUNNING, seen(JobState.RUNNING, other_lab="lab", silent_seconds=91), Wait()),
    (RUNNING, seen(JobState.UNKNOWN, other_lab="lab", silent_seconds=91), Done(RunState.RUNNING, LOST)),
    (RUNNING, seen(JobState.GONE, other_lab="lab", silent_seconds=91), Done(RunState.RUNNING, LOST)),
    (UNWANTED, seen(JobState.UNKNOWN, other_lab="lab"), StopJob(lease())),
    (RUNNING, seen(JobState.RUNNING, other_lab="lab", stopping="stop"), Done(LIVING, "in the lab at lab")),
]
"""Runs that an attempt holds."""


@pytest.mark.parametrize(("standing", "sees", "action"), [*FREE, *HELD])
def test_each_case(standing, sees, action):
    assert decide(standing, sees, RULES) == action


@st.composite
def _cases(draw):
    state = draw(st.sampled_from(list(RunState)))
    held = draw(st.none() | st.sampled_from(list(RunState)).map(lease))
    standing = run(
        state,
        held,
        failures=draw(st.integers(0, 4)),
        fruitless=draw(st.sampled_from([0, 3, 10])),
        stop_reason=draw(st.sampled_from([None, "me"])),
    )
    job = draw(st.none() | st.sampled_from(list(JobState)))
    need = draw(st.sampled_from([None, *RunState]))
    sees = seen(
        job,
        ours=draw(st.booleans()),
        orphaned=draw(st.booleans()),
        silent_seconds=draw(st.sampled_from([0.0, 1e3])),
        needs=draw(st.sampled_from([[], [("reference", need)]])),
        stopping=draw(st.sampled_from([None, "stop"])),
    )
    return standing, sees


@given(_cases())
def test_what_holds_always(case):
    standing, sees = case
    action = decide(standing, sees, RULES)
    if isinstance(action, StartAttempt):
        assert not standing.is_live
        assert standing.state != RunState.COMPLETED
        assert standing.stop_reason is None and sees.stopping is None
        assert all(state == RunState.COMPLETED for _, state in sees.needs)
    if isinstance(action, StopJob | EndAttempt | Adopt):
        assert standing.is_live
    if isinstance(action, SetState):
        assert not standing.is_live
        assert standing.state != action.state
    if isinstance(action, EndAttempt) and sees.job is not None and not sees.job.state.is_over:
        assert sees.silent_seconds > LEASE_SECONDS
        assert action.kill
    if standing.state == RunState.COMPLETED:
        assert action == Done(RunState.COMPLETED)


def test_backoff_grows_and_ends():
    assert [RULES.wait_seconds(n) for n in range(6)] == [0, 2, 8, 32, 128, 300]
