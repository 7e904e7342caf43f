"""Executors by name: choose where runs go, and create an executor.

To add an executor, implement `base.Executor` with a class method `create`, and add it to `_BUILT_IN`.
"""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.executors.base import Executor
from jestlab.platform.spec.resources import CLUSTERS, ExecutorName, Resources

Executors = Callable[[ExecutorName], Executor]
"""Returns the executor with a name."""

# Imported on first use: most commands use one executor, or none.
_BUILT_IN = {
    "local": "local:LocalExecutor",
    "kubernetes": "kubernetes:KubernetesExecutor",
    "vertex": "vertex:VertexExecutor",
    "slurm": "slurm:SlurmExecutor",
}


def choose(asked: ExecutorName | None, resources: Resources, settings: Settings) -> ExecutorName:
    """Choose where runs go, by the command line, the study, or the settings, in this order; else here.

    Raises:
        UserError: The study requires a TPU slice and doesn't name an executor.
    """
    name = resources.executor(asked, settings.on)
    if name is None:
        raise UserError(
            f"each run requires {resources.tpu}: give --on kubernetes or --on vertex, "
            "or --on local to run on this machine without it"
        )
    return name


def find(name: ExecutorName, settings: Settings, lab: Lab) -> Executor:
    """Create an executor for jobs that were launched before. It can't launch jobs."""
    return get(name, None, settings, lab)


def get(
    name: ExecutorName,
    resources: Resources | None,
    settings: Settings,
    lab: Lab,
    on_exit: Callable[[], None] = lambda: None,
) -> Executor:
    """Create an executor that can launch jobs; without resources, it only finds jobs.

    It calls `on_exit` when a job on this machine ends.

    Raises:
        UserError: A required setting is missing; the message names its key.
    """
    if name in _BUILT_IN:
        if resources is not None and name in CLUSTERS and (problem := resources.unsuitable_for(name)):
            raise UserError(problem)
        built_in = resolve_name(f"{__name__}.{_BUILT_IN[name]}")
        executor: Executor = built_in.create(lab, settings, resources, on_exit)
        return executor
    from jestlab.platform.launch.executors import custom

    options = settings.executors.get(name, {})
    if resources is not None and resources.on in (None, name):  # else the options are for another executor
        options = {**options, **resources.options}
    return custom.create(name, lab, resources, on_exit, options)
