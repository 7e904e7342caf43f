"""GPUs of this machine: each job has its own, whichever launcher starts it. These tests need no GPU."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import labs_support as labs
import psutil
import pytest
from executor_harnesses import job

from jestlab.platform.errors import UserError
from jestlab.platform.gpus import LocalGpus
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import ExecutorUnavailable, JobState
from jestlab.platform.launch.executors.local import LocalExecutor
from jestlab.platform.spec.resources import Resources


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A lab on a machine with four GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("JESTLAB_DEVICES", str(tmp_path / "devices"))
    (tmp_path / "lab").mkdir()
    return Lab.find(tmp_path / "lab")


@pytest.fixture
def launch(lab):
    """Launch a job that runs until it is stopped; return it and the GPUs that it sees."""
    all_launched = []

    def launch(executor, name):
        arguments = {"arguments": [str(lab.root), name], "environment": {}, "module": "jestlab.testing.job"}
        launched = executor.launch(job(name, log=lab.root / f"{name}.txt", **arguments))
        all_launched.append((executor, launched))
        process = psutil.Process(int(launched.handle.split(":")[1]))
        labs.wait_until(process.environ)  # it is empty for a moment
        return launched, process.environ()["CUDA_VISIBLE_DEVICES"].split(",")

    yield launch
    for executor, launched in all_launched:
        executor.stop(launched, now=True)


def test_four_jobs_have_a_gpu_each_and_a_fifth_waits_for_one(lab, launch):
    executor = LocalExecutor(lab, Resources(gpus=1))
    assert (executor.parallel, executor.room()) == (4, 4)
    jobs = [launch(executor, name) for name in "abcd"]
    assert sorted(gpu for _, [gpu] in jobs) == ["0", "1", "2", "3"]
    assert executor.room() == 0
    with pytest.raises(ExecutorUnavailable, match="all GPUs of this machine are taken"):
        launch(executor, "e")
    ended, freed = jobs[1]
    (lab.root / "b.code").write_text("0")
    labs.wait_until(lambda: executor.statuses([ended])[ended].state == JobState.SUCCEEDED, 60.0)
    assert executor.room() == 1
    assert launch(executor, "f")[1] == freed


def test_launchers_share_them(lab, launch):
    """A job holds its GPU itself: its launcher may be gone."""
    first, second = (LocalExecutor(lab, Resources(gpus=gpus)) for gpus in (1, 2))
    seen = launch(LocalExecutor(lab, Resources(gpus=1)), "a")[1]
    assert (second.parallel, second.room()) == (2, 1)
    seen += launch(second, "b")[1]
    assert first.room() == 1
    seen += launch(first, "c")[1]
    assert sorted(seen) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("visible", "gpus", "there"), [("0,1", 3, "2 GPUs"), ("", 1, "0 GPUs"), ("1,-1,0", 2, "1 GPU")]
)
def test_more_than_there_are_is_one_clear_line(lab, visible, gpus, there):
    environment = {"CUDA_VISIBLE_DEVICES": visible, "JESTLAB_DEVICES": str(lab.root / "devices")}
    with pytest.raises(UserError, match=f"requests {gpus} .*has {there} in CUDA_VISIBLE_DEVICES"):
        LocalGpus(Resources(gpus=gpus), environment)


def test_a_launch_that_asks_for_more_writes_nothing(lab, tmp_path):
    spec = labs.write_study(tmp_path, runs={"uniform": {}})
    for verb, code in (("launch", 1), ("plan", 0)):
        done = labs.here(verb, spec, "--set", "resources.gpus=5", root=tmp_path / "new")
        assert done.returncode == code
        assert "requests 5 (resources.gpus), but this machine has 4 GPUs" in done.stdout + done.stderr
    assert not (tmp_path / "new").exists()


@contextmanager
def user(uid: int) -> Iterator[None]:
    """Act as another user, if this one is root."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_users_share_them(monkeypatch, umask):
    """Each user's launches see which GPUs the others have reserved, and which are free again."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        folder.chmod(0o1777)
        tool = folder / "nvidia-smi"
        tool.write_text("#!/bin/sh\nprintf '0, GPU-aa\\n1, GPU-bb\\n2, GPU-cc\\n3, GPU-dd\\n'\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        before = os.umask(umask)

        def take(uid: int, **environment: str) -> dict[str, int]:
            where = {"JESTLAB_DEVICES": str(folder / "gpus"), **environment}
            with user(uid):
                return LocalGpus(Resources(gpus=1), where).take() or {}

        try:
            taken = [take(1234), take(65534, CUDA_VISIBLE_DEVICES="0,1,2"), take(4321), take(65534)]
            assert [[*gpus] for gpus in taken] == [["GPU-aa"], ["1"], ["GPU-cc"], ["GPU-dd"]]
            assert take(1234) == take(4321) == {}
            os.close(taken[2].pop("GPU-cc"))  # as when the last process of the run ends
            taken.append(take(1234, CUDA_VISIBLE_DEVICES="2"))
            assert [*taken[-1]] == ["2"]
        finally:
            os.umask(before)
            for descriptor in (number for gpus in taken for number in gpus.values()):
                os.close(descriptor)


def test_a_link_in_place_of_a_lock_is_not_followed(lab, tmp_path):
    gpus = LocalGpus(Resources(gpus=1))
    (tmp_path / "devices" / "0").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match=r"can't be used to reserve GPUs.*JESTLAB_DEVICES"):
        gpus.take()
    assert not (tmp_path / "victim").exists()


def test_the_name_of_a_lock_is_the_same_for_an_index_and_a_uuid(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0, GPU-aa\\n1, GPU-bb\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    where = {"JESTLAB_DEVICES": str(tmp_path / "devices")}
    by_index = LocalGpus(Resources(gpus=1), {**where, "CUDA_VISIBLE_DEVICES": "1"})
    by_uuid = LocalGpus(Resources(gpus=1), where)
    taken, other = by_index.take() or {}, by_uuid.take() or {}
    assert (list(taken), list(other)) == (["1"], ["GPU-aa"])
    assert by_uuid.take() is None
    os.close(taken["1"])
    assert by_uuid.room() == 1
    os.close(other["GPU-aa"])
