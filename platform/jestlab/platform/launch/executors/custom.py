"""Executors of one's own: created from a name, and guarded, so that what they raise is told in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jestlab.models import extensions
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import (
    Executor,
    ExecutorError,
    Job,
    JobState,
    JobStatus,
    LaunchedJob,
)
from jestlab.platform.spec.resources import Resources

_METHODS = ("launch", "statuses", "stop", "logs")


def create(
    name: str,
    lab: Lab,
    resources: Resources | None,
    on_exit: Callable[[], None],
    options: Mapping[str, Any],
) -> Guarded:
    """Create an executor of one's own.

    Args:
        name: Where it is, or its entry point: a class, or a function that returns an executor.
        lab: Where its jobs write.
        resources: Those of the study; None for an executor that finds jobs and launches none.
        on_exit: What it may call when a job has ended, to be asked sooner.
        options: Its further arguments.

    Raises:
        UserError: It cannot be imported or created, or lacks a method.
    """
    factory = _class_of(name)
    try:
        executor = factory(lab, resources, on_exit, **options)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"the executor {name} cannot be created: {_in_words(error)}") from error
    for method in _METHODS:
        if not callable(getattr(executor, method, None)):
            raise UserError(f"the executor {name} has no method {method!r}: see launch/executors/base.py")
    return Guarded(name, executor)


def _class_of(name: str) -> Any:
    try:
        return extensions.load("executor", name)
    except ValueError as error:
        raise UserError(str(error)) from None


class Guarded(Executor):
    """An executor of one's own as the launcher uses it.

    What it does not define is as `Executor` has it. An exception that is no `ExecutorError` becomes one, with
    its name: a launcher goes on when one job cannot be launched.
    """

    def __init__(self, name: str, executor: Any) -> None:
        """Guard an executor; `name` is what specs and the store say."""
        self.name = name
        self._own = executor
        self.here = bool(getattr(executor, "here", Executor.here))
        self.chips = int(getattr(executor, "chips", Executor.chips))
        self.parallel = getattr(executor, "parallel", Executor.parallel)
        self.grace_seconds = float(getattr(executor, "grace_seconds", Executor.grace_seconds))

    def launch(self, job: Job) -> LaunchedJob:
        """Start a job, or find it."""
        with self._guard("launch"):
            return self._named(self._own.launch(job), job)

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        """Start several jobs, at once if the class can do so."""
        if getattr(type(self._own), "launch_all", Executor.launch_all) is Executor.launch_all:
            return super().launch_all(jobs)
        with self._guard("launch_all"):
            launched = list(self._own.launch_all(jobs))
            if len(launched) != len(jobs):
                raise ValueError(f"{len(launched)} answers for {len(jobs)} jobs")
            return [
                each if isinstance(each, ExecutorError) else self._named(each, job)
                for each, job in zip(launched, jobs, strict=True)
            ]

    @staticmethod
    def _named(launched: Any, job: Job) -> LaunchedJob:
        if isinstance(launched, str):
            return LaunchedJob(launched, job.key)
        return LaunchedJob(str(launched.handle), launched.key)

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        """Return the states of jobs; UNKNOWN where it fails."""
        try:
            with self._guard("statuses"):
                found = dict(self._own.statuses(jobs))
        except ExecutorError as error:
            return dict.fromkeys(jobs, JobStatus(JobState.UNKNOWN, str(error)))
        untold = JobStatus(JobState.UNKNOWN, f"{self.name} does not say")
        return {job: found.get(job, untold) for job in jobs}

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        """Ask a job to stop, or kill it."""
        with self._guard("stop"):
            self._own.stop(job, now=now)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        """Return what a job has printed so far."""
        with self._guard("logs"):
            yield from self._own.logs(job)

    def has_room(self) -> bool:
        """Whether one more job would be accepted now."""
        with self._guard("has_room"):
            return bool(self._call("has_room", default=True))

    def room(self) -> int | None:
        """How many more jobs would be accepted now; None for any number."""
        with self._guard("room"):
            found = self._call("room")
            return None if found is None else int(found)

    def render(self, job: Job) -> dict[str, Any] | str | None:
        """Return the manifest of a job; None if there is none."""
        with self._guard("render"):
            rendered: dict[str, Any] | str | None = self._call("render", job)
            return rendered

    def halt(self) -> None:
        """Launch nothing any more."""
        with self._guard("halt"):
            self._call("halt")

    def settle(self, seconds: float) -> None:
        """Wait for jobs that end."""
        with self._guard("settle"):
            self._call("settle", seconds)

    def close(self) -> None:
        """End what it runs to launch jobs."""
        with self._guard("close"):
            self._call("close")

    def _call(self, method: str, *values: Any, default: Any = None) -> Any:
        """Call a method that it need not have."""
        own = getattr(self._own, method, None)
        return default if own is None else own(*values)

    @contextmanager
    def _guard(self, method: str) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            raise ExecutorError(f"{method} of the executor {self.name} fails: {_in_words(error)}") from error


def _in_words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
