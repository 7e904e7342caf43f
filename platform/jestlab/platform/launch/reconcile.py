"""Decide the next action for one run: a pure function of its row in the store and of signs of life.

The controller calls `decide` for every run in each pass and carries out the result. `retries` decides whether
a failed run is tried again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from jestlab.analysis.units import duration
from jestlab.platform.launch.executors.base import JobState, JobStatus
from jestlab.platform.launch.retries import RetryRules, judge_end
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.programs.failures import reason_of
from jestlab.platform.store.claims import LIMIT
from jestlab.platform.store.records import Lease, RunState, RunSummary, Standing

SLOT = "waits for a slot"
"""Start of the reason of a run that could start if fewer others ran."""

Target = PlannedRun | RunSummary
"""A run to launch."""


def title(run: Target) -> str:
    """Return how people call a run: label and seed."""
    return f"{run.label}/{run.seed}"


def is_plain_wait(reason: str | None) -> bool:
    """Return whether a run waits only for a slot or for chip-hours, so that its reason may be replaced."""
    return reason is None or reason.startswith((SLOT, LIMIT))


@dataclass(frozen=True)
class Wait:
    """Do nothing now; `reason` is why the job has not started, if known."""

    reason: str | None = None


@dataclass(frozen=True)
class Done:
    """Leave the run in this state for the rest of the launch."""

    state: RunState
    reason: str | None = None


@dataclass(frozen=True)
class SetState:
    """Give this state to a run without a live attempt."""

    state: RunState
    reason: str | None = None


@dataclass(frozen=True)
class StartAttempt:
    """Start an attempt if a slot is free."""


@dataclass(frozen=True)
class Adopt:
    """Adopt the live attempt of a lost launcher."""

    lease: Lease


@dataclass(frozen=True)
class StopJob:
    """Stop the job of the live attempt."""

    lease: Lease


@dataclass(frozen=True)
class EndAttempt:
    """End a live attempt whose worker can no longer end it."""

    lease: Lease
    state: RunState  # new state of the attempt and the run
    reason: str
    exit_code: int | None = None  # exit code of the process, if known
    kill: bool = False  # whether parts of the job may still run and have to be killed first


Action = Wait | Done | SetState | StartAttempt | Adopt | StopJob | EndAttempt


@dataclass(frozen=True)
class Signs:
    """Signs of life of a live attempt; the defaults are for a run without one."""

    job: JobStatus | None = None  # status of its job; None without a job
    ours: bool = False  # whether this controller manages the attempt
    orphaned: bool = False  # whether its launcher is lost, so that no controller manages it
    silent_seconds: float = 0.0  # seconds since its last new sign of life, as seen by this controller


@dataclass(frozen=True, kw_only=True)
class Observation(Signs):
    """Everything about a run that its row in the store doesn't contain.

    Attributes:
        needs: Title and final state of each run that it depends on; None for a state that is not final.
        stopping: Why this controller stops all runs; None if it doesn't.
        now: Current time, by the clock of the store's rows.
        can_queue: Whether the run's job can wait in the queue for the jobs of its dependencies.
        other_lab: Address of the lab with the files of the last attempt, if it is another lab.
        missing: Why files of a dependency are missing here; None if all exist.
    """

    needs: Sequence[tuple[str, RunState | None]]
    stopping: str | None
    now: datetime
    can_queue: bool = False
    other_lab: str | None = None
    missing: str | None = None


def decide(run: Standing, seen: Observation, rules: RetryRules) -> Action:
    """Return the next action for a run."""
    if run.state == RunState.COMPLETED:
        return Done(run.state)
    if run.lease is not None and run.lease.is_live:
        return _decide_live(run, run.lease, seen)
    return _decide_idle(run, seen, rules)


def _decide_live(run: Standing, lease: Lease, seen: Observation) -> Action:
    """Return the action for a run with a live attempt."""
    if seen.other_lab is not None and run.stop_reason is None:
        return _decide_in_other_lab(run, lease, seen, seen.other_lab)
    if seen.orphaned and not seen.ours:
        return Adopt(lease)
    job = seen.job or JobStatus(JobState.UNKNOWN)
    stopping = run.stop_reason or (seen.stopping if seen.ours else None)
    if job.state.is_over:
        if not seen.ours and seen.silent_seconds <= lease.lease_seconds:
            return Wait()  # its launcher sees it as well, or has claimed it and not launched it yet
        return _end_of(lease, job, stopping)
    silent = seen.silent_seconds > lease.lease_seconds
    if stopping is not None:
        if silent and job.state != JobState.RUNNING:  # its machine is lost or unreachable
            reason = f"{stopping}; it is unknown whether it still runs"
            return EndAttempt(lease, RunState.CANCELLED, reason, kill=True)
        return StopJob(lease)
    if seen.stopping is not None and not seen.ours:
        return Done(run.state, "in another launch")  # which continues
    if lease.state == RunState.PENDING and job.state == JobState.QUEUED:
        return Wait(job.waits)  # without a time limit
    if seen.ours and job.state == JobState.QUEUED and job.requeued:
        # Its worker is lost; the next attempt resumes from the last checkpoint.
        return EndAttempt(lease, RunState.PREEMPTED, "its job was requeued", kill=True)
    if silent and (seen.ours or job.state == JobState.UNKNOWN):
        return EndAttempt(lease, RunState.PREEMPTED, _silence(seen), kill=True)
    return Wait()


def _decide_in_other_lab(run: Standing, lease: Lease, seen: Observation, lab: str) -> Action:
    """Return the action for a run whose live attempt belongs to another lab: only that lab manages it."""
    if seen.stopping is not None:
        return Done(run.state, f"in the lab at {lab}")  # where it continues
    job = seen.job or JobStatus(JobState.UNKNOWN)
    if seen.silent_seconds > lease.lease_seconds and (job.state.is_over or job.state == JobState.UNKNOWN):
        return Done(run.state, f"in the lab at {lab}, {_silence(seen)}: launch it there, or cancel it")
    return Wait()


def _silence(seen: Observation) -> str:
    return f"no heartbeat for {duration(seen.silent_seconds / 3600)}"


def _end_of(lease: Lease, job: JobStatus, stopping: str | None) -> EndAttempt:
    """End an attempt whose job is over and whose worker stored no end."""
    state, reason = (RunState.CANCELLED, stopping) if stopping is not None else judge_end(job)
    return EndAttempt(lease, state, reason, job.exit_code)


def _decide_idle(run: Standing, seen: Observation, rules: RetryRules) -> Action:
    """Return the action for a run without a live attempt."""
    if run.stop_reason is not None:
        if run.state in (RunState.FAILED, RunState.SKIPPED):
            return Done(run.state, run.reason)
        return _settle(run, RunState.CANCELLED, run.stop_reason)
    if run.state == RunState.PREEMPTED and rules.gives_up_preempted(run):
        remedy = ": increase `resources.time`" if "time limit" in (run.reason or "") else ""
        return SetState(RunState.FAILED, f"{run.reason}: {run.fruitless} attempts without progress{remedy}")
    if run.state == RunState.FAILED:
        if not rules.may_retry(run):
            return Done(run.state, reason_of(run))
        if seen.stopping is None:
            reason = f"failed: {run.reason}; retry {run.failures} of {rules.retries}"
            return SetState(RunState.PENDING, reason)
    for title, state in seen.needs:
        if state not in (None, RunState.COMPLETED, RunState.CANCELLED):
            return _settle(run, RunState.SKIPPED, f"depends on {title}, which is {state}")
    if seen.stopping is not None:
        return _settle(run, RunState.CANCELLED, seen.stopping)
    for title, state in seen.needs:
        if state == RunState.CANCELLED:
            return _settle(run, RunState.SKIPPED, f"depends on {title}, which is {state}")
    if any(state != RunState.COMPLETED for _, state in seen.needs) and not seen.can_queue:
        return Wait()
    if seen.missing is not None:
        return _settle(run, RunState.SKIPPED, seen.missing)
    if rules.seconds_left(run, seen.now):
        return Wait()
    return StartAttempt()


def _settle(run: Standing, state: RunState, reason: str) -> Action:
    return Done(state, run.reason) if run.state == state else SetState(state, reason)
