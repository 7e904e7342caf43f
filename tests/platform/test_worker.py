"""One worker, without a launcher."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import labs_support as labs
import plans_support as plans
import pytest

from jestlab.platform.lab import Lab
from jestlab.platform.launch import exits, lock
from jestlab.platform.plan import PlannedRun
from jestlab.platform.store.states import RunState
from jestlab.platform.store.store import Store


@pytest.fixture
def lab(root: Path) -> Lab:
    return Lab.find(root)


def recorded(lab: Lab, *runs: PlannedRun) -> Store:
    store = Store.open(lab.store_url)
    store.record(plans.plan(*runs))
    return store


def toy(
    name: str = "run", program: str = "loop", needs: dict[str, str] | None = None, **config
) -> PlannedRun:
    return plans.run(name, f"toy_programs:{program}", {"seed": 0, **config}, needs=needs or {})


def worker(lab: Lab, run: PlannedRun, *more: str, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "jestlab.platform.worker", "--store", lab.store_url]
    command += ["--root", str(lab.root), "--run", run.fingerprint, *more]
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen(command, **options)


def finished(lab: Lab, run: PlannedRun, *more: str) -> tuple[int, str]:
    """Exit code and standard error of a worker run to its end."""
    process = worker(lab, run, *more)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def test_a_run_is_done_once(lab):
    run = toy(steps=6)
    store = recorded(lab, run)
    code, said = finished(lab, run)
    assert code == exits.COMPLETED, said
    assert said.startswith("--- attempt 1: ")
    assert finished(lab, run) == (exits.COMPLETED, "")
    [row] = store.runs("toy")
    assert (row.state, row.step, row.total_steps, row.attempts) == (RunState.COMPLETED, 6, 6, 1)
    [attempt] = sqlite3.connect(lab.root / "results.db").execute(
        "SELECT state, exit_code, log, versions, device FROM attempt"
    )
    assert attempt[:3] == ("COMPLETED", 0, f"{run.directory}/log.txt")
    assert json.loads(attempt[3]).keys() >= {"python", "jestlab", "jax"}
    assert "cores" in attempt[4]


def test_an_unknown_run_is_one_line(lab):
    recorded(lab, toy(steps=1))
    code, said = finished(lab, toy(steps=2))
    assert code == exits.FAILED
    assert len(said.splitlines()) == 1


def test_a_need_that_has_not_completed_fails_the_run(lab):
    reference = toy("reference", steps=1)
    joint = toy("joint", needs={"reference": reference.fingerprint}, steps=1)
    store = recorded(lab, reference, joint)
    assert finished(lab, joint)[0] == exits.FAILED
    reason = store.reasons([joint.fingerprint])[joint.fingerprint]
    assert reason == f"UserError: needs run {reference.fingerprint[:8]} (reference), which is PENDING"
    assert finished(lab, reference)[0] == exits.COMPLETED
    assert finished(lab, joint)[0] == exits.COMPLETED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_at_a_checkpoint(lab, number):
    run = toy(steps=500, pause=0.01)
    store = recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: labs.starts(lab.root, "run"))
    process.send_signal(number)
    assert process.wait(30) == exits.STOPPED
    [row] = store.runs("toy")
    assert row.state == RunState.PREEMPTED
    assert row.reason == f"stopped by {number.name}"
    assert json.loads((lab.root / run.directory / "state.json").read_text())[0] == row.step


def test_it_stops_with_its_launcher(lab):
    run = toy(steps=500, pause=0.01)
    store = recorded(lab, run)
    process = worker(lab, run, stdin=subprocess.PIPE)
    labs.wait_until(lambda: labs.starts(lab.root, "run"))
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == exits.STOPPED
    assert store.runs("toy")[0].reason == "its launcher died"


def test_what_does_not_stop_without_its_launcher_is_killed_with_its_children(lab):
    run = toy(program="stubborn")
    recorded(lab, run)
    process = worker(lab, run, "--grace", "0.3", stdin=subprocess.PIPE, start_new_session=True)
    labs.wait_until(lambda: (lab.root / run.directory / "deaf").exists())
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == -signal.SIGKILL  # that no child is left is seen by the fixture


def test_a_second_worker_waits_and_finds_the_run_done(lab):
    run = toy(steps=50, pause=0.02)
    store = recorded(lab, run)
    first = worker(lab, run)
    labs.wait_until(lambda: labs.starts(lab.root, "run"))
    assert finished(lab, run) == (exits.COMPLETED, "")
    assert first.wait(30) == exits.COMPLETED
    assert len(labs.starts(lab.root, "run")) == 1
    assert store.runs("toy")[0].attempts == 1


def test_a_second_worker_does_not_wait_for_ever(lab):
    run = toy(steps=1)
    store = recorded(lab, run)
    directory = lab.root / run.directory
    directory.mkdir(parents=True)
    held = lock.acquire(directory, 1.0, lambda: False)
    assert held is not None
    assert lock.is_held(directory)
    assert finished(lab, run, "--wait", "0.3") == (exits.BUSY, "")
    held.release()
    assert not lock.is_held(directory)
    assert store.states([run.fingerprint]) == {run.fingerprint: RunState.PENDING}


def test_the_lock_is_freed_by_a_killed_worker_and_its_attempt_entered_as_vanished(lab):
    run = toy(steps=500, pause=0.01)
    store = recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: (lab.root / run.directory / "state.json").exists())
    process.kill()
    process.wait()
    assert store.runs("toy")[0].state == RunState.RUNNING
    assert not lock.is_held(lab.root / run.directory)
    second = worker(lab, run)
    labs.wait_until(lambda: len(labs.starts(lab.root, "run")) == 2)
    second.terminate()
    assert second.wait(30) == exits.STOPPED
    attempts = sqlite3.connect(lab.root / "results.db").execute("SELECT number, state, reason FROM attempt")
    assert attempts.fetchall() == [
        (1, "PREEMPTED", "its process vanished"),
        (2, "PREEMPTED", "stopped by SIGTERM"),
    ]
    assert labs.starts(lab.root, "run")[1][1] > 0


def test_exits_in_words():
    assert exits.describe(3) == "exit code 3"
    assert exits.describe(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert exits.describe(-200) == "killed by signal 200"
