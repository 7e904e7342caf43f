"""`jestlab status`, `jestlab watch`, and `jestlab logs`."""

import json
import math
from datetime import timedelta
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores
from sqlalchemy import update

from jestlab.platform import processes
from jestlab.platform.cli.status import _PROGRESS_COLUMNS
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.status import RunStatus
from jestlab.platform.serve.groups import cells
from jestlab.platform.store import batches, leases, tables
from jestlab.platform.store.records import RunState, RunSummary, Spending
from jestlab.platform.store.rows import now

RUNS = [plans.run("uniform", seed=0), plans.run("uniform", seed=1), plans.run("joint", point={"ratio": 0.8})]


@pytest.fixture
def ended(store, root):
    """A completed run, a failed one, and a pending one."""
    plans.record(store, plans.plan(*RUNS))
    for run in RUNS[:2]:
        log = stores.folder(Lab.find(root), run) / "log.txt"
        log.write_text(f"--- attempt 1\nseed {run.seed}\nlast line\n")
        attempt = plans.begun(store, run)
        attempt.progress(5 + run.seed, 10)
        attempt.fail("ValueError: | no") if run.seed else attempt.complete()


def test_status_of_all_experiments_and_of_one(ended, jestlab, root):
    listed = jestlab("status").splitlines()
    assert " ".join(listed[0].split()) == "experiment scale runs pending completed failed launched (UTC)"
    assert listed[1].split()[:6] == ["toy", "smoke", "3", "1", "1", "1"]
    [experiment] = json.loads(jestlab("status", "--json"))
    assert experiment["counts"] == {"PENDING": 1, "COMPLETED": 1, "FAILED": 1}
    runs = jestlab("status", "toy").splitlines()
    assert runs[1].split() == ["uniform", "0", "COMPLETED", "5/10", "1"]
    assert runs[2].split() == ["uniform", "1", "FAILED", "6/10", "1"]
    log = root / RUNS[1].directory / "log.txt"
    assert runs[3:7] == ["", "1 run FAILED: ValueError: | no", "  uniform/1", f"  log: {log}"]
    _, failed, pending = json.loads(jestlab("status", "toy", "--json"))
    assert (failed["state"], failed["reason"]) == ("FAILED", "ValueError: | no")
    assert (pending["state"], pending["started_at"]) == ("PENDING", None)


def test_status_without_a_store(root, jestlab):
    assert jestlab("status").startswith("no experiments yet: jestlab init, or ")
    assert jestlab("status", "--json") == "[]\n"
    assert "launch a study first" in jestlab("status", "toy", code=1)
    assert not root.exists()


def test_logs_of_a_run(ended, jestlab):
    assert jestlab("logs", "toy/uniform/1", "-n", "1") == "last line\n"
    assert "seed 0" in jestlab("logs", RUNS[0].fingerprint[:6])
    assert jestlab("logs", "toy/uniform/0", "-f").endswith("last line\n")
    shown = json.loads(jestlab("logs", "toy/uniform/0", "-n", "1", "--json"))
    assert (shown["state"], shown["text"]) == ("COMPLETED", "last line\n")
    assert "has no log yet: it is PENDING" in jestlab("logs", "toy/joint", code=1)


@pytest.fixture
def active(store):
    """A completed reference, a run that trains with it, and two that wait; this process is the launcher."""
    reference = plans.run("reference")
    trained = {"reference": reference.fingerprint}
    trains = plans.run("trains", config={"a": 1}, needs=trained)
    waits = plans.run("waits", config={"a": 2}, needs=trained)
    blocked = plans.run("blocked", needs={"reference": trains.fingerprint})
    plans.record(store, plans.plan(reference, trains, waits, blocked))
    stores.attempt(store, reference)
    began = now() - timedelta(seconds=100)
    signs: dict[str, Any] = {"heartbeat_at": now(), "handle": f"{processes.identity()}:log.txt"}
    attempt = stores.attempt(store, trains, RunState.RUNNING, started=began, **signs)
    with store.writing() as connection:
        run = stores.run_id(store, trains)
        points: batches.Batch = [("point", 500, "examples_seen", 98_000.0), ("point", 500, "loss", math.inf)]
        batch: batches.Batch = [*points, ("progress", 500, 1_000)]
        batches.write(connection, run, attempt, batch, late=False)
        reported = began + timedelta(seconds=100)
        connection.execute(update(tables.RunRow).where(tables.RunRow.id == run).values(updated_at=reported))
    leases.enter_launcher(store, processes.identity())


def test_rows_show_the_speed_and_why_runs_wait(active, store, jestlab):
    """`watch` and `status` show the same rows."""
    rows = {row["run"]: row for row in json.loads(jestlab("watch", "toy", "--json"))}
    assert rows["trains"]["examples_per_second"] == pytest.approx(980)
    assert rows["trains"]["eta_seconds"] == pytest.approx(100)
    assert rows["trains"]["waits"] is None and rows["trains"]["loss"] == "inf"  # JSON lacks infinities
    waits = {name: (rows[name]["state"], rows[name]["reason"]) for name in ("waits", "blocked")}
    blocked = ("BLOCKED", "waits for trains/0, which is RUNNING")
    assert waits == {"waits": ("PENDING", "waits for a slot"), "blocked": blocked}
    status = {row["run"]: row for row in json.loads(jestlab("status", "toy", "--json"))}
    assert all(row.items() <= status[name].items() for name, row in rows.items())
    assert " 1 min 40 s " in jestlab("watch", "toy", "--once")
    printed = jestlab("status", "toy")
    assert "\n1 run waiting for a slot\n  waits/0\n" in printed
    assert "\n1 run waiting for other runs\n  blocked/0\n  blocked/0 waits for trains/0, which is" in printed
    assert "BLOCKED" not in printed and "PENDING" not in printed  # these runs have no rows
    assert printed.count("  to start: the end of another run") == printed.count("to start: ") == 1
    with store.writing() as connection:
        connection.execute(update(tables.LauncherRow).values(name="elsewhere:1:0", heartbeat_at=stores.START))
    assert "1 run not launched: no launcher is alive" in jestlab("status", "toy")


def test_flops_of_0_are_a_number_and_unknown_ones_are_empty():
    run = RunSummary("f", "a", "a", 0, RunState.COMPLETED, None, 1, 1, 1, "", None, None, "command")
    for spending, text in ((Spending(0.0, 0.0), "0 FLOP"), (Spending(), "")):
        row = RunStatus(run, spending)
        assert [column.cell(row) for column in _PROGRESS_COLUMNS[-2:]] == [text, text]
        assert cells([row])["flops"] == text


# Two minutes; it trained until step 100, and saved step 60.
MEASURED: dict[str, Any] = {
    "startup_seconds": 12.0, "compilation_seconds": 24.0, "training_seconds": 60.0,
    "evaluation_seconds": 12.0, "checkpoint_seconds": 6.0, "winddown_seconds": 6.0,
    "resumed_step": 0, "reached_step": 100, "saved_step": 60, "saved_seconds": 48.0,
}  # fmt: skip
GOODPUT = "goodput 50%: compilation 20%, start-up 10%, preempted work 10%, checkpoints 5%, wind-down 5%"


def test_goodput_of_a_run_that_was_preempted_once(store, jestlab):
    run = plans.run("uniform")
    plans.record(store, plans.plan(run))
    stores.attempt(store, run, RunState.PREEMPTED, **MEASURED)
    stores.attempt(store, run, number=2, **MEASURED | {"resumed_step": 60})
    assert GOODPUT in jestlab("status", "toy").splitlines()
    [status] = json.loads(jestlab("status", "toy", "--json"))
    assert status["goodput"]["goodput"] == 0.5
    assert sum(status["goodput"]["chip_seconds"].values()) == status["goodput"]["held_chip_seconds"] == 240
    assert status["goodput"]["chip_seconds"]["preempted"] == 24
    assert (status["goodput"]["attempts"], status["goodput"]["unknown_attempts"]) == (2, 0)
    stores.attempt(store, run, number=3)
    assert "; unknown of 1 of 3 attempts" in jestlab("status", "toy")


def test_a_pending_run_has_no_goodput(store, jestlab):
    plans.record(store, plans.plan(plans.run("uniform")))
    assert "goodput" not in jestlab("status", "toy")
