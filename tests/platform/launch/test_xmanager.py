"""Our executor inside XManager, with every private attribute of XManager that it uses."""

from __future__ import annotations

import asyncio
import importlib.metadata
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
from executor_harnesses import MARKS
from in_process import Scripted
from xmanager import xm
from xmanager.xm_local import registry

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executor import ExecutorError, Job, JobState, JobStatus, LaunchedJob
from jestlab.platform.launch.xmanager import Experiment, Handover
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load


class Jobs(Scripted):
    """Jobs that run until they are stopped, or a test gives them another state."""

    def __init__(self) -> None:
        super().__init__(JobStatus(JobState.RUNNING))

    def launch_all(self, jobs: Sequence[Job]) -> list[LaunchedJob | ExecutorError]:
        found = super().launch_all(jobs)
        refused = ExecutorError("no such machine")
        return [refused if job.title == "impossible" else one for job, one in zip(jobs, found, strict=True)]

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        self.states[job.handle] = JobStatus(JobState.GONE)


def job(title: str, number: int = 1) -> Job:
    return Job(f"jestlab-{title}-{number}", title, ["--run", "f"], {}, Path("log.txt"), MARKS)


def test_the_version_that_the_private_attributes_were_read_in():
    assert importlib.metadata.version("xmanager") == "0.8.5.post1"
    assert registry.is_registered(Handover)


async def add(experiment: Experiment, executor: Jobs, *jobs: Job) -> list[LaunchedJob | ExecutorError]:
    """Launch jobs as the controller does: all jobs at once, and then work units."""
    found = executor.launch_all(jobs)
    await experiment.add(executor, jobs, found)
    return found


def units_of(experiment: Experiment) -> list[Any]:
    return list(experiment._experiment._experiment_units)


def test_work_units_know_and_stop_their_jobs(root):
    root.mkdir()

    async def check() -> None:
        jobs = Jobs()
        async with Experiment(root / "xmanager", "study") as experiment:
            found = await add(experiment, jobs, *(job(title) for title in ("good", "bad", "long")))
            added = [job for job in found if isinstance(job, LaunchedJob)]
            assert [job.handle for job in added] == ["jestlab-good-1", "jestlab-bad-1", "jestlab-long-1"]
            good, bad, long = units_of(experiment)
            assert all(unit.get_status().is_active for unit in (good, bad, long))
            jobs.states[added[0].handle] = JobStatus(JobState.SUCCEEDED)
            jobs.states[added[1].handle] = JobStatus(JobState.FAILED, "exit code 1", 1)
            await good.wait_until_complete()
            assert good.get_status().is_completed
            with pytest.raises(xm.ExperimentUnitFailedError, match="exit code 1"):
                await bad.wait_until_complete()
            long.stop()
            await long.wait_until_complete()
            assert not long.get_status().is_active

    asyncio.run(check())


def test_a_job_that_cannot_be_launched_spoils_nothing(root):
    root.mkdir()

    async def check() -> None:
        async with Experiment(root / "xmanager", "study") as experiment:
            refused, good = await add(experiment, Jobs(), job("impossible"), job("good"))
            assert str(refused) == "no such machine"
            assert good == LaunchedJob("jestlab-good-1", MARKS)
            states = [unit.get_status() for unit in units_of(experiment)]
            assert [state.is_failed for state in states] == [True, False]
            [later] = await add(experiment, Jobs(), job("later"))
            assert later == LaunchedJob("jestlab-later-1", MARKS)

    asyncio.run(check())


def test_does_not_recreate_a_lab_that_was_moved_away(root):
    with pytest.raises(FileNotFoundError):
        Experiment(root / "moved" / "xmanager", "study")
    assert not (root / "moved").exists()


def test_a_launch_goes_on_when_its_records_cannot(root, tmp_path, recorded_machine):
    """For example, after a user has deleted a table of XManager's database."""
    runs = {"first": {"steps": 3}, "second": {"steps": 3, "needs": ["first"]}}
    planned = plan(load(str(labs.write_study(tmp_path, runs=runs))))

    def lose(job: Job) -> None:
        if job.labels["run"] == "second":
            with closing(sqlite3.connect(root / "xmanager" / "experiments.db")) as database:
                database.execute("DROP TABLE work_unit")

    recorded_machine.before_launch = lose
    notes: list[str] = []

    class Notes(Listener):
        def note(self, message: str) -> None:
            notes.append(message)

    assert labs.launch_here(root, planned, listener=Notes()).exit_code == 0
    [note] = notes
    assert note.startswith("XManager keeps no record of this launch, or no whole one: OperationalError")


def test_its_database_lies_in_the_lab_whichever_lab_was_before(root, tmp_path, capfd):
    async def check(folder: Path) -> None:
        async with Experiment(folder, "study") as experiment:
            await add(experiment, Jobs(), job("good"))

    for lab in (Lab.find(root), Lab.find(tmp_path / "other")):
        lab.root.mkdir()
        asyncio.run(check(lab.xmanager))
        units = sqlite3.connect(lab.xmanager / "experiments.db").execute("SELECT COUNT(*) FROM work_unit")
        assert units.fetchone() == (1,)
    assert capfd.readouterr() == ("", "")
