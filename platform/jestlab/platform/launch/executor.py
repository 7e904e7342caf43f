"""Where jobs run: one small interface for this machine, Vertex AI and Kubernetes.

A job is one attempt at one run: `python -m jestlab.platform.worker …` on one machine, or on every host of a
TPU slice at once. An executor holds no state that matters: whoever knows a job's handle, which is in the
store, and has the same credentials can ask for it, stop it and read its log from another process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from jestlab.platform.errors import UserError

IDENTITY = ("store", "fingerprint", "attempt")
"""Labels of a job that identify its attempt, wherever it was launched. Names are too short for that."""


class JobState(StrEnum):
    """State of a job, as far as its executor knows."""

    QUEUED = "queued"  # accepted; none of its processes has started
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"  # its machines were taken away; not the run's fault
    GONE = "gone"  # no such job: it never existed, or was deleted
    UNKNOWN = "unknown"  # cannot be found out now, or from here

    @property
    def is_over(self) -> bool:
        """Whether none of its processes runs, or will."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.PREEMPTED, JobState.GONE)


@dataclass(frozen=True)
class JobStatus:
    """State of a job.

    Attributes:
        reason: Why, in words; may be empty.
        exit_code: Of its (first) process, minus the signal's number when a signal ended it; None where the
            executor does not know.
    """

    state: JobState
    reason: str = ""
    exit_code: int | None = None


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
        labels: Short strings by which people find the job: experiment, run, seed; and those of `IDENTITY`.
        imports: Modules that take long to import and that all jobs of its kind need: an executor may start it
            from a process that has them.
    """

    name: str
    title: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    log: Path
    labels: Mapping[str, str] = field(default_factory=dict)
    imports: Sequence[str] = ()


class ExecutorError(UserError):
    """A job could not be launched or stopped; the message says why and what to do, in one line."""


class ExecutorAway(ExecutorError):
    """The executor cannot be used now: no answer, too many requests, or an expired login. Retry later."""


class Executor(Protocol):
    """Launches jobs and finds them again.

    Methods block, and may be called from several threads at once.

    Attributes:
        name: As specs and the store say it: local, vertex, kubernetes.
        chips: Accelerator chips that each job occupies.
        parallel: Jobs at a time where the study does not say; None for as many as there are.
        grace_seconds: How long a job that was asked to stop may take to save.
    """

    name: str
    chips: int
    parallel: int | None
    grace_seconds: float

    def has_room(self) -> bool:
        """Whether one more job would be accepted now, beside those that run."""

    def launch(self, job: Job) -> str:
        """Start a job, or find it if its name was launched before.

        Returns:
            Its handle, which the store keeps: enough for any other process to find the job.

        Raises:
            ExecutorAway: It could not be started now. Nothing of it is left, or launching again finds it.
            ExecutorError: It was refused, and would be again.
        """

    def statuses(self, handles: Sequence[str]) -> dict[str, JobStatus]:
        """Return the states of jobs by handle: one for every handle, UNKNOWN where nothing can be known."""

    def stop(self, handle: str, *, now: bool) -> None:
        """Ask a job to stop, or kill it now, without time to save; does nothing to a job that is over.

        Raises:
            ExecutorAway: The executor cannot be reached now; the job may still run.
            ExecutorError: The job may still run; the message says why.
        """

    def logs(self, handle: str) -> Iterator[bytes]:
        """Return what the job has printed so far, in pieces.

        Raises:
            ExecutorAway: It cannot be read now.
            ExecutorError: There is no log, or it cannot be read from here.
        """

    def render(self, job: Job) -> dict[str, Any] | None:
        """Return the manifest that `launch` would send, without credentials; None if there is none."""

    def close(self) -> None:
        """End what this object runs to launch jobs; the jobs go on. Nothing is launched after this."""
