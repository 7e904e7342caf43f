"""The executors by name: choose where runs go, create an executor, and describe an attempt as its job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jestlab.platform import logs, programs
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.executor import Executor, Job, Marks
from jestlab.platform.launch.executors import custom
from jestlab.platform.launch.executors.kubernetes import Kubernetes
from jestlab.platform.launch.executors.local import Local
from jestlab.platform.launch.executors.slurm import Slurm
from jestlab.platform.launch.executors.vertex import Vertex
from jestlab.platform.launch.reconcile import Target
from jestlab.platform.programs.failures import RETRIED_CODES
from jestlab.platform.spec.resources import ExecutorName, Resources
from jestlab.platform.store.provenance import PARTS, RECORD, Part

Executors = Callable[[ExecutorName], Executor]
"""Returns the executor of a name."""


class _BuiltIn(NamedTuple):
    """How an executor is made that launches, and one that does everything else."""

    get: Callable[[Resources, Settings, Lab, Callable[[], None]], Executor]
    find: Callable[[Settings, Lab], Executor]


_BUILT_IN: dict[ExecutorName, _BuiltIn] = {
    "local": _BuiltIn(
        lambda resources, _, lab, on_exit: Local(lab, resources, on_exit), lambda _, lab: Local(lab)
    ),
    "kubernetes": _BuiltIn(
        lambda resources, settings, lab, _: Kubernetes.of(resources, settings, mounted=lab.remote is None),
        lambda settings, _: Kubernetes(settings.kubernetes),
    ),
    "vertex": _BuiltIn(
        lambda resources, settings, lab, _: Vertex.of(resources, settings, mounted=lab.remote is None),
        lambda settings, _: Vertex(settings.vertex),
    ),
    "slurm": _BuiltIn(
        lambda resources, settings, lab, _: Slurm.of(resources, settings, lab), lambda _, lab: Slurm(lab)
    ),
}


def choose(asked: ExecutorName | None, resources: Resources, settings: Settings) -> ExecutorName:
    """Choose where a study's runs go: as the command says, else the study, else the settings, else here.

    Raises:
        UserError: The study requires a TPU slice and nothing says where.
    """
    place = resources.executor(asked, settings.on)
    if place is None:
        raise UserError(
            f"each run requires {resources.tpu}, and nothing says where: "
            "give --on kubernetes or --on vertex, or --on local to compute here all the same"
        )
    return place


def get(
    place: ExecutorName,
    resources: Resources,
    settings: Settings,
    lab: Lab,
    on_exit: Callable[[], None] = lambda: None,
) -> Executor:
    """Create an executor that can launch jobs; `on_exit` is called when a job of this machine has ended.

    Raises:
        UserError: The settings or the study lack something that it needs; the message names the key.
    """
    if place in _BUILT_IN:
        return _BUILT_IN[place].get(resources, settings, lab, on_exit)
    own_options = resources.options if resources.on in (None, place) else {}  # else another one's
    options = {**settings.executors.get(place, {}), **own_options}
    return custom.create(place, lab, resources, on_exit, options)


def find(place: ExecutorName, settings: Settings, lab: Lab) -> Executor:
    """Create an executor for jobs that were launched before: it can do everything but launch."""
    if place in _BUILT_IN:
        return _BUILT_IN[place].find(settings, lab)
    return custom.create(place, lab, None, lambda: None, settings.executors.get(place, {}))


def job_of(
    lab: Lab,
    title: str,
    run: Target,
    marks: Marks,
    log: str,
    here: bool,
    record: Sequence[Part] = PARTS,
    retry_exit_codes: Sequence[int] = (),
) -> Job:
    """Describe an attempt as a job.

    Args:
        lab: Where it writes.
        title: Name of the study.
        run: The run.
        marks: The attempt's: other labs may launch the same runs in the same place.
        log: Its log, relative to the lab's root.
        here: Whether it runs on this machine, and the executor writes its output to the log.
        record: What its worker records of its code and environment.
        retry_exit_codes: Exit codes of its command that are tried again, whatever they seem to mean.
    """
    elsewhere = {} if here else {logs.COPIED: "1"}
    recorded = {} if record == PARTS else {RECORD: ",".join(record)}
    retried = {RETRIED_CODES: ",".join(map(str, retry_exit_codes))} if retry_exit_codes else {}
    return Job(
        name=f"jestlab-{marks.store[:6]}-{run.fingerprint[:8]}-{marks.attempt}",
        title=run.name,
        arguments=["--root", lab.address, "--run", run.fingerprint, "--attempt", str(marks.attempt)],
        environment={"JESTLAB_STORE": lab.store_url, **elsewhere, **recorded, **retried},
        log=lab.root / log,
        marks=marks,
        labels={"experiment": title, "run": run.name, "seed": str(run.seed)},
        imports=programs.imports_of(run.program),
    )
