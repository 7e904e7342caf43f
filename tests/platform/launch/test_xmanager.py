"""Our executor inside XManager, with every private attribute of XManager that it uses."""

import asyncio
import importlib.metadata
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
from executor_harnesses import KEY
from in_process import Scripted

from jestlab.platform.launch.display import Listener
from jestlab.platform.launch.executors.base import ExecutorError, Job, JobState, JobStatus, LaunchedJob


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


def opened(folder: Path) -> Any:
    """An experiment; to import XManager takes a second."""
    from jestlab.platform.launch.xmanager import XManagerExperiment

    return XManagerExperiment(folder, "study")


async def add(experiment: Any, executor: Jobs, *titles: str) -> list[LaunchedJob | ExecutorError]:
    """Launch jobs as the controller does: all jobs at once, and then work units."""
    jobs = [Job(f"jestlab-{title}-1", title, ["--run", "f"], {}, Path("log.txt"), KEY) for title in titles]
    found = executor.launch_all(jobs)
    await experiment.add(executor, jobs, found)
    return found


def test_work_units_know_and_stop_their_jobs(root):
    """A job that can't be launched affects no other one."""
    from xmanager import xm
    from xmanager.xm_local import registry

    from jestlab.platform.launch.xmanager import LaunchedJobExecutor

    assert importlib.metadata.version("xmanager") == "0.8.5.post1"  # has the private attributes
    assert registry.is_registered(LaunchedJobExecutor)
    root.mkdir()

    async def check() -> None:
        jobs = Jobs()
        async with opened(root / "xmanager") as experiment:
            results = await add(experiment, jobs, "good", "bad", "long", "impossible")
            assert str(results[3]) == "no such machine"
            added = [job for job in results if isinstance(job, LaunchedJob)]
            assert [job.handle for job in added] == ["jestlab-good-1", "jestlab-bad-1", "jestlab-long-1"]
            good, bad, long, impossible = experiment._experiment._experiment_units
            assert all(unit.get_status().is_active for unit in (good, bad, long))
            assert impossible.get_status().is_failed
            jobs.states[added[0].handle] = JobStatus(JobState.SUCCEEDED)
            jobs.states[added[1].handle] = JobStatus(JobState.FAILED, "exit code 1", 1)
            await good.wait_until_complete()
            assert good.get_status().is_completed
            with pytest.raises(xm.ExperimentUnitFailedError, match="exit code 1"):
                await bad.wait_until_complete()
            long.stop()
            await long.wait_until_complete()
            assert not long.get_status().is_active
            assert await add(experiment, jobs, "later") == [LaunchedJob("jestlab-later-1", KEY)]

    asyncio.run(check())


@pytest.mark.parametrize("name", ["a#b", "it's", "100%", "q?x", "日本", 'a"b', "%(here)s"])
def test_its_database_lies_in_the_lab_whose_path_may_have_any_name(root, capfd, name):
    folder = root / name
    folder.mkdir(parents=True)

    async def check() -> None:
        async with opened(folder / "xmanager") as experiment:
            await add(experiment, Jobs(), "good")

    asyncio.run(check())
    with closing(sqlite3.connect(folder / "xmanager" / "experiments.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM work_unit").fetchone() == (1,)
    assert [*root.iterdir()] == [folder] and capfd.readouterr() == ("", "")
    with pytest.raises(FileNotFoundError):  # a lab that was moved is not created again
        opened(root / "moved" / "xmanager")


def test_a_launch_goes_on_when_its_records_cannot(root, tmp_path, recorded_machine):
    """For example, after a user has deleted a table of XManager's database."""
    runs = {"first": {"steps": 3}, "second": {"steps": 3, "needs": ["first"]}}
    spec = labs.write_study(tmp_path, runs=runs)

    def lose(job: Job) -> None:
        if job.labels["run"] == "second":
            with closing(sqlite3.connect(root / "xmanager" / "experiments.db")) as database:
                database.execute("DROP TABLE work_unit")

    recorded_machine.before_launch = lose
    listener = Listener()
    assert labs.launch_here(root, spec, listener=listener).exit_code == 0
    [note] = listener.notes
    assert note.startswith("XManager's record of this launch is incomplete: OperationalError")


def test_a_launch_is_recorded_whichever_tasks_open_and_close_the_record(root, tmp_path, recorded_machine):
    listener = Listener()
    spec = labs.write_study(tmp_path, runs={"first": {"steps": 3}})
    assert labs.launch_here(root, spec, listener=listener).exit_code == 0
    assert not [note for note in listener.notes if "XManager" in note]
    with closing(sqlite3.connect(root / "xmanager" / "experiments.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM work_unit").fetchone() == (1,)
