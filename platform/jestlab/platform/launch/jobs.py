"""Describe an attempt as a job for an executor."""

from __future__ import annotations

from collections.abc import Sequence

from jestlab.platform import logs, programs
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import Job, JobKey
from jestlab.platform.launch.reconcile import Target
from jestlab.platform.programs.failures import RETRIED_CODES
from jestlab.platform.redaction import PARTS, Part
from jestlab.platform.store.provenance import RECORD


def job_of(
    lab: Lab,
    title: str,
    run: Target,
    key: JobKey,
    log: str,
    here: bool,
    record: Sequence[Part] = PARTS,
    retry_exit_codes: Sequence[int] = (),
    claimed: bool = True,
) -> Job:
    """Describe an attempt as a job.

    Args:
        lab: Lab that the job writes to.
        title: Name of the study.
        run: The run.
        key: Key of the attempt: other labs may launch the same runs in the same place.
        log: Log of the run, relative to the lab's root.
        here: Whether the job runs on this machine, so that the executor writes its output to the log.
        record: Parts of the code and environment that the worker records.
        retry_exit_codes: Exit codes of the run's command that are always retried.
        claimed: Whether the attempt is claimed; else the worker claims one when it starts.
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
        arguments=[
            *("--root", lab.address, "--run", run.fingerprint),
            *(("--attempt", str(key.attempt)) if claimed else ()),
        ],
        environment=environment,
        log=lab.root / log,
        key=key,
        labels={"experiment": title, "run": run.name, "seed": str(run.seed)},
        imports=programs.imports_of(run.program),
    )
