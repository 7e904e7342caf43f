"""The interface of executors: local processes, Slurm, Kubernetes, Vertex AI, and custom ones.

A job is one attempt at a run: `python -m jestlab.platform.worker …` on one machine, or on every host of a TPU
slice at once. Executors keep no state that matters: any process with a job's handle and key, which the store
records, and the same credentials can query the job, stop it, and read its log. If the job that a handle names
has a different key, it belongs to another attempt, and the executor must not touch it.
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
        token: Secret of the attempt, 32 hexadecimal digits. Copies of the store and archives lack it.
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
    """A launched job: the handle by which its executor finds it, and the key that proves whose it is."""

    handle: str
    key: JobKey

    @classmethod
    def of(cls, store: str, lease: Lease) -> LaunchedJob | None:
        """Return the job of an attempt in the store with this id; None if the store didn't launch one."""
        if lease.handle is None or lease.token is None:
            return None
        return cls(lease.handle, JobKey(store, lease.fingerprint, lease.number, lease.token))


class JobState(StrEnum):
    """State of a job as its executor reports it."""

    QUEUED = "queued"  # accepted; no process has started
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"  # its machines were taken away; not a failure of the run
    GONE = "gone"  # it never existed, was deleted, or belongs to another attempt
    UNKNOWN = "unknown"  # unknown now, or from this machine

    @property
    def is_over(self) -> bool:
        """Whether the job has ended. `Executor.stop` ends any processes that remain."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.PREEMPTED, JobState.GONE)


@dataclass(frozen=True)
class JobStatus:
    """State of a job.

    Attributes:
        reason: Reason of the state; may be empty.
        exit_code: Exit code of the (first) process, negative for a signal; None if unknown.
        place: Estimated start of a queued job, if the executor reports it.
        requeued: Whether a queued job had started before it was put back into the queue.
    """

    state: JobState
    reason: str = ""
    exit_code: int | None = None
    place: str = ""
    requeued: bool = False

    @property
    def waits(self) -> str | None:
        """Why a queued job has not started: the reason, and on a second line the place in the queue."""
        lines = (" ".join(line.split()) for line in (self.reason, self.place))
        return "\n".join(lines).rstrip("\n") or None


def ended(code: int) -> JobStatus:
    """Return the status of a job whose process ended with this code, negative for a signal."""
    if code == EXIT_COMPLETED:
        return JobStatus(JobState.SUCCEEDED, exit_code=code)
    return JobStatus(JobState.FAILED, describe_exit(code), code)


@dataclass(frozen=True)
class Job:
    """One attempt, as an executor launches it.

    Attributes:
        name: Unique DNS label of the attempt: `jestlab-<store6>-<fingerprint8>-<number>`. Launching a name
            again returns its job instead of starting a second one.
        title: Title of the run.
        arguments: Arguments of `python -m jestlab.platform.worker`.
        environment: Variables in addition to the executor's. `JESTLAB_STORE` is the store's URL, with its
            password: where others can read manifests, it must come from a secret.
        log: File of the run's log on this machine's file system.
        key: Identifies the attempt.
        labels: Short labels for users: experiment, run, seed.
        imports: Slow imports that all jobs of this kind share: an executor may start the job from a process
            that has them.
        module: Module to execute.
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

    @property
    def command(self) -> list[str]:
        """Command of the job on this machine: this Python, the module, and its arguments."""
        return [sys.executable, "-m", self.module, *self.arguments]


class ExecutorError(UserError):
    """A job could not be launched or stopped; the message is one line with the reason and the remedy.

    Attributes:
        transient: Whether the call may succeed within seconds, so that the executor repeats it.
    """

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class ProcessesRemain(ExecutorError):
    """Killed processes of a job still run; the message lists them."""


class ExecutorUnavailable(ExecutorError):
    """The executor can't be used now: no answer, rate limit, or expired login. Retry later."""


class Executor(Protocol):
    """Launches jobs and finds them again.

    Methods block, and several threads may call them at once. A custom executor derives from this class, takes
    `(lab, resources, on_exit, **options)`, and defines `launch`, `statuses`, `stop`, and `logs`. The other
    methods have defaults that suit jobs in a remote queue. Test it with `jestlab.testing.check_executor`.

    Attributes:
        name: Name in specs and the store: local, vertex, kubernetes, slurm, or the path of a custom executor.
        here: Whether jobs run on this machine. Such jobs may use a SQLite store, their data and scripts are
            checked when a study is planned, and the executor writes their output to `Job.log`.
        shares_folders: Whether jobs on other machines see this machine's folders under the same paths, as on
            Slurm. Such jobs may use a SQLite store too, unless it is on a network file system.
        chips: Number of accelerator chips of each job.
        parallel: Maximum number of concurrent jobs if the study doesn't set one; None for no maximum.
        grace_seconds: Time that a job has to save after it is asked to stop.
    """

    name: str
    here: bool = False
    shares_folders: bool = False
    chips: int = 0
    parallel: int | None = None
    grace_seconds: float = 30.0

    def room(self) -> int | None:
        """How many more jobs the executor would accept now; None for any number."""
        return None

    def launch(self, job: Job) -> LaunchedJob:
        """Start a job, or find the job of that name. Any other process must find it by its handle.

        Raises:
            ExecutorUnavailable: The job could not be started now: launching it again is safe.
            ExecutorError: The job was rejected, and would be rejected again.
        """

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Start several jobs, or find those whose names were launched before.

        The result has the launched job or the error of each job, in order. Override this method if the
        executor can start many jobs at once.
        """
        return [launched_or_error(self.launch, job) for job in jobs]

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the status of each job: UNKNOWN if the executor can't tell."""

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Ask a job to stop, or with `now` kill it without time to save. A job that is over doesn't change.

        With `now`, all processes that the job left behind are killed too. On this machine, they have ended
        when this returns.

        Raises:
            ProcessesRemain: Some of the processes still run.
            ExecutorUnavailable: The executor can't be reached now; the job may still run.
            ExecutorError: The job may still run; the message gives the reason.
        """

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Yield the job's output so far.

        Raises:
            ExecutorUnavailable: The log can't be read now.
            ExecutorError: The log doesn't exist, or can't be read from this machine.
        """

    def render(self, job: Job) -> dict[str, Any] | str | None:
        """Return a job's manifest, or the text of its batch script, without credentials; None if unsupported.

        A user can submit it by hand, after a manifest is written as YAML.
        """
        return None

    def halt(self) -> None:
        """Launch no further jobs, including those that are being launched. Return at once."""
        return

    def settle(self, seconds: float) -> None:
        """Wait until the local jobs that this object launched have ended, for at most `seconds`."""
        return

    def close(self) -> None:
        """Release what this object uses to launch jobs. The jobs continue; no more can be launched."""
        return


def launched_or_error(launch: Callable[[Job], LaunchedJob], job: Job) -> LaunchedJob | ExecutorError:
    """Return the job that `launch` starts, or the error that it raises."""
    try:
        return launch(job)
    except ExecutorError as error:
        return error
