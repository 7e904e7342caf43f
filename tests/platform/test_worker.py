"""One worker, without a launcher."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path

import labs_support as labs
import plans_support as plans
import pytest
from workers_support import Worker

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import processes
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store import leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.spool import Batch, Spool
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


def worker(lab: Lab, run: PlannedRun, attempt: int | None = None) -> Worker:
    """A worker with an attempt of its own, or with a certain one."""
    if attempt is None:
        attempt = plans.claimed(Store.open(lab.store_url), run)
    return Worker("--root", lab.root, "--run", run.fingerprint, "--attempt", attempt)


def finished(lab: Lab, run: PlannedRun, attempt: int | None = None) -> tuple[int | None, str]:
    """Exit code and standard error of a worker run to its end."""
    process = worker(lab, run, attempt)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def test_a_run_is_done_once(lab):
    run = toy(steps=6)
    store = recorded(lab, run)
    code, said = finished(lab, run)
    assert code == processes.EXIT_COMPLETED, said
    assert said.startswith("--- attempt 1: ")
    assert finished(lab, run, attempt=1)[0] == processes.EXIT_BUSY
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
    code, said = finished(lab, toy(steps=2), attempt=1)
    assert code == processes.EXIT_REFUSED
    assert len(said.splitlines()) == 1


def test_a_need_that_has_not_completed_fails_the_run(lab):
    reference = toy("reference", steps=1)
    joint = toy("joint", needs={"reference": reference.fingerprint}, steps=1)
    store = recorded(lab, reference, joint)
    assert finished(lab, joint)[0] == processes.EXIT_REFUSED
    reason = store.reasons([joint.fingerprint])[joint.fingerprint]
    assert reason == f"UserError: needs run {reference.fingerprint[:8]} (reference), which is PENDING"
    assert finished(lab, reference)[0] == processes.EXIT_COMPLETED
    assert finished(lab, joint)[0] == processes.EXIT_COMPLETED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_at_a_checkpoint(lab, number):
    run = toy(steps=500, pause=0.01)
    store = recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: labs.starts(lab.root, "run"))
    process.send_signal(number)
    assert process.wait(30) == processes.EXIT_STOPPED
    [row] = store.runs("toy")
    assert row.state == RunState.PREEMPTED
    assert row.reason == f"stopped by {number.name}"
    assert json.loads((lab.root / run.directory / "state.json").read_text())[0] == row.step


def test_it_stops_when_the_store_says_so(lab, monkeypatch):
    run = toy(steps=5_000, pause=0.01)
    store = recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: labs.starts(lab.root, "run"))
    leases.request_stop(store, [run.fingerprint], "cancelled by me")
    assert process.wait(30) == processes.EXIT_STOPPED
    [row] = store.runs("toy")
    assert (row.state, row.reason) == (RunState.CANCELLED, "cancelled by me")


def test_an_attempt_is_taken_up_by_one_worker(lab):
    run = toy(steps=50, pause=0.02)
    store = recorded(lab, run)
    first = worker(lab, run)
    labs.wait_until(lambda: labs.starts(lab.root, "run"))
    code, said = finished(lab, run, attempt=1)
    assert (code, len(said.splitlines())) == (processes.EXIT_BUSY, 1)
    assert first.wait(30) == processes.EXIT_COMPLETED
    assert len(labs.starts(lab.root, "run")) == 1
    assert store.runs("toy")[0].attempts == 1


def test_an_attempt_that_was_given_up_is_not_taken_up(lab):
    run = toy(steps=1)
    store = recorded(lab, run)
    plans.claimed(store, run)
    lease = leases.standings(store, [run.fingerprint])[run.fingerprint].lease
    assert lease is not None
    assert leases.end(store, run.fingerprint, lease.id, RunState.PREEMPTED, "gone", None)
    assert finished(lab, run, attempt=1)[0] == processes.EXIT_BUSY
    assert labs.starts(lab.root, "run") == []
    assert store.states([run.fingerprint]) == {run.fingerprint: RunState.PREEMPTED}


def test_a_worker_frozen_until_another_has_its_run_writes_no_more(lab):
    run = toy(steps=200, pause=0.01)
    store = recorded(lab, run)
    frozen = worker(lab, run)
    labs.wait_until(lambda: (lab.root / run.directory / "state.json").exists())
    frozen.send_signal(signal.SIGSTOP)
    database = sqlite3.connect(lab.root / "results.db")
    [written] = database.execute("SELECT MAX(step) FROM metric").fetchone()
    database.executescript(
        "CREATE TABLE again (step); CREATE TRIGGER told AFTER UPDATE ON metric"
        " BEGIN INSERT INTO again VALUES (new.step); END"
    )
    lease = leases.standings(store, [run.fingerprint])[run.fingerprint].lease
    assert lease is not None
    leases.end(store, run.fingerprint, lease.id, RunState.PREEMPTED, "silent", None)
    second = worker(lab, run)
    labs.wait_until(lambda: len(labs.starts(lab.root, "run")) == 2)
    frozen.send_signal(signal.SIGCONT)
    assert frozen.wait(30) == processes.EXIT_BUSY
    assert second.wait(30) == processes.EXIT_COMPLETED
    by_both = database.execute("SELECT step FROM again WHERE step > ?", (written,)).fetchall()
    assert by_both == []
    assert database.execute("SELECT COUNT(*) FROM metric").fetchone() >= (200,)
    states = database.execute("SELECT number, state, reason FROM attempt").fetchall()
    assert states == [(1, "PREEMPTED", "silent"), (2, "COMPLETED", None)]


def test_an_end_that_could_not_be_told_is_told_by_the_next_attempt(lab):
    """The program is not run again: its end is in the spool of the attempt before."""
    run = toy(steps=5)
    store = recorded(lab, run)
    plans.claimed(store, run)
    lease = leases.standings(store, [run.fingerprint])[run.fingerprint].lease
    assert lease is not None
    directory = lab.root / run.directory
    directory.mkdir(parents=True)
    spool = Spool(directory, lease.id)
    spool.append(Batch(points=[(5, "loss", 0.5)], progress=(5, 5)))
    spool.append(Batch(end=("COMPLETED", None, 0)))
    leases.end(store, run.fingerprint, lease.id, RunState.PREEMPTED, "its process vanished", None)
    assert finished(lab, run)[0] == processes.EXIT_COMPLETED
    assert labs.starts(lab.root, "run") == []
    assert store.runs("toy")[0].state == RunState.COMPLETED
    points = sqlite3.connect(lab.root / "results.db").execute("SELECT step, value FROM metric")
    assert points.fetchall() == [(5, 0.5)]
    assert not spool.path.exists()


def test_a_program_that_stops_unasked_has_failed(lab):
    run = toy(program="quitter")
    store = recorded(lab, run)
    assert finished(lab, run)[0] == processes.EXIT_FAILED
    assert store.runs("toy")[0].reason == "stopped itself"


def test_exits_in_words():
    assert processes.describe_exit(3) == "exit code 3"
    assert processes.describe_exit(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert processes.describe_exit(-200) == "killed by signal 200"
