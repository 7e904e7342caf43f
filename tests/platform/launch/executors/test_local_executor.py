"""Processes of this machine: their names and their memory."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from executor_harnesses import KEY, LocalHarness, job

from jestlab.platform import processes
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import ExecutorError, ExecutorUnavailable, LaunchedJob
from jestlab.platform.launch.executors.local import LocalExecutor
from jestlab.platform.spec.resources import Resources


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = LocalHarness(tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def parts(harness):
    """Machine, process id, start, and log of a running job."""
    executor = harness.executor()
    yield executor.launch(harness.job("jestlab-0a1b2c3d-1")).handle.split(":", 3)
    assert executor._server is None  # it has no imports


def test_a_process_of_another_machine_is_not_judged_from_here(tmp_path, parts):
    """Not even where it has the same name, as containers often have, or was this one before a restart."""
    machine, *rest = parts
    host, boot, namespace = machine.rsplit(".", 2)
    for elsewhere in (f"{host}.00000000.{namespace}", f"{host}.{boot}.1", f"other.{boot}.{namespace}"):
        handle = ":".join([elsewhere, *rest])
        assert processes.is_running(handle) is None
        assert processes.is_running(f"{elsewhere}:1:2") is not False
        with pytest.raises(ExecutorError, match="stop it there"):
            LocalExecutor(Lab.find(tmp_path)).stop(LaunchedJob(handle, KEY), now=True)
    assert processes.is_running(":".join(parts)) is True


def test_a_process_id_that_is_used_again_is_another_process(tmp_path, parts):
    machine, pid, start, log = parts
    earlier = f"{machine}:{pid}:{int(start) - 1}"
    assert processes.is_running(f"{earlier}:{log}") is False
    LocalExecutor(Lab.find(tmp_path)).stop(LaunchedJob(f"{earlier}:{log}", KEY), now=True)
    assert processes.is_running(":".join(parts)) is True
    assert processes.is_running(earlier) is False
    assert processes.is_running(processes.identity()) is not False


def test_a_zombie_has_ended():
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    name = str(processes.Process.of(child.pid))
    assert processes.is_running(name) is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.is_running(name) is False
    child.wait()


def test_exits_in_words():
    words = {3: "exit code 3", -signal.SIGSEGV: "killed by SIGSEGV", -200: "killed by signal 200"}
    assert {code: processes.describe_exit(code) for code in words} == words


def test_no_more_at_once_than_memory_has_room_for(tmp_path):
    lab = Lab.find(tmp_path)
    assert LocalExecutor(lab).parallel == 2
    assert LocalExecutor(lab, Resources(memory_gb=1e6)).parallel == 1
    assert LocalExecutor(lab, Resources(memory_gb=1e6)).room() == 1  # as a test, since no other job runs
    assert LocalExecutor(lab, Resources(memory_gb=1e-3)).room() is None
    assert LocalExecutor(lab).room() is None


def test_what_cannot_be_started_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", str(tmp_path / "no_python"))
    with pytest.raises(ExecutorError, match=r"cannot start .*no_python"):
        LocalExecutor(Lab.find(tmp_path)).launch(job(log=tmp_path / "log.txt"))


def test_a_lab_that_was_moved_away_is_not_made_anew(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    with pytest.raises(ExecutorUnavailable, match="is missing"):
        LocalExecutor(lab).launch(job(log=lab.root / "runs" / "joint" / "log.txt"))
    assert not lab.root.exists()


def test_flags_for_threads_are_added_to_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    lab = Lab.find(tmp_path)
    one, four = (LocalExecutor(lab, Resources(threads=n)).environment() for n in (1, 4))
    assert one["XLA_FLAGS"] == "--xla_dump_to=/nowhere --xla_cpu_multi_thread_eigen=false"
    assert one["JAX_COMPILATION_CACHE_DIR"] == str(lab.root / "cache" / "jax")
    assert (four["XLA_FLAGS"], four["OMP_NUM_THREADS"]) == ("--xla_dump_to=/nowhere", "4")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights that root has; the saved id is the way back."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.parametrize("hidden", [False, True])
def test_another_users_process_is_left_alone(tmp_path, monkeypatch, hidden):
    """Also where /proc shows only one's own processes."""
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        start = (Path("/proc") / str(child.pid) / "stat").read_text().rpartition(")")[2].split()[19]
        process = f"{processes.machine()}:{child.pid}:{start}"
        executor = LocalExecutor(Lab.find(tmp_path))
        if hidden:
            monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
        with as_nobody():
            assert processes.is_running(f"{process}:log") is (None if hidden else True)
            assert processes.is_running(process) is not False
            for now in (False, True):
                with pytest.raises(ExecutorError, match=f"process {child.pid} belongs to another user"):
                    executor.stop(LaunchedJob(f"{process}:log", KEY), now=now)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
