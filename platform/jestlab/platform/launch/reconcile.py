"""What to do about a run, from what the store and its executor say of it now: a pure function.

The controller asks this again and again for every run, does what it says, and remembers nothing that it could
not do without: so it may die at any point and be started anywhere.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from jestlab.platform.launch import exits
from jestlab.platform.launch.executor import JobState, JobStatus
from jestlab.platform.store.records import Lease, Standing
from jestlab.platform.store.states import RunState

FIRST_BACKOFF_SECONDS = 2.0
LAST_BACKOFF_SECONDS = 300.0
MOST_FRUITLESS = 10
"""Attempts in a row that are taken away before they get any further, until a run is given up."""

_ASKED_TO_STOP = (-signal.SIGTERM, -signal.SIGINT, exits.STOPPED)


@dataclass(frozen=True)
class Wait:
    """Nothing now.

    Attributes:
        reason: Why its job has not begun; None where that is unknown, or it has.
    """

    reason: str | None = None


@dataclass(frozen=True)
class Done:
    """The run stays in this state until it is launched again.

    Attributes:
        state: COMPLETED, FAILED, CANCELLED or SKIPPED.
        reason: Why.
    """

    state: RunState
    reason: str | None = None


@dataclass(frozen=True)
class Enter:
    """Give a run that nobody holds this state."""

    state: RunState
    reason: str | None = None


@dataclass(frozen=True)
class Claim:
    """Start it, if there is a place."""


@dataclass(frozen=True)
class Adopt:
    """Look after its attempt, whose launcher has gone."""

    lease: Lease


@dataclass(frozen=True)
class Stop:
    """Stop its job."""

    lease: Lease


@dataclass(frozen=True)
class End:
    """End its attempt, whose worker cannot do so any more.

    Attributes:
        lease: The attempt.
        state: What attempt and run become.
        reason: Why.
        exit_code: Of the process, where it is known.
        kill: Whether something of the job may be left that has to be ended first.
    """

    lease: Lease
    state: RunState
    reason: str
    exit_code: int | None = None
    kill: bool = False


Action = Wait | Done | Enter | Claim | Adopt | Stop | End


@dataclass(frozen=True)
class Seen:
    """What a controller sees of a run beyond the store.

    Attributes:
        job: How the job of its live attempt stands; None without one.
        ours: Whether this controller looks after the attempt.
        orphaned: Whether nobody does: its launcher has gone.
        silent_seconds: For how long this controller has seen no sign of life of the attempt.
        needs: How the runs that it needs stand, by what people call them: the state in which each will stay,
            None where that is open.
        stopping: Why this controller stops everything; None if it does not.
        now: The time, as the store has it.
    """

    job: JobStatus | None
    ours: bool
    orphaned: bool
    silent_seconds: float
    needs: Mapping[str, RunState | None]
    stopping: str | None
    now: datetime


def decide(run: Standing, seen: Seen, retries: int) -> Action:
    """What to do about a run now.

    Args:
        run: How it stands in the store.
        seen: What else is known.
        retries: How often a run that failed is tried again. Preemptions do not count.
    """
    if run.state == RunState.COMPLETED:
        return Done(run.state)
    if run.lease is not None and run.lease.is_live:
        return _held(run, run.lease, seen)
    return _free(run, seen, retries)


def _held(run: Standing, lease: Lease, seen: Seen) -> Action:
    """An attempt holds the run."""
    if seen.orphaned and not seen.ours:
        return Adopt(lease)
    job = seen.job or JobStatus(JobState.UNKNOWN)
    stopping = run.stop_reason or (seen.stopping if seen.ours else None)
    if job.state.is_over:
        if not seen.ours and seen.silent_seconds <= lease.lease_seconds:
            return Wait()  # its own launcher sees it, too; or has just claimed it, and not launched it yet
        return _ended(lease, job, stopping)
    silent = seen.silent_seconds > lease.lease_seconds
    if stopping is not None:
        if silent and job.state != JobState.RUNNING:  # its machine has gone, or nobody there can be asked
            return End(lease, RunState.CANCELLED, stopping, kill=True)
        return Stop(lease)
    if seen.stopping is not None and not seen.ours:
        return Done(run.state, "by another launch")  # which nobody stopped
    if lease.state == RunState.PENDING and job.state == JobState.QUEUED:
        return Wait(job.reason or None)  # for as long as it takes
    if silent and (seen.ours or job.state == JobState.UNKNOWN):
        reason = f"no sign of life for {seen.silent_seconds:.0f} s"
        return End(lease, RunState.PREEMPTED, reason, kill=True)
    return Wait()


def _ended(lease: Lease, job: JobStatus, stopping: str | None) -> End:
    """The job is over, and its worker has not said how the attempt ended."""
    if stopping is not None:
        return End(lease, RunState.CANCELLED, stopping, job.exit_code)
    if job.state == JobState.PREEMPTED:
        return End(lease, RunState.PREEMPTED, job.reason or "its machines were taken away", job.exit_code)
    if job.state == JobState.GONE:
        return End(lease, RunState.PREEMPTED, job.reason or "its process vanished", job.exit_code)
    if job.exit_code == exits.BUSY:
        return End(
            lease, RunState.PREEMPTED, "its worker could not tell the store how it ended", job.exit_code
        )
    if job.exit_code in _ASKED_TO_STOP:
        return End(lease, RunState.PREEMPTED, exits.describe(job.exit_code), job.exit_code)
    if job.state == JobState.SUCCEEDED:
        reason = "ended without completing"
    else:
        reason = job.reason or (exits.describe(job.exit_code) if job.exit_code is not None else "failed")
    return End(lease, RunState.FAILED, reason, job.exit_code)


def _free(run: Standing, seen: Seen, retries: int) -> Action:
    """Nobody holds the run."""
    if run.stop_reason is not None:
        if run.state in (RunState.FAILED, RunState.SKIPPED):
            return Done(run.state, run.reason)
        return _settle(run, RunState.CANCELLED, run.stop_reason)
    if run.state == RunState.PREEMPTED and run.fruitless >= MOST_FRUITLESS:
        return Enter(RunState.FAILED, f"{run.reason}, {run.fruitless} times without a step: given up")
    if run.state == RunState.FAILED:
        if run.failures > retries or _is_final(run.lease):
            return Done(run.state, run.reason)
        if seen.stopping is None:
            return Enter(RunState.PENDING, f"failed: {run.reason}; tried again ({run.failures} of {retries})")
    for title, state in seen.needs.items():
        if state not in (None, RunState.COMPLETED, RunState.CANCELLED):
            return _settle(run, RunState.SKIPPED, f"needs {title}, which is {state}")
    if seen.stopping is not None:
        return _settle(run, RunState.CANCELLED, seen.stopping)
    for title, state in seen.needs.items():
        if state == RunState.CANCELLED:
            return _settle(run, RunState.SKIPPED, f"needs {title}, which is {state}")
    if any(state != RunState.COMPLETED for state in seen.needs.values()):
        return Wait()
    if _waited(run, seen.now) < backoff_seconds(max(run.failures, run.fruitless - 1)):
        return Wait()
    return Claim()


def _settle(run: Standing, state: RunState, reason: str) -> Action:
    return Done(state, run.reason) if run.state == state else Enter(state, reason)


def _is_final(lease: Lease | None) -> bool:
    """Whether trying again cannot help: its input is wrong, or it was given up."""
    return lease is not None and (lease.exit_code == exits.REFUSED or lease.state == RunState.PREEMPTED)


def _waited(run: Standing, now: datetime) -> float:
    """Seconds since the last attempt ended; in any case enough where clocks differ too much to say."""
    if run.lease is None or run.lease.ended_at is None:
        return LAST_BACKOFF_SECONDS
    seconds = (now - run.lease.ended_at).total_seconds()
    return seconds if seconds >= 0 else LAST_BACKOFF_SECONDS


def backoff_seconds(failures: int) -> float:
    """How long to wait after this many failures: 2 s, 8 s, 32 s, …, 5 min; 0 after none."""
    if failures <= 0:
        return 0.0
    return float(min(FIRST_BACKOFF_SECONDS * 4 ** (failures - 1), LAST_BACKOFF_SECONDS))
