"""Jobs forked from a process that has imported what they need are as good as fresh ones."""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import labs_support as labs
import psutil
import pytest
from executor_harnesses import ForkedHarness

from jestlab.platform import programs
from jestlab.platform.contracts.executors import marks_of
from jestlab.platform.launch import processes
from jestlab.platform.launch.executor import ExecutorError, Job, JobState, LaunchedJob
from jestlab.platform.launch.executors import local

NOTE = "from here on each run imports everything itself"


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = ForkedHarness(tmp_path, monkeypatch)
    yield made
    made.close()


def says(tmp_path: Path, job: Job) -> dict[str, Any]:
    """What a forked job has found itself to be."""
    path = tmp_path / f"{job.name}.self"
    labs.wait_until(path.exists)
    seen: dict[str, Any] = json.loads(path.read_text())
    return seen


def is_over(executor: local.Local, started: LaunchedJob) -> bool:
    return executor.statuses([started])[started].state.is_over


def pid_of(started: LaunchedJob) -> int:
    return int(started.handle.split(":")[1])


def misunderstood(job: Job, **changes: Any) -> Job:
    """A job whose worker, if it is a real one, says what is wrong with its arguments and ends."""
    return dataclasses.replace(job, arguments=["--no-such-option"], **changes)


@pytest.fixture
def ignoring_sigint() -> Iterator[None]:
    """This process ignores SIGINT, as one that a script has put in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_forks_are_fresh_processes(harness, tmp_path, ignoring_sigint):
    executor = harness.executor()
    jobs = [harness.job(f"jestlab-0a1b2c3d-{number}") for number in (1, 2)]
    all_started = [executor.launch(job) for job in jobs]
    for job, started, seen in zip(jobs, all_started, [says(tmp_path, job) for job in jobs], strict=True):
        assert seen["arguments"] == seen["argv"] == list(job.arguments)
        assert seen["session"] == seen["group"] == pid_of(started)
        assert seen["files"][:3] == [0, 1, 2]
        assert len(seen["files"]) <= 3  # nothing of the server's, of other jobs or of the launcher
        assert seen["stdin"] == "/dev/null"
        assert seen["on_interrupt"]
        assert seen["log_handlers"] == 0
        assert started.handle.endswith(f":{job.log.name}")
    one, two = (says(tmp_path, job)["random"] for job in jobs)
    assert not set(one) & set(two)


def test_no_zombie_is_left(harness, tmp_path):
    executor = harness.executor()
    started = executor.launch(harness.job("jestlab-0a1b2c3d-1"))
    harness.end(started, 0)
    labs.wait_until(lambda: not Path(f"/proc/{pid_of(started)}").exists())


def test_a_closed_executor_leaves_its_jobs_and_no_server(harness):
    """At once, whoever still refers to it: nothing waits for garbage collection."""
    executor = harness.executor()
    started = executor.launch(harness.job("jestlab-0a1b2c3d-1"))
    server = executor._server.pid
    executor.close()
    assert processes.start_of(server) is None
    assert not is_over(executor, started)
    harness.end(started, 0)
    labs.wait_until(lambda: is_over(executor, started))


LAUNCHER = """
import psutil, sys, threading, time
from pathlib import Path
from executor_harnesses import obedient
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.local import Local
folder = Path(sys.argv[1])
executor = Local(Lab.find(folder / "lab"))
one = obedient(folder, "one", imports=("obedient_worker",))
print(executor.launch(one).handle)
print(executor._server.pid, flush=True)
if "frozen" in sys.argv:
    psutil.Process(executor._server.pid).suspend()
    two = obedient(folder, "two", imports=("obedient_worker",))
    threading.Thread(target=executor.launch, args=[two], daemon=True).start()
    time.sleep(0.5)
    print("asking", flush=True)
time.sleep(60)
"""


def launcher_of(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A process that forks a job named one and prints its handle and the server's id."""
    command = [sys.executable, "-c", LAUNCHER, str(folder), *arguments]
    environment = {**os.environ, **labs.variables(folder)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_job_outlives_its_launcher_and_the_server_does_not(harness, tmp_path):
    process = launcher_of(tmp_path)
    assert process.stdout is not None
    started = LaunchedJob(process.stdout.readline().strip(), marks_of(f"{tmp_path}/one"))
    server = int(process.stdout.readline())
    process.kill()
    process.communicate()
    labs.wait_until(lambda: processes.start_of(server) is None)
    assert processes.state_of(started.handle) == JobState.RUNNING
    (tmp_path / "one.lines").write_text("still here\n")
    labs.wait_until(lambda: (tmp_path / "lab" / "one.txt").read_text() == "still here\n")
    harness.executor().stop(started, now=True)
    labs.wait_until(lambda: processes.state_of(started.handle) == JobState.GONE)


def test_a_server_that_dies_takes_no_job_along_and_is_done_without(harness, tmp_path):
    executor = harness.executor()
    first = harness.job("jestlab-0a1b2c3d-1")
    started = executor.launch(first)
    server = executor._server
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    for number in (2, 3):
        job = misunderstood(harness.job(f"jestlab-0a1b2c3d-{number}"))
        plain = executor.launch(job)
        labs.wait_until(functools.partial(is_over, executor, plain))
        assert executor.statuses([plain])[plain].exit_code not in (0, None)
        assert (NOTE in job.log.read_text()) == (number == 2)
    assert executor.statuses([started])[started].state == JobState.RUNNING
    (tmp_path / f"{first.name}.code").write_text("0")
    labs.wait_until(lambda: executor.statuses([started])[started].state == JobState.GONE)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "2 threads",
        ),
        ("raise OSError('no such driver')", "OSError: no such driver"),
    ],
)
def test_where_imports_spoil_a_fork_the_job_is_a_fresh_process(
    harness, tmp_path, module, reason, monkeypatch
):
    (tmp_path / "spoiled.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    executor = harness.executor()
    job = misunderstood(harness.job("jestlab-0a1b2c3d-1"), imports=("spoiled",))
    started = executor.launch(job)
    labs.wait_until(lambda: executor.statuses([started])[started].state.is_over)
    assert f"{reason}: {NOTE}" in job.log.read_text().replace(" run after its imports", "")
    assert "jestlab.platform.worker: error" in job.log.read_text().split(NOTE)[1]


def test_a_server_that_says_nothing_is_given_up(harness, tmp_path, monkeypatch):
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(local, "PATIENCE_SECONDS", 0.2)
    job = misunderstood(harness.job("jestlab-0a1b2c3d-1"), imports=("endless",))
    executor = harness.executor()
    started = executor.launch(job)
    labs.wait_until(lambda: executor.statuses([started])[started].state.is_over)
    assert f"said nothing for 0 s: {NOTE}" in job.log.read_text()


def test_nothing_begins_after_a_stop(harness, tmp_path):
    """The server was frozen when it was asked, and goes on after the launch was stopped."""
    executor, job = harness.executor(), harness.job("jestlab-0a1b2c3d-2")
    executor.launch(harness.job("jestlab-0a1b2c3d-1"))
    server = psutil.Process(executor._server.pid)
    server.suspend()
    with ThreadPoolExecutor(1) as pool:
        launching = pool.submit(executor.launch, job)
        labs.wait_until(lambda: len(executor._names) == 1 and launching.running())
        executor.halt()
        with pytest.raises(ExecutorError, match="the launch was stopped"):
            launching.result(timeout=10)
    server.resume()
    with pytest.raises(ExecutorError, match="the launch was stopped"):
        executor.launch(job)
    executor.close()
    assert not server.is_running()
    assert not (tmp_path / f"{job.name}.self").exists()
    assert harness.count() == 1


def test_a_job_that_was_asked_for_by_a_launcher_that_is_killed_never_begins(harness, tmp_path):
    """Its server was frozen, and goes on later."""
    process = launcher_of(tmp_path, "frozen")
    said = process.stdout
    assert said is not None
    first = int(said.readline().split(":")[1])
    server = psutil.Process(int(said.readline()))
    assert said.readline() == "asking\n"
    process.kill()
    process.communicate()
    server.resume()
    labs.wait_until(lambda: labs.processes_of(tmp_path) == [first])
    assert not (tmp_path / "two.self").exists()
    (tmp_path / "one.code").write_text("0")


def test_a_server_that_stays_frozen_is_not_waited_for_for_ever(harness, monkeypatch):
    monkeypatch.setattr(local, "CLOSE_SECONDS", 0.2)
    executor = harness.executor()
    started = executor.launch(harness.job("jestlab-0a1b2c3d-1"))
    server = psutil.Process(executor._server.pid)
    server.suspend()
    executor.close()
    assert not server.is_running()
    assert processes.state_of(started.handle) == JobState.RUNNING


def test_the_server_ends_with_its_executor(harness):
    executor = harness.executor()
    started = executor.launch(harness.job("jestlab-0a1b2c3d-1"))
    assert executor._server is not None
    server = executor._server.pid
    harness.end(started, 0)
    harness._executors.clear()
    del executor
    gc.collect()
    labs.wait_until(lambda: gc.collect() is None or processes.start_of(server) is None)
    labs.wait_until(lambda: processes.start_of(server) is None)


def test_a_job_that_names_no_imports_is_a_fresh_process(harness):
    executor = harness.executor()
    job = dataclasses.replace(harness.job("jestlab-0a1b2c3d-1"), imports=programs.imports_of("command"))
    executor.launch(job)
    assert executor._server is None


def test_what_our_programs_import_starts_no_thread():
    names = {name for program in programs.BUILTIN for name in programs.imports_of(program)}
    assert "jestlab.models.training.loop" in names
    code = f"""
import importlib, os
for name in {sorted(names)!r}:
    importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, name
"""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **one})
