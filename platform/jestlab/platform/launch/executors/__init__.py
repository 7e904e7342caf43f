"""Executors by name: choose where runs go, and create an executor.

A custom executor needs no change of jestlab: see `custom`. To add a built-in executor:

- Implement `base.Executor` in this package, with a class method `create`, and add it to `_BUILT_IN`.
- Add its name to `EXECUTORS` in `dependencies`, and its client packages, if it has any, to `EXTRAS` there
  and to an extra in pyproject.toml. `--on` and specs accept the names in `EXECUTORS`.
- If users configure it, add a section with its name to `lab.settings.Settings`. If specs do so too, as for
  Slurm, add a field to `Resources` and its key to `spec.keys`.
- Let `Resources.unsuitable_for` in `spec.resources` refuse the resources that it doesn't support.
- Check its setup in `cli.doctor`. If it keeps files in the lab, remove old ones in `lab.gc`.
- Name it in messages (`choose` below, `_GIVE_ANOTHER` in `launch.session`) and in documentation (`Resources`,
  `jestlab.api`, store/tables.py, store/views.py, docs/how-to/kubernetes.md).
- Add a harness to tests/platform/support, so that the contract tests check it.
"""

import functools
from collections.abc import Callable
from pkgutil import resolve_name

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.executors.base import Executor
from jestlab.platform.spec.resources import CLUSTERS, ExecutorName, Resources

Executors = Callable[[ExecutorName], Executor]
"""A function that returns the executor with a name."""

# Module and class. They are imported on first use: most commands use one executor, or none.
_BUILT_IN = {
    "local": "local:LocalExecutor",
    "kubernetes": "kubernetes:KubernetesExecutor",
    "vertex": "vertex:VertexExecutor",
    "slurm": "slurm:SlurmExecutor",
}


def choose(asked: ExecutorName | None, resources: Resources, settings: Settings) -> ExecutorName:
    """Return the executor that `--on` (`asked`), the study, or the settings name, in this order; else local.

    Raises:
        UserError: Each run requires a TPU slice, and no executor other than local is named.
    """
    name = resources.executor(asked, settings.on)
    if name is None:
        raise UserError(
            f"each run requires {resources.tpu}: give --on kubernetes or --on vertex, "
            "or --on local to run on this machine without it"
        )
    return name


def get(
    name: ExecutorName,
    resources: Resources | None,
    settings: Settings,
    lab: Lab,
    on_exit: Callable[[], None] = lambda: None,
) -> Executor:
    """Create an executor that can launch jobs with these resources; with None, it only finds and stops jobs.

    The executor calls `on_exit` when a job on this machine ends.

    Raises:
        UserError: The executor doesn't support the resources, a required setting is missing (the message
            names its key), or a custom executor can't be created.
    """
    if name in _BUILT_IN:
        if resources is not None and name in CLUSTERS and (problem := resources.unsuitable_for(name)):
            raise UserError(problem)
        built_in = resolve_name(f"{__name__}.{_BUILT_IN[name]}")
        executor: Executor = built_in.create(lab, settings, resources, on_exit)
        return executor
    from jestlab.platform.launch.executors import custom

    options = settings.executors.get(name, {})
    # If the study names another executor, its options are for that one.
    if resources is not None and resources.on in (None, name):
        options = {**options, **resources.options}
    return custom.create(name, lab, resources, on_exit, options)


def finders(lab: Lab) -> Executors:
    """Return a function that creates executors, by name, which can only find and stop jobs."""
    settings = Settings.find()
    return functools.cache(lambda name: get(name, None, settings, lab))
