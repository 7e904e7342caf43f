"""What `jestlab watch` says of speed, and of what runs wait for."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import labs_support as labs
import plans_support as plans
import stores_support as stores
from sqlalchemy import update

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import processes
from jestlab.platform.store import leases, tables
from jestlab.platform.store.records import RunState
from jestlab.platform.store.spool import Batch, Points
from jestlab.platform.store.store import Store


def recorded(root: Path) -> Store:
    """A reference that is done, one run that trains by it, and two that wait; this process launches."""
    reference = plans.run("reference")
    trained = {"reference": reference.fingerprint}
    trains = plans.run("trains", config={"a": 1}, needs=trained)
    waits = plans.run("waits", config={"a": 2}, needs=trained)
    blocked = plans.run("blocked", needs={"reference": trains.fingerprint})
    store = Store.open(Lab.find(root).store_url)
    store.record(plans.plan(reference, trains, waits, blocked))
    stores.attempt(store, reference)
    began = tables.now() - timedelta(seconds=100)
    own = processes.own_handle("log.txt")
    attempt = stores.attempt(
        store, trains, RunState.RUNNING, started=began, heartbeat_at=tables.now(), handle=own
    )
    with store.writing() as connection:
        its_id = stores.run_id(store, trains)
        batch = Batch(points=[(500, "examples_seen", 98_000.0)], progress=(500, 1_000))
        Points(its_id).write(connection, batch, attempt, late=False)
    leases.enter_launcher(store, processes.identity())
    return store


def test_its_speed_is_by_what_was_reported_and_not_by_two_looks(root):
    recorded(root).close()
    lines = {line["run"]: line for line in json.loads(labs.here("watch", "toy", "--json", root=root).stdout)}
    assert round(lines["trains"]["examples_per_second"]) in range(950, 981)
    assert round(lines["trains"]["eta_seconds"]) in range(100, 104)
    shown = labs.here("watch", "toy", "--once", root=root).stdout
    assert " 0:01:4" in shown


def test_it_says_what_a_run_waits_for(root):
    store = recorded(root)
    lines = {line["run"]: line for line in json.loads(labs.here("watch", "toy", "--json", root=root).stdout)}
    assert (lines["waits"]["state"], lines["waits"]["reason"]) == ("PENDING", "waits for a slot")
    blocked = (lines["blocked"]["state"], lines["blocked"]["reason"])
    assert blocked == ("BLOCKED", "waits for trains/0, which is RUNNING")
    with store.writing() as connection:
        connection.execute(update(tables.Launcher).values(name="elsewhere:1:0", heartbeat_at=stores.START))
    store.close()
    status = labs.here("status", "toy", root=root).stdout
    assert "waits to be launched: no launcher is alive" in status


def test_status_says_why_a_run_waits_its_place_and_what_would_let_it_begin(root):
    recorded(root).close()
    printed = labs.here("status", "toy", root=root).stdout
    assert "waits/0: waits for a slot\n  1st of 1 in line, to begin in about 1.7 min\n" in printed
    assert "  would let it begin: the end of another run, or more at a time: `jestlab launch" in printed
    assert printed.count("would let") == 1
    runs = {run["run"]: run for run in json.loads(labs.here("status", "toy", "--json", root=root).stdout)}
    assert runs["waits"]["waits"]["place"].startswith("1st of 1")
    assert runs["blocked"]["waits"]["unblock"] == "its completion"
    assert runs["trains"]["waits"] is None
