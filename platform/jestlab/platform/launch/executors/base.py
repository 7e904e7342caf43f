"""The interface of executors: local processes, Slurm, Kubernetes, Vertex AI, and custom ones.

A job executes one attempt at a run: `python -m jestlab.platform.worker …` on one machine, or on all of its
machines at once. The store records the job's handle and key. Any process that has both, and the same
credentials, can query the job, stop it, and read its log: it doesn't need the object that launched the job.
If the job with a handle has another key, it belongs to another attempt: executors must not stop or read it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jestlab.platform.errors import UserError
from jestlab.platform.processes import EXIT_COMPLETED, describe_exit

if TYPE_CHECKING:
    from jestlab.platform.store.records import Lease


class JobKey(NamedTuple):
    """Identifies the job of one attempt.

    Attributes:
        store: Id of the store.
        fingerprint: Fingerprint of the run.
        attempt: Number of the attempt.
        token: Secret of the attempt, 32 hexadecimal digits. Archives and copies of the store lack it.
    """

    store: str
    fingerprint: str
    attempt: int
    token: str

    @property
    def labels(self) -> dict[str, str]:
        """Return the key as labels of at most 63 characters."""
        return {
            "store": self.store,
            "fingerprint": self.fingerprint[:32],
            "attempt": str(self.attempt),
            "token": self.token,
        }

    def __str__(self) -> str:
        return ".".join(self.labels.values())


class LaunchedJob(NamedTuple):
    """A launched job: the handle by which its executor finds it, and the key of the attempt it belongs to."""

    handle: str
    key: JobKey

    @classmethod
    def of(cls, store: str, lease: Lease) -> LaunchedJob | None:
        """Return the job of an attempt in the store with id `store`; None if the store didn't launch it."""
        if lease.handle is None or lease.token is None:
            return None
        return cls(lease.handle, JobKey(store, lease.fingerprint, lease.number, lease.token))


class JobState(StrEnum):
    """State of a job as its executor reports it."""

    QUEUED = "queued"  # accepted; no process has started
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"  # ended for a reason outside the run, such as the loss of its machines
    GONE = "gone"  # never existed, was deleted, or belongs to another attempt
    UNKNOWN = "unknown"  # can't be determined now, or not from this machine

    @property
    def is_over(self) -> bool:
        """Whether the job has ended. Processes that it started may remain; `Executor.stop` kills them."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.PREEMPTED, JobState.GONE)


@dataclass(frozen=True)
class JobStatus:
    """State of a job.

    Attributes:
        reason: Reason for the state; may be empty.
        exit_code: Exit code of the (first) process, negative for a signal; None if unknown.
        place: Place in the queue or estimated start of a queued job, as text; empty if unknown.
        requeued: Whether a queued job was already running and was put back into the queue.
    """

    state: JobState
    reason: str = ""
    exit_code: int | None = None
    place: str = ""
    requeued: bool = False

    @property
    def waits(self) -> str | None:
        """Why the job is still queued: `reason` and, on a second line, `place`; None if both are empty."""
        lines = (" ".join(line.split()) for line in (self.reason, self.place))
        return "\n".join(lines).rstrip("\n") or None


def ended(code: int) -> JobStatus:
    """Return the status of a job whose process ended with this exit code, which is negative for a signal."""
    if code == EXIT_COMPLETED:
        return JobStatus(JobState.SUCCEEDED, exit_code=code)
    return JobStatus(JobState.FAILED, describe_exit(code), code)


@dataclass(frozen=True)
class Job:
    """Description of a job to launch.

    Attributes:
        name: Unique DNS label of the attempt: `jestlab-<store6>-<fingerprint8>-<number>`. Launching a second
            job with this name returns the existing one.
        title: Title of the run, for messages and annotations.
        arguments: Arguments of `module`.
        environment: Variables in addition to those that the executor sets. `JESTLAB_STORE` is the store's URL
            with its password: if other people can read a job's manifest, the job must get it from a secret.
        log: File of the run's log on this machine's file system.
        key: Identifies the attempt.
        labels: Short labels for users: experiment, run, seed.
        imports: Modules that are slow to import and that all jobs of this kind import. An executor may fork
            the job from a process that has already imported them.
        module: Module to execute.
        after: Jobs that must complete before this one starts. If one fails, this job is cancelled.
    """

    name: str
    title: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    log: Path
    key: JobKey
    labels: Mapping[str, str] = field(default_factory=dict)
    imports: Sequence[str] = ()
    module: str = "jestlab.platform.worker"
    after: Sequence[LaunchedJob] = ()

    @property
    def command(self) -> list[str]:
        """Command of the job on this machine: this Python, the module, and its arguments."""
        return [sys.executable, "-m", self.module, *self.arguments]


NO_ATTEMPT = JobKey(store="0" * 32, fingerprint="0" * 64, attempt=1, token="0" * 32)
"""Placeholder for the key of a job that isn't launched."""

PROBE = Job("jestlab-check", "check", arguments=(), environment={}, log=Path(), key=NO_ATTEMPT)
"""A job that executors describe to their service to learn whether it would accept jobs."""


class ExecutorError(UserError):
    """An operation on a job failed. The message is one line with the reason, and the remedy if there is one.

    Attributes:
        transient: Whether the operation may succeed within seconds. The executor then repeats it.
    """

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class ProcessesRemain(ExecutorError):
    """Processes of a job were killed but are still running. The message lists them."""


class ExecutorUnavailable(ExecutorError):
    """The executor can't be used now (a timeout, rate limit, or expired login). Launchers retry later."""


class Executor(Protocol):
    """Launches jobs, queries and stops them, and reads their logs.

    Methods block, and several threads may call them at once. A custom executor derives from this class and
    defines `launch`, `statuses`, `stop`, and `logs`; the other methods have defaults for jobs in a remote
    queue. It is created with `(lab, resources, on_exit, **options)`. Check it with
    `jestlab.testing.check_executor`.

    Attributes:
        name: Name in specs and the store: local, vertex, kubernetes, slurm, or the path of a custom executor.
        here: Whether jobs run on this machine. Such jobs may use a SQLite store, their data and scripts are
            checked when a study is planned, and the executor writes their output to `Job.log`.
        shares_folders: Whether jobs on other machines see this machine's folders under the same paths, as on
            Slurm. Such jobs may use a SQLite store too, unless it is on a network file system.
        supports_nodes: Whether a job can have several machines (`Resources.nodes`). The executor starts the
            worker on each, with `JAX_COORDINATOR_ADDRESS` (host:port of the first), `JAX_NUM_PROCESSES`, and
            `JAX_PROCESS_ID` (from 0).
        chips: Number of accelerator chips of each job.
        parallel: Maximum number of concurrent jobs if the study doesn't set one; None for no maximum.
        grace_seconds: Time that a job has to save after it is asked to stop.
    """

    name: str
    here: bool = False
    shares_folders: bool = False
    supports_nodes: bool = False
    chips: int = 0
    parallel: int | None = None
    grace_seconds: float = 30.0

    def check(self) -> None:
        """Raise UserError if no job can be launched now. Called before anything is written.

        The service doesn't answer, or would reject a job. A job that would only wait must not be refused.
        """
        return

    def room(self) -> int | None:
        """Return the number of further jobs that can start now; None for any number."""
        return None

    def launch(self, job: Job) -> LaunchedJob:
        """Start a job; if a job with its name exists, return that one.

        The handle must be enough for any other process to find the job.

        Raises:
            ExecutorUnavailable: The job could not be started now. Launching it again is safe.
            ExecutorError: The job was rejected, and would be rejected again. The launcher doesn't retry it.
        """

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Do the same as `launch` for several jobs, and return each launched job or its error, in order.

        Override this method if the executor can start many jobs at once.
        """
        return [launched_or_error(self.launch, job) for job in jobs]

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the status of each job: UNKNOWN if it can't be determined."""

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Ask a job to stop; with `now`, kill it without time to save. Stopping an ended job has no effect.

        With `now`, kill any processes that the job left behind too. If jobs run `here`, wait until these
        processes have ended.

        Raises:
            ProcessesRemain: Some of these processes are still running.
            ExecutorUnavailable: The executor can't be reached now; the job may still be running.
            ExecutorError: The job may still be running; the message gives the reason.
        """

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Yield the job's output so far.

        Raises:
            ExecutorUnavailable: The log can't be read now.
            ExecutorError: The log doesn't exist, or can't be read from this machine.
        """

    def render(self, job: Job) -> dict[str, Any] | str | None:
        """Return a job's manifest (a dict) or batch script (a string), without credentials.

        Users can submit either by hand: `launch --render` writes manifests as YAML. Return None if the
        executor has neither.
        """
        return None

    def halt(self) -> None:
        """Cancel launches in progress and refuse new ones. Return immediately."""
        return

    def settle(self, seconds: float) -> None:
        """Wait up to `seconds` until the jobs that this object launched on this machine have ended."""
        return

    def close(self) -> None:
        """Release resources for launching jobs; the object can't launch any more. Its jobs continue."""
        return


def launched_or_error(launch: Callable[[Job], LaunchedJob], job: Job) -> LaunchedJob | ExecutorError:
    """Call `launch` and return the launched job, or the ExecutorError that it raises."""
    try:
        return launch(job)
    except ExecutorError as error:
        return error
