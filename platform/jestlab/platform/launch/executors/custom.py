"""Create custom executors, and turn their exceptions into errors of one line."""

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
    """Import the class or function `name`, and call it to create an executor.

    Args:
        name: Reference or entry point, as in specs.
        lab: Lab of the runs.
        resources: Resources of each job; None if the executor needn't launch jobs.
        on_exit: For the executor to call when a job on this machine ends.
        options: Further keyword arguments.

    Raises:
        UserError: It can't be imported, fails, or creates no `Executor`.
    """
    try:
        factory = extensions.load("executor", name)
    except ValueError as error:
        raise UserError(str(error)) from None
    with _guard(f"the executor {name} can't be created"):
        executor = factory(lab, resources, on_exit, **options)
    return guarded(name, executor)


def guarded(name: str, executor: Any) -> Executor:
    """Name an executor, and make its methods raise only `UserError`, so that launches survive its errors.

    Args:
        name: Name of the executor in specs and the store.
        executor: Modified in place, and returned.

    Raises:
        UserError: `executor` doesn't derive from `Executor`.
    """
    if Executor not in type(executor).__mro__:
        raise UserError(f"the executor {name} is a {type(executor).__name__}, not an Executor")
    made: Executor = executor
    made.name = name
    fails = f"of the executor {name} fails"
    for method in ("launch", "launch_all", "stop", "room", "render", "halt", "settle", "close"):
        setattr(made, method, _guard(f"{method} {fails}")(getattr(made, method)))
    statuses, logs = made.statuses, made.logs

    def guarded_statuses(jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        try:
            with _guard(f"statuses {fails}"):
                found, reason = dict(statuses(jobs)), f"{name} returned no status"
        except UserError as error:
            found, reason = {}, str(error)
        return {job: found.get(job, JobStatus(JobState.UNKNOWN, reason)) for job in jobs}

    def guarded_logs(job: LaunchedJob) -> Iterator[bytes]:
        with _guard(f"logs {fails}"):
            yield from logs(job)

    made.statuses, made.logs = guarded_statuses, guarded_logs  # type: ignore[method-assign]
    return made


@contextmanager
def _guard(text: str) -> Iterator[None]:
    """Convert exceptions other than UserError to an ExecutorError that starts with `text`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        line = " ".join(f"{text}: {type(error).__name__}: {error}".split())
        raise ExecutorError(line) from error
