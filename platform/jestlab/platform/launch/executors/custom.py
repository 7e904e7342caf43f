"""Create custom executors, and turn their exceptions into errors of one line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jestlab.models import extensions
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import Executor, ExecutorError, JobState, JobStatus, LaunchedJob
from jestlab.platform.spec.resources import Resources


def create(
    name: str,
    lab: Lab,
    resources: Resources | None,
    on_exit: Callable[[], None],
    options: Mapping[str, Any],
) -> Executor:
    """Create a custom executor.

    Args:
        name: Reference or entry point of a class, or of a function that returns an executor.
        lab: The lab that its jobs write to.
        resources: Resources of the study; None for an executor that finds jobs but launches none.
        on_exit: The executor may call this when a job has ended.
        options: Further arguments.

    Raises:
        UserError: It can't be imported or created.
    """
    try:
        factory = extensions.load("executor", name)
    except ValueError as error:
        raise UserError(str(error)) from None
    try:
        executor = factory(lab, resources, on_exit, **options)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"the executor {name} can't be created: {_describe(error)}") from error
    return guarded(name, executor)


def guarded(name: str, executor: Any) -> Executor:
    """Make the methods of an executor raise only `UserError`, so that a launch survives their errors.

    Args:
        name: Name of the executor in specs and the store.
        executor: The executor, which is changed.

    Raises:
        UserError: It doesn't derive from `Executor`.
    """
    if Executor not in type(executor).__mro__:
        raise UserError(f"the executor {name} is a {type(executor).__name__}, not an Executor")
    made: Executor = executor
    made.name = name
    for method in ("launch", "launch_all", "stop", "room", "render", "halt", "settle", "close"):
        setattr(made, method, _guarded_method(name, getattr(made, method)))
    statuses, logs = made.statuses, made.logs

    def guarded_statuses(jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        unknown = JobStatus(JobState.UNKNOWN, f"{name} returned no status")
        try:
            with _guard(name, "statuses"):
                found = dict(statuses(jobs))
        except ExecutorError as error:
            found, unknown = {}, JobStatus(JobState.UNKNOWN, str(error))
        return {job: found.get(job, unknown) for job in jobs}

    def guarded_logs(job: LaunchedJob) -> Iterator[bytes]:
        with _guard(name, "logs"):
            yield from logs(job)

    made.statuses, made.logs = guarded_statuses, guarded_logs  # type: ignore[method-assign]
    return made


def _guarded_method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _guard(name, method.__name__):
            return method(*args, **kwargs)

    return call


@contextmanager
def _guard(name: str, method: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise ExecutorError(f"{method} of the executor {name} fails: {_describe(error)}") from error


def _describe(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
