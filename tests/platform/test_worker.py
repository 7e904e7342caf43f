"""One worker, without a launcher: what it does, how it ends, and where its time goes."""

import json
import signal
import sqlite3
import sys
from pathlib import Path

import labs_support as labs
import plans_support as plans
import psutil
import pytest
from in_process import rows
from workers_support import Worker, finished, recorded, worker

from jestlab.analysis.goodput import of_run
from jestlab.models.training.tracker import Tracker
from jestlab.platform import processes
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store import leases
from jestlab.platform.store.records import RunRecord, RunState
from jestlab.platform.store.spending import attempt_times, spending
from jestlab.platform.store.spool import Spool
from jestlab.platform.store.store import Store
from jestlab.platform.worker import Stop, _context


@pytest.fixture
def lab(root: Path) -> Lab:
    return Lab.find(root)


def toy(
    name: str = "run", program: str = "loop", needs: dict[str, str] | None = None, **config
) -> PlannedRun:
    return plans.run(name, f"toy_programs:{program}", {"seed": 0, **config}, needs=needs or {})


def lease_of(store: Store, run: PlannedRun) -> int:
    lease = leases.standings(store, [run.fingerprint])[run.fingerprint].lease
    assert lease is not None
    return lease.id


def test_a_function_finds_its_config_and_what_an_earlier_attempt_left(lab):
    run = RunRecord("f" * 64, "fit", {"width": 8, "seed": 3}, 3, "runs/fit", RunState.PENDING, None, {})
    folder = lab.root / "runs/fit"
    folder.mkdir(parents=True)
    (folder / "log.txt").touch()
    for left, resume in (("log.txt", None), ("model.npz", folder)):
        (folder / left).touch()
        context = _context(lab, run, Tracker(), Stop())
        assert (context.config, context.resume) == ({"width": 8, "seed": 3}, resume)


@pytest.mark.parametrize("is_claimed", [True, False])
def test_a_run_is_done_once(lab, is_claimed):
    """A worker that a user starts claims an attempt."""
    run = toy(steps=6)
    store = recorded(lab, run)
    words = ["--root", lab.root, "--run", run.fingerprint]
    if is_claimed:
        words += ["--attempt", plans.claimed(store, run)]
    first, second = Worker(*words).communicate()[1], Worker(*words)
    assert first.startswith("--- attempt 1: ")
    # A job that was submitted by hand again has nothing to do.
    assert second.wait() == (processes.EXIT_BUSY if is_claimed else processes.EXIT_COMPLETED)
    code, said = finished(lab, toy(steps=2), attempt=1)
    assert (code, len(said.splitlines())) == (processes.EXIT_REFUSED, 1)  # an unknown run
    [row] = store.runs("toy")
    assert (row.state, row.step, row.total_steps, row.attempts) == (RunState.COMPLETED, 6, 6, 1)
    [attempt] = rows(lab.root, "SELECT state, exit_code, log, versions, device FROM attempt")
    assert attempt[:3] == ("COMPLETED", 0, f"{run.directory}/log.txt")
    assert json.loads(attempt[3]).keys() >= {"python", "jestlab", "jax"}
    assert "cores" in attempt[4]


def test_the_first_evaluation_has_to_have_the_names_that_the_study_needs(lab):
    run = toy(steps=1)
    store = Store.open(lab.store_url)
    plans.record(store, plans.plan(run, score=["toy/scroe"], metrics={"toy/scroe": {"goal": "max"}}))
    assert finished(lab, run)[0] == processes.EXIT_REFUSED
    [row] = store.runs("toy")
    assert row.state == RunState.FAILED
    assert "the first evaluation reports toy/score, toy/other, which toy doesn't declare" in str(row.reason)


@pytest.mark.parametrize(
    ("number", "state", "reason"),
    [
        (signal.SIGTERM, RunState.PREEMPTED, "stopped by SIGTERM"),
        (signal.SIGINT, RunState.PREEMPTED, "stopped by SIGINT"),
        (None, RunState.CANCELLED, "cancelled by me"),
    ],
)
def test_a_signal_or_the_store_stops_it_at_a_checkpoint(lab, number, state, reason):
    run = toy(steps=60_000, pause=0.01)
    store = recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: labs.starts(lab.root, "run"))
    if number is None:
        leases.request_stop(store, [run.fingerprint], reason)
    else:
        process.send_signal(number)
    assert process.wait(60) == processes.EXIT_STOPPED
    [row] = store.runs("toy")
    assert (row.state, row.reason) == (state, reason)
    assert json.loads((lab.root / run.directory / "state.json").read_text())[0] == row.step


def freeze(process: Worker, database: sqlite3.Connection) -> None:
    """Stop a worker between two writes: it would keep others from the database otherwise."""

    def frozen() -> bool:
        process.send_signal(signal.SIGSTOP)
        labs.wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            return False
        database.rollback()
        return True

    labs.wait_until(frozen)


def test_a_worker_frozen_until_another_has_its_run_writes_no_more(lab, tmp_path):
    hurry = tmp_path / "hurry"
    run = toy(steps=1_000, pause=0.01, hurry=str(hurry))
    store = recorded(lab, run)
    frozen = worker(lab, run)
    labs.wait_until(lambda: (lab.root / run.directory / "state.json").exists())
    database = sqlite3.connect(lab.root / "results.db", isolation_level=None)
    freeze(frozen, database)
    [written] = database.execute("SELECT MAX(step) FROM metric").fetchone()
    database.executescript(
        "CREATE TABLE again (step); CREATE TRIGGER told AFTER UPDATE ON metric"
        " BEGIN INSERT INTO again VALUES (new.step); END"
    )
    plans.end(store, run.fingerprint, lease_of(store, run), RunState.PREEMPTED, "silent", None)
    second = worker(lab, run)
    labs.wait_until(lambda: len(labs.starts(lab.root, "run")) == 2)
    frozen.send_signal(signal.SIGCONT)
    assert frozen.wait(60) == processes.EXIT_BUSY
    hurry.touch()
    assert second.wait(60) == processes.EXIT_COMPLETED
    by_both = database.execute("SELECT step FROM again WHERE step > ?", (written,)).fetchall()
    assert by_both == []
    assert database.execute("SELECT COUNT(*) FROM metric").fetchone() >= (1_000,)
    states = database.execute("SELECT number, state, reason FROM attempt").fetchall()
    assert states == [(1, "PREEMPTED", "silent"), (2, "COMPLETED", None)]


@pytest.mark.parametrize("has_ended", [True, False])
def test_what_an_attempt_could_not_store_is_stored_by_the_next_one(lab, has_ended):
    """If its end is in the spool, the program is not run again."""
    run = toy(steps=5)
    store = recorded(lab, run)
    plans.claimed(store, run)
    spent: dict[str, float | int | None] = {"training_seconds": 2.5, "resumed_step": 0, "reached_step": 2}
    spool = Spool(lab.make_folder(run.directory), lease_of(store, run))
    spool.append([("spent", spent), ("point", 2, "loss", 0.5), ("progress", 2, 5)])
    if has_ended:
        spool.append([("end", "COMPLETED", None, 0)])
    ended_by_launcher(store, run)
    assert finished(lab, run)[0] == processes.EXIT_COMPLETED
    assert store.runs("toy")[0].state == RunState.COMPLETED
    assert not spool.path.exists()
    first, *later = attempt_times(store, "toy")
    assert (first.training_seconds, first.reached_step) == (2.5, 2)
    assert [each.reached_step for each in later] == ([None] if has_ended else [5])
    if has_ended:
        assert labs.starts(lab.root, "run") == []
        assert rows(lab.root, "SELECT step, value FROM metric") == [(2, 0.5)]


def test_a_program_that_stops_unasked_or_before_its_needs_has_failed(lab):
    quitter = toy(program="quitter")
    joint = toy("joint", needs={"reference": quitter.fingerprint}, steps=1)
    store = recorded(lab, quitter, joint)
    assert finished(lab, quitter)[0] == processes.EXIT_FAILED
    assert finished(lab, joint)[0] == processes.EXIT_REFUSED
    reasons = store.reasons([quitter.fingerprint, joint.fingerprint])
    needs = f"UserError: needs run {quitter.fingerprint[:8]} (reference), which is FAILED"
    assert reasons == {quitter.fingerprint: "stopped itself", joint.fingerprint: needs}


# ---- goodput


RETRIED = """
import sys
from pathlib import Path
from jestlab.platform import client
run, begun = client.run(), Path("begun")
if not begun.exists():
    begun.touch()
    if run.config["leaves"]:
        (run.directory / "model").touch()
    run.log(5, loss=1.0)
    run.log(20, loss=1.0)
    sys.exit("killed")
run.log(15, loss=2.0)
run.log(30, loss=2.0)
"""


@pytest.mark.parametrize(
    ("leaves", "resumed", "points"),
    [(False, 0, [(15, 2.0), (30, 2.0)]), (True, 14, [(5, 1.0), (15, 2.0), (30, 2.0)])],
)
def test_an_attempt_starts_over_if_the_folder_is_empty(lab, tmp_path, leaves, resumed, points):
    config = {"seed": 3, "command": [sys.executable, "-c", RETRIED], "cwd": str(tmp_path), "leaves": leaves}
    run = plans.run("run", "command", config, seed=3)
    store = recorded(lab, run)
    assert finished(lab, run)[0] == processes.EXIT_FAILED
    assert finished(lab, run)[0] == processes.EXIT_COMPLETED
    assert [attempt.resumed_step for attempt in attempt_times(store, "toy")] == [0, resumed]
    assert rows(lab.root, "SELECT step, value FROM metric ORDER BY step") == points


def ended_by_launcher(store: Store, run: PlannedRun) -> None:
    """End the attempt of a dead worker, as a launcher does."""
    assert plans.end(store, run.fingerprint, lease_of(store, run), RunState.PREEMPTED, "killed", -9)


def test_a_killed_run_loses_the_steps_since_its_checkpoint(lab, tmp_path):
    """Killed in step 24, it resumes at step 20."""
    pause, gate = 0.02, tmp_path / "gate"
    run = toy(steps=24, save_every=20, pause=pause, gate=str(gate))
    store = recorded(lab, run)
    process = worker(lab, run)
    labs.wait_until(lambda: any(one.reached_step == 23 for one in attempt_times(store, "toy")))
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    gate.touch()
    ended_by_launcher(store, run)
    assert worker(lab, run).wait(60) == processes.EXIT_COMPLETED
    first, second = attempts = attempt_times(store, "toy")
    assert (first.state, first.resumed_step, first.saved_step) == ("PREEMPTED", 0, 20)
    assert (second.resumed_step, second.reached_step, second.saved_step) == (20, 24, 24)
    assert first.saved_seconds is not None and first.saved_seconds >= 20 * pause
    found = of_run(attempts)
    assert found.parts["preempted"] >= 3 * pause * 1e6
    [cost] = spending(store, "toy").values()
    assert cost.actual_hours == pytest.approx(found.held / 3.6e9, abs=1e-9)
