"""A launcher as a process of its own, whose jobs wait for the test; `forked` runs it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import plans_support as plans

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.controller import launch
from jestlab.platform.launch.executor import Executor, Job, JobState, JobStatus, LaunchedJob
from jestlab.platform.launch.options import Options
from jestlab.platform.planning.plan import Budget
from jestlab.platform.store.store import Store

_SECONDS = 0.2


class Timed(Executor):
    """An executor whose jobs are over once a file is there, and they have run for a moment."""

    name = "kubernetes"

    def __init__(self, release: Path) -> None:
        self._release = release
        self._began: dict[str, float] = {}

    def launch(self, job: Job) -> LaunchedJob:
        self._began[job.name] = time.monotonic()
        return LaunchedJob(job.name, job.marks)

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        return {job: self._status(job) for job in jobs}

    def _status(self, job: LaunchedJob) -> JobStatus:
        if job.handle not in self._began:
            return JobStatus(JobState.UNKNOWN)  # another launcher's
        over = self._release.exists() and time.monotonic() - self._began[job.handle] > _SECONDS
        return JobStatus(JobState.SUCCEEDED if over else JobState.RUNNING)

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        self._began.pop(job.handle, None)

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        yield b""


def main(arguments: str) -> None:
    """Launch runs of a study of its own, once the file `gate` is there; print how it ended.

    Args:
        arguments: JSON, as `test_limits_over_launchers` writes it.
    """
    given = json.loads(arguments)
    lab = Lab.find(given["root"], given["store"])
    store = Store.open(lab.store_url)
    budget = Budget("v5e", 1, given["chip_hours"])
    runs = [
        replace(plans.run(f"run{i}", config={"of": given["study"], "run": i}), budget=budget)
        for i in range(given["runs"])
    ]
    study = plans.plan(*runs, name=given["study"])
    store.record(study)
    options = Options(
        executor="kubernetes",
        parallel=given["parallel"],
        retries=0,
        keep_going=True,
        max_chip_hours=given["max_chip_hours"],
    )
    executor = Timed(Path(given["release"]))
    print("ready", flush=True)
    while not Path(given["gate"]).exists():
        time.sleep(0.01)
    outcome = launch(lab, store, given["study"], study.runs, lambda _: executor, options=options)
    print(json.dumps([outcome.exit_code, outcome.stopped]), flush=True)
