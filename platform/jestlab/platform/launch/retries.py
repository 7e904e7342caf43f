"""The retry policy: which ends of a job count as failures, how often a run is retried, and how long it waits.

Which errors of a program recur, so that no retry helps, is decided in `programs.failures`.
"""

import signal
from dataclasses import dataclass
from datetime import datetime

from jestlab.platform.launch.executors.base import JobState, JobStatus
from jestlab.platform.processes import EXIT_BUSY, EXIT_LATE, EXIT_STOPPED, describe_exit
from jestlab.platform.programs.failures import is_refused
from jestlab.platform.store.records import RunState, Standing

_STOP_CODES = (-signal.SIGTERM, -signal.SIGINT, EXIT_STOPPED)


def judge_end(job: JobStatus) -> tuple[RunState, str]:
    """Return FAILED or PREEMPTED, and the reason, for a job that is over and whose worker stored no end."""
    ending = describe_exit(job.exit_code) if job.exit_code is not None else "failed"
    if job.state == JobState.PREEMPTED:
        return RunState.PREEMPTED, job.reason or "its machines were preempted"
    if job.state == JobState.GONE:
        return RunState.PREEMPTED, job.reason or "its process vanished"
    if job.exit_code == EXIT_BUSY:
        return RunState.PREEMPTED, "its worker could not store its end"
    if job.exit_code == EXIT_LATE:
        return RunState.PREEMPTED, "ended at its time limit"
    if job.exit_code in _STOP_CODES:
        return RunState.PREEMPTED, ending
    if job.state == JobState.SUCCEEDED:
        return RunState.FAILED, "ended without completing"
    return RunState.FAILED, job.reason or ending


@dataclass(frozen=True)
class RetryRules:
    """When a run is retried.

    Attributes:
        retries: Number of further attempts after failures. Preemptions do not count.
        backoff_seconds: Wait before the first retry; each further wait is four times as long.
        max_backoff_seconds: Longest wait.
        max_fruitless: Number of consecutive preemptions without a step of progress after which the run fails.
    """

    retries: int
    backoff_seconds: float
    max_backoff_seconds: float
    max_fruitless: int = 10

    def may_retry(self, run: Standing) -> bool:
        """Return whether a FAILED run is tried again."""
        # A retry can't fix wrong code or input, nor a run that was preempted too often.
        preempted = run.lease is not None and run.lease.state == RunState.PREEMPTED
        return not (is_refused(run) or preempted or run.failures > self.retries)

    def gives_up_preempted(self, run: Standing) -> bool:
        """Return whether a PREEMPTED run fails, because its last attempts made no progress."""
        return run.fruitless >= self.max_fruitless

    def wait_seconds(self, failures: int) -> float:
        """Return the wait after a number of failures: 0, 2, 8, 32, … for a backoff of 2 s."""
        if failures <= 0:
            return 0.0
        return float(min(self.backoff_seconds * 4 ** (failures - 1), self.max_backoff_seconds))

    def seconds_left(self, run: Standing, now: datetime) -> float:
        """Return the remaining wait after the last attempt; 0 if its end is in the future of this clock."""
        if run.lease is None or run.lease.ended_at is None:
            return 0.0
        wait = self.wait_seconds(max(run.failures, run.fruitless - 1))
        waited = (now - run.lease.ended_at).total_seconds()
        return max(0.0, wait - waited) if waited >= 0 else 0.0
