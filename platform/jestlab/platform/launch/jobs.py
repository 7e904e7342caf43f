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
    """Describe an attempt at a run of the study `title` as a job.

    The log is relative to the lab's root. If the job runs `here`, the executor writes its output to the log.
    If the attempt isn't `claimed`, the worker claims one when it starts.
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
