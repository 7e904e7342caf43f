"""GPUs of this machine: each job has its own, whichever launcher starts it. These tests need no GPU."""

import os
from collections.abc import Iterator
from pathlib import Path

import labs_support as labs
import pytest
from executor_harnesses import job

from jestlab.platform.errors import UserError
from jestlab.platform.gpus import LocalGpus
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import ExecutorUnavailable, Job, JobState, LaunchedJob
from jestlab.platform.launch.executors.local import LocalExecutor
from jestlab.platform.spec.resources import Resources
from jestlab.testing.executors import key_of


@pytest.fixture
def folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which jobs write which GPUs they see. In the end all of them are over."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("JESTLAB_DEVICES", str(tmp_path / "devices"))
    (tmp_path / "lab").mkdir()
    yield tmp_path
    for name in ("a", "b", "c", "d", "e", "f"):
        (tmp_path / f"{name}.end").touch()
    labs.wait_until_ended(root)


def local(folder: Path, gpus: int = 1) -> LocalExecutor:
    return LocalExecutor(Lab.find(folder / "lab"), Resources(gpus=gpus))


def holding(folder: Path, name: str) -> Job:
    """A job that writes which GPUs it sees, and ends when the file `NAME.end` exists."""
    variables = {"NAME": name, "HARNESS": str(folder)}
    log, key = folder / "lab" / f"{name}.txt", key_of(f"{folder}/{name}")
    return job(name, environment=variables, log=log, key=key, module="holding_worker")


def launched(executor: LocalExecutor, folder: Path, *names: str) -> list[LaunchedJob]:
    found = executor.launch_all([holding(folder, name) for name in names])
    jobs = [job for job in found if isinstance(job, LaunchedJob)]
    assert len(jobs) == len(names), found
    return jobs


def seen(folder: Path, *names: str) -> list[str]:
    files = [folder / f"{name}.gpus" for name in names]
    labs.wait_until(lambda: all(file.exists() for file in files), 60.0)
    return [file.read_text() for file in files]


def end(executor: LocalExecutor, folder: Path, name: str, job: LaunchedJob) -> None:
    (folder / f"{name}.end").touch()
    labs.wait_until(lambda: executor.statuses([job])[job].state == JobState.SUCCEEDED, 60.0)


def test_four_jobs_have_a_gpu_each_and_a_fifth_waits_for_one(folder):
    executor = local(folder)
    assert (executor.parallel, executor.room()) == (4, 4)
    jobs = launched(executor, folder, "a", "b", "c", "d")
    assert sorted(seen(folder, "a", "b", "c", "d")) == ["0", "1", "2", "3"]
    assert executor.room() == 0
    with pytest.raises(ExecutorUnavailable, match="all GPUs of this machine are taken"):
        executor.launch(holding(folder, "e"))
    [freed] = seen(folder, "b")
    end(executor, folder, "b", jobs[1])
    assert executor.room() == 1
    launched(executor, folder, "f")
    assert seen(folder, "f") == [freed]


def test_launchers_share_them(folder):
    """A job holds its GPU itself: its launcher may be gone."""
    first, second = local(folder), local(folder, gpus=2)
    launched(local(folder), folder, "a")
    assert (second.parallel, second.room()) == (2, 1)
    launched(second, folder, "b")
    assert first.room() == 1
    launched(first, folder, "c")
    shown = [name for names in seen(folder, "a", "b", "c") for name in names.split(",")]
    assert sorted(shown) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("visible", "gpus", "there"), [("0,1", 3, "2 GPUs"), ("", 1, "0 GPUs"), ("1,-1,0", 2, "1 GPU")]
)
def test_more_than_there_are_is_one_clear_line(folder, visible, gpus, there):
    environment = {"CUDA_VISIBLE_DEVICES": visible, "JESTLAB_DEVICES": str(folder / "devices")}
    with pytest.raises(UserError, match=f"requests {gpus} .*has {there} in CUDA_VISIBLE_DEVICES"):
        LocalGpus(Resources(gpus=gpus), environment)


def test_a_launch_that_asks_for_more_writes_nothing(folder):
    spec = labs.write_study(folder, runs={"uniform": {}})
    for verb, code in (("launch", 1), ("plan", 0)):
        done = labs.here(verb, spec, "--set", "resources.gpus=5", root=folder / "new")
        assert done.returncode == code
        assert "requests 5 (resources.gpus), but this machine has 4 GPUs" in done.stdout + done.stderr
    assert not (folder / "new").exists()


def test_the_name_of_a_lock_is_the_same_for_an_index_and_a_uuid(folder, monkeypatch):
    tool = folder / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nprintf '0, GPU-aa\\n1, GPU-bb\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    where = {"JESTLAB_DEVICES": str(folder / "devices")}
    by_index = LocalGpus(Resources(gpus=1), {**where, "CUDA_VISIBLE_DEVICES": "1"})
    by_uuid = LocalGpus(Resources(gpus=1), where)
    taken, other = by_index.take(), by_uuid.take()
    assert taken is not None and other is not None
    assert (list(taken), list(other)) == (["1"], ["GPU-aa"])
    assert by_uuid.take() is None
    os.close(taken["1"])
    assert by_uuid.room() == 1
    os.close(other["GPU-aa"])
