"""What of a job may stand in a manifest, where anyone who may look at the cluster or project reads it."""

from __future__ import annotations

from jestlab.platform.launch.executor import ExecutorError, Job
from jestlab.platform.launch.logs import one_line
from jestlab.platform.store.environment import without

STORE = "JESTLAB_STORE"
"""Variable that holds the store's URL, perhaps with a password in it."""


def arguments(job: Job) -> list[str]:
    """A job's arguments.

    Raises:
        ExecutorError: The store's URL, or a password in another one, is among them.
    """
    store = job.environment.get(STORE)
    for argument in job.arguments:
        if (store and store in argument) or _has_secret(argument):
            raise ExecutorError(
                f"{job.title}: an argument of its worker holds the store's URL or a password, and manifests "
                f"can be read by others: the worker takes it from {STORE}"
            )
    return list(job.arguments)


def environment(job: Job) -> dict[str, str]:
    """A job's variables but the store's URL, which comes from a secret.

    Raises:
        ExecutorError: Another variable holds that URL, or a password in one.
    """
    store = job.environment.get(STORE)
    others = {name: value for name, value in job.environment.items() if name != STORE}
    for name, value in others.items():
        if (store and store in value) or _has_secret(value):
            raise ExecutorError(
                f"{job.title}: the variable {name} holds a password, and manifests can be read by others: "
                "leave it out"
            )
    return others


def line(error: object) -> str:
    """An error as one line without credentials in URLs and options."""
    return one_line(without(str(error), ()))


def _has_secret(text: str) -> bool:
    return without(text, ()) != text
