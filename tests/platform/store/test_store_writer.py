"""What a worker writes: in bulk, once, and all of it."""

from __future__ import annotations

import hashlib
import math
import sqlite3
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import plans_support as plans
import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.store import engine, provenance, writer
from jestlab.platform.store.states import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.writer import Attempt, AttemptLost

HERE = provenance.Provenance("host", "2 cores", {"python": "3"}, None, None)
RUN = plans.run("a")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(f"sqlite:///{tmp_path / 'results.db'}")
    store.record(plans.plan(RUN))
    return store


@pytest.fixture
def attempt(store: Store) -> Attempt:
    return Attempt.begin(store, RUN.fingerprint, log="log.txt", provenance=HERE)


def points(store: Store, columns: str = "name, step, value") -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(str(store.engine.url.database))
    return connection.execute(f"SELECT {columns} FROM v_metrics ORDER BY name, step").fetchall()


def test_points_are_buffered_until_a_flush(store, attempt):
    attempt.log(1, {"loss": 0.5})
    assert points(store) == []
    attempt.flush()
    assert points(store) == [("loss", 1, 0.5)]


def test_points_are_written_within_a_second_or_two(store, attempt):
    attempt.log(1, {"loss": 0.5})
    attempt.progress(1, 10)
    for _ in range(60):
        if points(store):
            break
        threading.Event().wait(0.05)
    assert points(store) == [("loss", 1, 0.5)]
    assert store.progress([RUN.fingerprint], ["loss"])[RUN.fingerprint].latest == {"loss": 0.5}
    assert store.runs("toy")[0].step == 1


def test_a_thousand_points_are_not_kept_waiting(store, attempt):
    for step in range(writer.FLUSH_POINTS // 2):
        attempt.log(step, {"loss": 1.0, "accuracy": 0.5})
    assert len(points(store)) == writer.FLUSH_POINTS


def test_the_last_write_of_a_step_wins_within_and_across_attempts(store, attempt):
    attempt.log(1, {"loss": 1.0})
    attempt.log(1, {"loss": 2.0})
    attempt.evaluation(1, 10, 1e3, {"shapes/zero_shot": 0.1})
    attempt.interrupt("stopped")
    again = Attempt.begin(store, RUN.fingerprint, log="log.txt", provenance=HERE)
    assert points(store) == [("loss", 1, 2.0)]
    again.log(1, {"loss": 3.0})
    again.log(2, {"loss": 4.0})
    again.evaluation(1, 20, 2e3, {"shapes/zero_shot": 0.2})
    again.complete()
    assert points(store) == [("loss", 1, 3.0), ("loss", 2, 4.0)]
    scores = sqlite3.connect(str(store.engine.url.database)).execute(
        "SELECT value, examples_seen, flops_total, final FROM v_evaluations"
    )
    assert scores.fetchall() == [(0.2, 20, 2e3, 1)]


def test_values_that_are_not_finite(store, attempt):
    values = {"nan": math.nan, "plus": math.inf, "minus": -math.inf, "numpy": np.float32(0.5)}
    attempt.log(1, values)
    attempt.evaluation(1, 1, 1.0, {"shapes/nan": math.nan})
    attempt.complete()
    found = {name: value for name, _, value in points(store)}
    assert found == {"nan": None, "plus": math.inf, "minus": -math.inf, "numpy": 0.5}
    progress = store.progress([RUN.fingerprint], ["nan", "plus"])[RUN.fingerprint]
    assert progress.latest == {"plus": math.inf}


def test_the_end_comes_with_the_last_points(store, attempt):
    attempt.log(1, {"loss": 0.5})
    attempt.progress(1, 1)
    attempt.complete()
    assert points(store) == [("loss", 1, 0.5)]
    [run] = store.runs("toy")
    assert (run.state, run.step, run.total_steps, run.reason) == (RunState.COMPLETED, 1, 1, None)


@pytest.mark.parametrize(
    "end, state", [("fail", RunState.FAILED), ("interrupt", RunState.PREEMPTED)], ids=["fail", "interrupt"]
)
def test_other_ends_keep_their_reason(store, attempt, end, state):
    attempt.log(1, {"loss": 0.5})
    getattr(attempt, end)("because")
    assert points(store) == [("loss", 1, 0.5)]
    assert (store.runs("toy")[0].state, store.runs("toy")[0].reason) == (state, "because")


def test_an_attempt_that_was_replaced_writes_nothing_more(store, attempt):
    attempt.log(1, {"loss": 1.0})
    Attempt.begin(store, RUN.fingerprint, log="log.txt", provenance=HERE)
    with pytest.raises(AttemptLost):
        attempt.flush()
    with pytest.raises(AttemptLost):
        attempt.log(2, {"loss": 1.0})
    with pytest.raises(AttemptLost):
        attempt.complete()
    assert points(store) == []
    assert store.runs("toy")[0].state == RunState.RUNNING


def test_nothing_is_lost_while_another_process_holds_the_database(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.05)
    store = Store.open(f"sqlite:///{tmp_path / 'results.db'}")
    store.record(plans.plan(RUN))
    attempt = Attempt.begin(store, RUN.fingerprint, log="log.txt", provenance=HERE)
    attempt.log(1, {"loss": 1.0})
    other = sqlite3.connect(tmp_path / "results.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UserError, match="database is locked"):
        attempt.flush()
    other.execute("ROLLBACK")
    attempt.log(2, {"loss": 2.0})
    attempt.flush()
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.0)]


def test_a_score_must_name_its_dataset(attempt):
    with pytest.raises(ValueError, match="dataset/metric"):
        attempt.evaluation(1, 1, 1.0, {"zero_shot": 0.5})


def test_artifacts_have_size_and_digest(store, attempt, tmp_path):
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "a.txt").write_bytes(b"one")
    (tmp_path / "folder" / "deep" / "b.txt").write_bytes(b"two")
    attempt.artifact("file", tmp_path / "folder" / "a.txt", tmp_path)
    attempt.artifact("folder", tmp_path / "folder", tmp_path)
    database = sqlite3.connect(tmp_path / "results.db")
    rows = {row[0]: row[1:] for row in database.execute("SELECT name, uri, size, sha256 FROM artifact")}
    assert rows["file"] == ("folder/a.txt", 3, hashlib.sha256(b"one").hexdigest())
    assert rows["folder"] == ("folder", 6, hashlib.sha256(b"a.txt\0onedeep/b.txt\0two").hexdigest())
    with pytest.raises(ValueError, match="outside the lab"):
        attempt.artifact("passwords", Path("/etc/passwd"), tmp_path)
    with pytest.raises(ValueError, match="nothing at"):
        attempt.artifact("missing", tmp_path / "missing", tmp_path)


def test_provenance_names_commit_and_patch(tmp_path):
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    assert provenance.collect(tmp_path).git_commit is None
    git("init")
    (tmp_path / "code.py").write_text("x = 1\n")
    git("add", ".")
    git("commit", "-m", "first")
    clean = provenance.collect(tmp_path)
    assert clean.git_commit is not None
    assert (len(clean.git_commit), clean.git_patch) == (40, None)
    assert clean.versions["jestlab"]
    (tmp_path / "code.py").write_text("x = 2\n")
    assert "+x = 2" in (provenance.collect(tmp_path).git_patch or "")
    (tmp_path / "code.py").write_text("y\n" * provenance.PATCH_BYTES)
    patch = provenance.collect(tmp_path).git_patch or ""
    assert len(patch) < provenance.PATCH_BYTES + 100
    assert "more characters left out" in patch
