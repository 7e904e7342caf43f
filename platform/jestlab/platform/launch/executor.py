"""Where jobs run: one small interface for this machine, Vertex AI and Kubernetes.

A job is one attempt at one run: `python -m jestlab.platform.worker …` on one machine, or on every host of a
TPU slice at once. An executor holds no state that matters: whoever has its handle and marks from the store,
and the same credentials, can ask for it, stop it and read its log from another process. A job without the
marks is somebody else's, whatever its handle: it is neither watched, stopped nor read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jestlab.platform.errors import UserError

if TYPE_CHECKING:
    from jestlab.platform.store.records import Lease


class Marks(NamedTuple):
    """What the job of one attempt bears, and no other job.

    Attributes:
        store: The store's id.
        fingerprint: The run's.
        attempt: Number of the attempt.
        token: A secret of the attempt, 32 hexadecimal digits, that no copy of the store and no archive has.
    """

    store: str
    fingerprint: str
    attempt: int
    token: str

    @property
    def labels(self) -> dict[str, str]:
        """Return the marks as labels, which have 63 characters at most."""
        return {
            "store": self.store,
            "fingerprint": self.fingerprint[:32],
            "attempt": str(self.attempt),
            "token": self.token,
        }

    def __str__(self) -> str:
        return ".".join(self.labels.values())


class LaunchedJob(NamedTuple):
    """A job that was launched: its handle, by which its executor finds it, and the marks that it bears."""

    handle: str
    marks: Marks

    @classmethod
    def of(cls, store: str, lease: Lease) -> LaunchedJob | None:
        """Return an attempt's job, by the store's id; None if this store knows of none that it launched."""
        if lease.handle is None or lease.token is None:
            return None
        return cls(lease.handle, Marks(store, lease.fingerprint, lease.number, lease.token))


class JobState(StrEnum):
    """State of a job, as far as its executor knows."""

    QUEUED = "queued"  # accepted; none of its processes has started
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"  # its machines were taken away; not the run's fault
    GONE = "gone"  # no such job: it never existed, was deleted, or is not the attempt's
    UNKNOWN = "unknown"  # cannot be found out now, or from here

    @property
    def is_over(self) -> bool:
        """Whether it has ended; what it may have left behind is ended by `Executor.stop`."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.PREEMPTED, JobState.GONE)


@dataclass(frozen=True)
class JobStatus:
    """State of a job.

    Attributes:
        reason: Why, in words; may be empty.
        exit_code: Of its (first) process, minus the signal's number when a signal ended it; None where the
            executor does not know.
        place: Of a job that waits: its place in the queue and its estimated start, in words, where the
            executor tells.
        unblock: Of a job that waits: what would let it begin, in words, where that is known.
        requeued: Of a job that waits: whether it had begun before, and was put back into the queue.
    """

    state: JobState
    reason: str = ""
    exit_code: int | None = None
    place: str = ""
    unblock: str = ""
    requeued: bool = False

    @property
    def waits(self) -> str | None:
        """Why it has not begun, in three lines: the reason, its place, what would unblock it."""
        lines = (" ".join(line.split()) for line in (self.reason, self.place, self.unblock))
        return "\n".join(lines).rstrip("\n") or None


@dataclass(frozen=True)
class Job:
    """One attempt, as an executor launches it.

    Attributes:
        name: Unique to this attempt and a DNS label: `jestlab-<store6>-<fingerprint8>-<number>`.
            Launching a name again does not start a second job.
        title: What people call the run.
        arguments: Of `python -m jestlab.platform.worker`.
        environment: Variables beyond the executor's own. The store's URL with its password is in
            `JESTLAB_STORE`: where manifests can be read by others, it has to come from a secret.
        log: File of the run's log, where it is on a file system of this machine.
        marks: What it has to bear.
        labels: Short strings by which people find the job: experiment, run, seed.
        imports: Modules that take long to import and that all jobs of its kind need: an executor may start it
            from a process that has them.
        module: What is executed.
    """

    name: str
    title: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    log: Path
    marks: Marks
    labels: Mapping[str, str] = field(default_factory=dict)
    imports: Sequence[str] = ()
    module: str = "jestlab.platform.worker"

    @property
    def command(self) -> list[str]:
        """The command that it is on this machine: this Python, the module and its arguments."""
        return [sys.executable, "-m", self.module, *self.arguments]


class ExecutorError(UserError):
    """A job could not be launched or stopped; the message says why and what to do, in one line."""


class StillRuns(ExecutorError):
    """Processes of a job were killed and run all the same; the message names them."""


class ExecutorAway(ExecutorError):
    """The executor cannot be used now: no answer, too many requests, or an expired login. Retry later."""


class Executor(Protocol):
    """Launches jobs and finds them again.

    Methods block, and may be called from several threads at once. A class of one's own derives from this one,
    takes `(lab, resources, on_exit, **options)` and defines `launch`, `statuses`, `stop` and `logs`; what the
    others do here is right where jobs wait elsewhere. `jestlab.testing.check_executor` tries it.

    Attributes:
        name: As specs and the store say it: local, vertex, kubernetes, or where one of one's own is.
        here: Whether its jobs run on this machine: then they may use a store in a SQLite file, data and
            scripts are checked when a study is planned, and it writes the output of a job to `Job.log`.
        chips: Accelerator chips that each job occupies.
        parallel: Jobs at a time where the study does not say; None for as many as there are.
        grace_seconds: How long a job that was asked to stop may take to save.
    """

    name: str
    here: bool = False
    chips: int = 0
    parallel: int | None = None
    grace_seconds: float = 30.0

    def has_room(self) -> bool:
        """Whether one more job would be accepted now, beside those that run."""
        return True

    def room(self) -> int | None:
        """How many more jobs would be accepted now, beside those that run; None for any number."""
        return None

    def launch(self, job: Job) -> LaunchedJob:
        """Start a job, or find it if its name was launched before.

        Returns:
            The job; its handle is kept in the store, so that any other process finds it.

        Raises:
            ExecutorAway: It could not be started now. Nothing of it is left, or launching again finds it.
            ExecutorError: It was refused, and would be again.
        """

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Start several jobs, or find those whose names were launched before.

        Returns:
            For each of them, in their order, the job, or why it could not be started, as `launch` raises it.
            A class that can start many at once does so here; this one starts one after another.
        """
        return [launched_or_error(self.launch, job) for job in jobs]

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the states of jobs: one for each, UNKNOWN where nothing can be known."""

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Ask a job to stop, or kill it now, without time to save; a job that is over stays as it is.

        With `now`, all processes that it has left behind are killed, too. On this machine they have ended
        when this returns.

        Raises:
            StillRuns: Some of them run all the same.
            ExecutorAway: The executor cannot be reached now; the job may still run.
            ExecutorError: The job may still run; the message says why.
        """

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Return what the job has printed so far, in pieces.

        Raises:
            ExecutorAway: It cannot be read now.
            ExecutorError: There is no log, or it cannot be read from here.
        """

    def render(self, job: Job) -> dict[str, Any] | None:
        """Return the manifest that `launch` would send, without credentials; None if there is none."""
        return None

    def halt(self) -> None:
        """Launch nothing any more, not even what is being launched now. Returns at once."""
        return

    def settle(self, seconds: float) -> None:
        """Wait, for so long at most, until the jobs of this machine that this object launched have ended."""
        return

    def close(self) -> None:
        """End what this object runs to launch jobs; the jobs go on. Nothing is launched after this."""
        return


def launched_or_error(launch: Callable[[Job], LaunchedJob], job: Job) -> LaunchedJob | ExecutorError:
    """Return the job that `launch` starts, or the error that it raises."""
    try:
        return launch(job)
    except ExecutorError as error:
        return error
