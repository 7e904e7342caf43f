"""Decide what to do about a run now, and when to retry it: a pure function of what is known of it.

The controller asks this for every run again and again, with what the store and its executor say, and does
what it says. Retry rules are here: what is retried, how often and after how long (`RetryRules`
says where its values come from), and which end of a job counts as a failure.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from jestlab.platform.launch.executors.base import JobState, JobStatus
from jestlab.platform.processes import EXIT_BUSY, EXIT_STOPPED, describe_exit
from jestlab.platform.programs.failures import is_refused, reason_of
from jestlab.platform.store.records import Lease, RunState, Standing

_ASKED_TO_STOP = (-signal.SIGTERM, -signal.SIGINT, EXIT_STOPPED)


class Target(Protocol):
    """A run as far as launching is concerned: what it is called, and what it waits for."""

    @property
    def fingerprint(self) -> str:
        """Identity of the run, a SHA-256 hash."""

    @property
    def name(self) -> str:
        """Name of the run in its study."""

    @property
    def label(self) -> str:
        """Name and values on the axes."""

    @property
    def seed(self) -> int:
        """Number of the replicate, from 0."""

    @property
    def program(self) -> str:
        """Name of the program that it executes."""

    @property
    def needs(self) -> Mapping[str, str]:
        """Role → fingerprint of each run that it depends on."""


@dataclass(frozen=True)
class RetryRules:
    """When a run is tried again.

    The retries are the spec's (`resources.retries`) or those of `--retries`; the waits are those of
    `wakeup.Intervals`, which the environment may set.

    Attributes:
        retries: How often a run that failed is tried again. Preemptions do not count.
        backoff_seconds: Wait before the first retry; before each further one it is four times as long.
        max_backoff_seconds: The longest wait.
        max_fruitless: Preempted attempts in a row without a step of progress, until the run is given up.
    """

    retries: int
    backoff_seconds: float
    max_backoff_seconds: float
    max_fruitless: int = 10

    def wait_seconds(self, failures: int) -> float:
        """Return the wait after this many failures; 0 after none. From 2 s it grows: 8 s, 32 s, …"""
        if failures <= 0:
            return 0.0
        return float(min(self.backoff_seconds * 4 ** (failures - 1), self.max_backoff_seconds))

    def seconds_left(self, run: Standing, now: datetime) -> float:
        """Return how long a run still waits after its last attempt; 0 also if clocks differ too much."""
        if run.lease is None or run.lease.ended_at is None:
            return 0.0
        wait = self.wait_seconds(max(run.failures, run.fruitless - 1))
        waited = (now - run.lease.ended_at).total_seconds()
        return max(0.0, wait - waited) if waited >= 0 else 0.0


@dataclass(frozen=True)
class Wait:
    """Do nothing now; `reason` says why the job has not begun, if that is known."""

    reason: str | None = None


@dataclass(frozen=True)
class Done:
    """Leave the run in this state until it is launched again."""

    state: RunState
    reason: str | None = None


@dataclass(frozen=True)
class Enter:
    """Give a run that no attempt holds this state."""

    state: RunState
    reason: str | None = None


@dataclass(frozen=True)
class Claim:
    """Start an attempt, if a slot is free."""


@dataclass(frozen=True)
class Adopt:
    """Take over its attempt, whose launcher has gone."""

    lease: Lease


@dataclass(frozen=True)
class Stop:
    """Stop the job of its attempt."""

    lease: Lease


@dataclass(frozen=True)
class End:
    """End its attempt, whose worker cannot do so any more.

    Attributes:
        state: What attempt and run become.
        exit_code: Of the process, where it is known.
        kill: Whether something of the job may be left that has to be killed first.
    """

    lease: Lease
    state: RunState
    reason: str
    exit_code: int | None = None
    kill: bool = False


Action = Wait | Done | Enter | Claim | Adopt | Stop | End


@dataclass(frozen=True)
class Signs:
    """What is known of a run's live attempt beyond its row in the store; the defaults are for none.

    Attributes:
        job: State of its job; None without one.
        ours: Whether this controller looks after the attempt.
        orphaned: Whether no controller does: its launcher has gone.
        silent_seconds: How long this controller has seen no sign of life of it.
    """

    job: JobStatus | None = None
    ours: bool = False
    orphaned: bool = False
    silent_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Seen(Signs):
    """What a controller sees of a run beyond the store.

    Attributes:
        needs: Runs that it depends on: the title of each, and the state in which it will stay, None where
            that is open. Several may have one title.
        stopping: Why this controller stops everything; None if it does not.
        elsewhere: The lab that has the files of the run's last attempt, in words, if it is not this one.
        missing: Which needed run another lab completed whose files are not here; None if there is none.
        now: The time, as the store has it.
    """

    needs: Sequence[tuple[str, RunState | None]]
    stopping: str | None
    now: datetime
    elsewhere: str | None = None
    missing: str | None = None


def decide(run: Standing, seen: Seen, rules: RetryRules) -> Action:
    """Decide what to do about a run now, from its row in the store and what else is known."""
    if run.state == RunState.COMPLETED:
        return Done(run.state)
    if run.lease is not None and run.lease.is_live:
        return _held(run, run.lease, seen)
    return _free(run, seen, rules)


def _held(run: Standing, lease: Lease, seen: Seen) -> Action:
    """Decide about a run that an attempt holds."""
    if seen.elsewhere is not None and run.stop_reason is None:
        return _of_another_lab(run, lease, seen, seen.elsewhere)
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
        if silent and job.state != JobState.RUNNING:  # its machine has gone, or cannot be reached
            reason = f"{stopping}; whether it still runs could not be found out"
            return End(lease, RunState.CANCELLED, reason, kill=True)
        return Stop(lease)
    if seen.stopping is not None and not seen.ours:
        return Done(run.state, "by another launch")  # which goes on
    if lease.state == RunState.PENDING and job.state == JobState.QUEUED:
        return Wait(job.waits)  # for as long as it takes
    if seen.ours and job.state == JobState.QUEUED and job.requeued:
        # Its worker has gone; the next attempt goes on from the last checkpoint.
        return End(lease, RunState.PREEMPTED, "its job was put back into the queue", kill=True)
    if silent and (seen.ours or job.state == JobState.UNKNOWN):
        reason = f"no sign of life for {seen.silent_seconds:.0f} s"
        return End(lease, RunState.PREEMPTED, reason, kill=True)
    return Wait()


def _of_another_lab(run: Standing, lease: Lease, seen: Seen, lab: str) -> Action:
    """Decide about a run that another lab's attempt holds: its launchers look after it, or nobody does."""
    if seen.stopping is not None:
        return Done(run.state, f"in the lab at {lab}")  # which goes on
    job = seen.job or JobStatus(JobState.UNKNOWN)
    if seen.silent_seconds > lease.lease_seconds and (job.state.is_over or job.state == JobState.UNKNOWN):
        silent = f"no sign of life for {seen.silent_seconds:.0f} s"
        return Done(run.state, f"in the lab at {lab}, {silent}: launch it there, or cancel it")
    return Wait()


def _ended(lease: Lease, job: JobStatus, stopping: str | None) -> End:
    """End an attempt whose job is over and whose worker has not said how it ended."""
    if stopping is not None:
        return End(lease, RunState.CANCELLED, stopping, job.exit_code)
    state, words = RunState.PREEMPTED, describe_exit(job.exit_code) if job.exit_code is not None else "failed"
    if job.state == JobState.PREEMPTED:
        reason = job.reason or "its machines were taken away"
    elif job.state == JobState.GONE:
        reason = job.reason or "its process vanished"
    elif job.exit_code == EXIT_BUSY:
        reason = "its worker could not tell the store how it ended"
    elif job.exit_code in _ASKED_TO_STOP:
        reason = words
    else:
        state = RunState.FAILED
        reason = "ended without completing" if job.state == JobState.SUCCEEDED else job.reason or words
    return End(lease, state, reason, job.exit_code)


def _free(run: Standing, seen: Seen, rules: RetryRules) -> Action:
    """Decide about a run that no attempt holds."""
    if run.stop_reason is not None:
        if run.state in (RunState.FAILED, RunState.SKIPPED):
            return Done(run.state, run.reason)
        return _settle(run, RunState.CANCELLED, run.stop_reason)
    if run.state == RunState.PREEMPTED and run.fruitless >= rules.max_fruitless:
        return Enter(RunState.FAILED, f"{run.reason}, {run.fruitless} times without a step: given up")
    if run.state == RunState.FAILED:
        # Trying again cannot help where code or input is wrong, or the run was preempted too often.
        refused, preempted = is_refused(run), run.lease and run.lease.state == RunState.PREEMPTED
        if refused or preempted or run.failures > rules.retries:
            return Done(run.state, reason_of(run))
        if seen.stopping is None:
            return Enter(
                RunState.PENDING, f"failed: {run.reason}; tried again ({run.failures} of {rules.retries})"
            )
    for title, state in seen.needs:
        if state not in (None, RunState.COMPLETED, RunState.CANCELLED):
            return _settle(run, RunState.SKIPPED, f"needs {title}, which is {state}")
    if seen.stopping is not None:
        return _settle(run, RunState.CANCELLED, seen.stopping)
    for title, state in seen.needs:
        if state == RunState.CANCELLED:
            return _settle(run, RunState.SKIPPED, f"needs {title}, which is {state}")
    if any(state != RunState.COMPLETED for _, state in seen.needs):
        return Wait()
    if seen.missing is not None:
        return _settle(run, RunState.SKIPPED, seen.missing)
    if rules.seconds_left(run, seen.now):
        return Wait()
    return Claim()


def _settle(run: Standing, state: RunState, reason: str) -> Action:
    return Done(state, run.reason) if run.state == state else Enter(state, reason)
