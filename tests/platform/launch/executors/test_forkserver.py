"""Jobs forked from a process with their imports behave like fresh processes."""

import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import labs_support as labs
import psutil
import pytest
from executor_harnesses import ForkedHarness

from jestlab.platform import processes, programs
from jestlab.platform.launch.executors import forkserver
from jestlab.platform.launch.executors.base import ExecutorError, Job, JobState, LaunchedJob
from jestlab.platform.launch.executors.environment import ONE_THREAD
from jestlab.platform.launch.executors.local import LocalExecutor

THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
NOTE = "from now on each run imports its modules itself"


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkedHarness]:
    with closing(ForkedHarness(tmp_path, monkeypatch)) as made:
        yield made


def end_of(executor: LocalExecutor, started: LaunchedJob) -> int | None:
    """Wait for the end of a job, and return its exit code."""
    labs.wait_until(lambda: executor.statuses([started])[started].state.is_over)
    return executor.statuses([started])[started].exit_code


def unforked(job: Job, **changes: Any) -> Job:
    """A job that fails at once if it is started as a fresh process."""
    return dataclasses.replace(job, module="no_such_module", **changes)


@pytest.fixture
def ignoring_sigint() -> Iterator[None]:
    """This process ignores SIGINT, like one that a script has started in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_forks_are_fresh_processes(harness, tmp_path, ignoring_sigint):
    executor, random = harness.executor(), []
    jobs = [harness.job(f"jestlab-0a1b2c3d-{number}") for number in (1, 2)]
    for job, started in [(job, executor.launch(job)) for job in jobs]:
        path, pid = tmp_path / f"{job.name}.self", int(started.handle.split(":")[1])
        labs.wait_until(path.exists)
        seen = json.loads(path.read_text())
        assert seen["arguments"] == seen["argv"] == list(job.arguments)
        assert seen["session"] == seen["group"] == pid
        assert seen["files"] == [0, 1, 2]  # none of the server's, of other jobs', or of the launcher's
        assert seen["stdin"] == "/dev/null" and seen["is_one_log"]
        assert seen["on_interrupt"] and seen["log_handlers"] == 0
        assert started.handle.endswith(f":{job.log.name}")
        random += seen["random"]
        harness.end(started, 0)
        labs.wait_until(functools.partial(lambda pid: not psutil.pid_exists(pid), pid))  # not even a zombie
    assert len(set(random)) == len(random) == 6


def test_a_server_that_dies_takes_no_job_along_and_is_done_without(harness, tmp_path):
    executor = harness.executor()
    first = harness.job("jestlab-0a1b2c3d-1")
    started = executor.launch(first)
    os.kill(executor._server.pid, signal.SIGKILL)
    for number in (2, 3):
        job = unforked(harness.job(f"jestlab-0a1b2c3d-{number}"))
        assert end_of(executor, executor.launch(job)) == 1
        assert (NOTE in job.log.read_text()) == (number == 2)
    assert executor.statuses([started])[started].state == JobState.RUNNING
    (tmp_path / f"{first.name}.code").write_text("3")
    assert end_of(executor, started) == 3  # from its guard


@pytest.mark.parametrize(
    ("module", "reason", "patience"),
    [
        (THREAD, "2 threads", 60.0),
        ("raise OSError('no such driver')", "OSError: no such driver", 60.0),
        ("import time\ntime.sleep(600)", "timed out after 0 s", 0.2),
    ],
    ids=["thread", "error", "endless"],
)
def test_where_imports_spoil_a_fork_the_job_is_a_fresh_process(
    harness, tmp_path, module, reason, patience, monkeypatch
):
    (tmp_path / "spoiled.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(forkserver, "START_SECONDS", patience)
    executor = harness.executor()
    job = unforked(harness.job("jestlab-0a1b2c3d-1"), imports=("spoiled",))
    assert end_of(executor, executor.launch(job)) == 1
    said = job.log.read_text().replace(" run after its imports", "")
    assert f"{reason}: {NOTE}" in said
    assert "No module named no_such_module" in said.split(NOTE)[1]


def test_nothing_begins_after_a_stop(harness, tmp_path):
    """The server was frozen when it was asked, and continues after the launch was stopped."""
    executor, job = harness.executor(), harness.job("jestlab-0a1b2c3d-2")
    first = executor.launch(harness.job("jestlab-0a1b2c3d-1"))
    server = psutil.Process(executor._server.pid)
    server.suspend()
    with ThreadPoolExecutor(1) as pool:
        launching = pool.submit(executor.launch, job)
        labs.wait_until(lambda: len(executor._children) == 1 and launching.running())
        executor.halt()
        with pytest.raises(ExecutorError, match="the launch was stopped"):
            launching.result(timeout=60)
    server.resume()
    with pytest.raises(ExecutorError, match="the launch was stopped"):
        executor.launch(job)
    executor.close()
    assert not server.is_running()
    assert not (tmp_path / f"{job.name}.self").exists()
    assert harness.count() == 1
    harness.end(first, 0)  # a closed executor leaves its jobs


def test_a_server_that_stays_frozen_is_not_waited_for_for_ever(harness, monkeypatch):
    monkeypatch.setattr(forkserver, "CLOSE_SECONDS", 0.2)
    executor = harness.executor()
    started = executor.launch(harness.job("jestlab-0a1b2c3d-1"))
    server = psutil.Process(executor._server.pid)
    server.suspend()
    executor.close()
    assert not server.is_running()
    assert processes.is_running(started.handle) is True


def test_what_our_programs_import_starts_no_thread_and_leaves_no_slow_import_to_the_fork():
    names = {name for program in programs.BUILTIN for name in programs.imports_of(program)}
    code = f"""
import io, os, sys, {", ".join(sorted(names))}
assert len(os.listdir("/proc/self/task")) == 1
imported = set(sys.modules)
import numpy
import pyarrow
import pyarrow.compute
from pyarrow import parquet
from jestlab.platform.programs import execution

# What programs do to read the metadata of shards and to filter by them.
file = io.BytesIO()
parquet.write_table(pyarrow.table({{"key": ["a"]}}), file)
table = parquet.ParquetFile(file).read(use_threads=False)
table.take(pyarrow.array(numpy.arange(1))).filter(pyarrow.compute.field("key") == "a")
late = set(sys.modules) - imported
assert not [name for name in late if name.startswith(("pandas", "scipy", "pyarrow.dataset"))], late
os._exit(0)  # Arrow may abort at the end of Python if a thread of it is just starting
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **ONE_THREAD})
