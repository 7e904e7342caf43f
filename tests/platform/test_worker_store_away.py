"""A worker that starts while its store is away waits for it; an outage fails no run."""

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import labs_support as labs
import plans_support as plans
import pytest
from in_process import rows
from workers_support import Worker

from jestlab.platform import processes
from jestlab.platform import worker as workers
from jestlab.platform.errors import StoreError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store.store import Store

RUN = plans.run("run", "toy_programs:loop", {"seed": 0, "steps": 6})


def recorded(lab: Lab, run: PlannedRun) -> Lab:
    """Record a run in a lab, whose store then nobody has open."""
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(run))
    return lab


@pytest.fixture
def lab(root: Path) -> Lab:
    return recorded(Lab.find(root), RUN)


class Started(Worker):
    """A worker with an attempt of its own, started while the store is away."""

    def __init__(self, lab: Lab, run: PlannedRun, take_away: Callable[[], object]) -> None:
        with closing(Store.open(lab.store_url)) as store:
            attempt = plans.claimed(store, run)
        take_away()
        super().__init__("--root", lab.root, "--run", run.fingerprint, "--attempt", attempt)

    def wait_until_it_says(self, text: str) -> None:
        labs.wait_until(lambda: text in self.said)

    @property
    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""


def moved(file: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    away = file.with_name("elsewhere.db")
    return lambda: file.rename(away), lambda: away.rename(file)


def unwritable(file: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    """Even for root, who may write everything: an attempt cannot be taken up."""

    def execute(sql: str) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(sql)

    trigger = "CREATE TRIGGER closed BEFORE UPDATE ON attempt BEGIN INSERT INTO nowhere VALUES (1); END"
    return lambda: execute(trigger), lambda: execute("DROP TRIGGER closed")


@pytest.mark.parametrize("how", [moved, unwritable])
def test_it_waits_for_a_store_that_is_away(lab, how):
    away, back = how(lab.root / "results.db")
    worker = Started(lab, RUN, away)
    worker.wait_until_it_says("waiting for the store")
    back()
    assert worker.wait() == processes.EXIT_COMPLETED, worker.said
    assert "Traceback" not in worker.said
    assert rows(lab.root, "SELECT state FROM attempt") == [("COMPLETED",)]


def test_a_stop_while_it_waits_is_no_failure(lab):
    away, _ = moved(lab.root / "results.db")
    worker = Started(lab, RUN, away)
    worker.wait_until_it_says("waiting for the store")
    worker.terminate()
    assert worker.wait() == processes.EXIT_BUSY
    assert "Traceback" not in worker.said


def test_it_gives_up_after_a_while_and_says_little(monkeypatch, capfd):
    seconds = itertools.count(0.0)
    monkeypatch.setattr(
        workers, "time", SimpleNamespace(monotonic=lambda: next(seconds), sleep=lambda _: None)
    )

    def fail() -> None:
        raise StoreError("store results.db: attempt to write a readonly database")

    with pytest.raises(StoreError, match="readonly"):
        workers.Stop().patiently(fail)
    said = capfd.readouterr().err.splitlines()
    assert 2 <= len(said) <= workers.STORE_SECONDS / 10
    assert all("readonly database: waiting for the store" in line for line in said)


@pytest.mark.parametrize("what", ["lab", "lab/results.db"])
def test_a_lab_that_is_moved_away_and_back_loses_nothing(lab, what):
    """It is away when the run flushes its last points: they stay in memory, or go to the spool."""
    gate = lab.root.parent / "gate"
    waiting = plans.run("waiting", "toy_programs:loop", {"seed": 0, "steps": 6, "gate": str(gate)})
    recorded(lab, waiting)
    worker = Started(lab, waiting, lambda: None)
    folder = lab.root / waiting.directory
    labs.wait_until((folder / "state.json").exists)
    place, away = lab.root.parent / what, lab.root.parent / "elsewhere"
    place.rename(away)
    gate.touch()
    labs.wait_until(lambda: "kept in memory" in worker.said or list(folder.glob("spool-*")))
    assert not place.exists()
    away.rename(place)
    assert worker.wait() == processes.EXIT_COMPLETED, worker.said
    assert rows(lab.root, "SELECT COUNT(DISTINCT step) FROM metric") == [(6,)]
    assert rows(lab.root, "SELECT state FROM attempt") == [("COMPLETED",)]


@pytest.mark.both_databases
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_lab_that_is_away_when_a_worker_starts_is_not_created(store_url, root, monkeypatch):
    """The store answers, so that the lab's folder alone is missing."""
    monkeypatch.setenv("JESTLAB_STORE", store_url)
    root.mkdir()
    away = root.with_name("elsewhere")
    worker = Started(recorded(Lab.find(root), RUN), RUN, lambda: root.rename(away))
    worker.wait_until_it_says("waiting for the store")
    assert not root.exists()
    away.rename(root)
    assert worker.wait() == processes.EXIT_COMPLETED, worker.said
    assert "Traceback" not in worker.said
