"""Executors by name: choose where runs go, create an executor, and describe an attempt as a job.

To add an executor, implement `base.Executor` with a class method `create`, and add it to `_BUILT_IN`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pkgutil import resolve_name

from jestlab.platform import logs, programs
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.executors.base import Executor, Job, JobKey
from jestlab.platform.launch.reconcile import Target
from jestlab.platform.programs.failures import RETRIED_CODES
from jestlab.platform.spec.resources import ExecutorName, Resources
from jestlab.platform.store.provenance import PARTS, RECORD, Part

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


def get(
    name: ExecutorName,
    resources: Resources,
    settings: Settings,
    lab: Lab,
    on_exit: Callable[[], None] = lambda: None,
) -> Executor:
    """Create an executor that can launch jobs. It calls `on_exit` when a job on this machine ends.

    Raises:
        UserError: A required setting is missing; the message names its key.
    """
    return _create(name, lab, settings, resources, on_exit)


def find(name: ExecutorName, settings: Settings, lab: Lab) -> Executor:
    """Create an executor for jobs that were launched before. It can't launch jobs."""
    return _create(name, lab, settings, None, lambda: None)


def _create(
    name: ExecutorName,
    lab: Lab,
    settings: Settings,
    resources: Resources | None,
    on_exit: Callable[[], None],
) -> Executor:
    if name in _BUILT_IN:
        executor: Executor = resolve_name(f"{__name__}.{_BUILT_IN[name]}").create(
            lab, settings, resources, on_exit
        )
        return executor
    from jestlab.platform.launch.executors import custom

    options = settings.executors.get(name, {})
    if resources is not None and resources.on in (None, name):  # else the options are for another executor
        options = {**options, **resources.options}
    return custom.create(name, lab, resources, on_exit, options)


def job_of(
    lab: Lab,
    title: str,
    run: Target,
    key: JobKey,
    log: str,
    here: bool,
    record: Sequence[Part] = PARTS,
    retry_exit_codes: Sequence[int] = (),
) -> Job:
    """Describe an attempt as a job.

    Args:
        lab: Lab that the job writes to.
        title: Name of the study.
        run: The run.
        key: Key of the attempt: other labs may launch the same runs in the same place.
        log: Log of the run, relative to the lab's root.
        here: Whether the job runs on this machine, so that the executor writes its output to the log.
        record: What the worker records about its code and environment.
        retry_exit_codes: Exit codes of the run's command that are always retried.
    """
    environment = {"JESTLAB_STORE": lab.store_url}
    if not here:
        environment[logs.COPIED] = "1"
    if record != PARTS:
        environment[RECORD] = ",".join(record)
    if retry_exit_codes:
        environment[RETRIED_CODES] = ",".join(map(str, retry_exit_codes))
    return Job(
        name=f"jestlab-{key.store[:6]}-{run.fingerprint[:8]}-{key.attempt}",
        title=run.name,
        arguments=["--root", lab.address, "--run", run.fingerprint, "--attempt", str(key.attempt)],
        environment=environment,
        log=lab.root / log,
        key=key,
        labels={"experiment": title, "run": run.name, "seed": str(run.seed)},
        imports=programs.imports_of(run.program),
    )
