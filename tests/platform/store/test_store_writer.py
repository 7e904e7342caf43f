"""What a worker writes: in bulk, completely, and each thing once, even if the store is unreachable."""

from __future__ import annotations

import errno
import functools
import hashlib
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import plans_support as plans
import pytest
from sqlalchemy import text
from stores_support import Unreliable, rows
from tests.waiting import wait_until

from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.store import attempt as attempts
from jestlab.platform.store import leases
from jestlab.platform.store.attempt import ValueRefused, WorkerAttempt
from jestlab.platform.store.records import AttemptLost, RunState
from jestlab.platform.store.spool import Spool
from jestlab.platform.store.store import Store

RUN = plans.run("a")


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch):
    monkeypatch.setattr(attempts, "TICK_SECONDS", 0.05)


@pytest.fixture
def store(store: Store) -> Store:
    plans.record(store, plans.plan(RUN))
    return store


def begun(
    store: Store | Unreliable, folder: Path, lease_seconds: float = 90.0, may_resume: bool = False
) -> WorkerAttempt:
    return plans.begun(store, RUN, folder, lease_seconds, may_resume=may_resume)  # type: ignore[arg-type]


@pytest.fixture
def unreliable(store: Store) -> Unreliable:
    return Unreliable(store)


@pytest.fixture
def attempt(unreliable: Unreliable, tmp_path: Path) -> WorkerAttempt:
    """An attempt that writes to the unreliable store."""
    return begun(unreliable, tmp_path)


def points(store: Store) -> list[tuple[Any, ...]]:
    return rows(store, "SELECT name, step, value FROM v_metrics ORDER BY name, step")


def state(store: Store) -> RunState:
    return store.states([RUN.fingerprint])[RUN.fingerprint]


def give_up(store: Store) -> None:
    """End the live attempt, as a launcher does if its heartbeats stop."""
    lease = leases.standings(store, [RUN.fingerprint])[RUN.fingerprint].lease
    assert lease is not None
    assert plans.end(store, RUN.fingerprint, lease.id, RunState.PREEMPTED, "silent", None)


def test_writes_where_an_attempt_runs_and_its_points_at_the_next_tick(store, attempt):
    columns = "SELECT state, host, handle, device, environment, versions FROM attempt"
    assert rows(store, columns) == [
        ("RUNNING", "host", "host:1:2:log.txt", "2 cores", '{"JAX_PLATFORMS":"cpu"}', '{"python":"3"}')
    ]
    attempt.log(1, {"loss": 0.5})
    attempt.progress(1, 10)
    wait_until(lambda: points(store) == [("loss", 1, 0.5)] and store.runs("toy")[0].step == 1)
    assert store.progress([RUN.fingerprint], ["loss"])[RUN.fingerprint].latest == {"loss": 0.5}


def test_points_are_buffered_until_a_flush_or_a_full_buffer(store, tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "TICK_SECONDS", 600.0)
    attempt = begun(store, tmp_path)
    attempt.log(1, {"loss": 0.5})
    assert points(store) == []
    attempt.flush()
    assert points(store) == [("loss", 1, 0.5)]
    monkeypatch.setattr(attempts, "FLUSH_POINTS", 20)
    for step in range(2, 12):
        attempt.log(step, {"loss": 1.0, "accuracy": 0.5})
    wait_until(lambda: len(points(store)) == 21)


@pytest.mark.both_databases
def test_the_last_write_of_a_step_wins(store, attempt, tmp_path):
    attempt.log(1, {"loss": 1.0})
    attempt.log(1, {"loss": 2.0})
    attempt.evaluation(1, 10, 1e3, {"shapes/zero_shot": 0.1})
    attempt.interrupt("stopped")
    again = begun(store, tmp_path)
    assert points(store) == [("loss", 1, 2.0)]
    again.log(1, {"loss": 3.0})
    again.log(2, {"loss": 4.0})
    again.evaluation(1, 20, 2e3, {"shapes/zero_shot": 0.2})
    again.flush()
    scores = "SELECT dataset, metric, name, value, examples_seen, flops_total, final FROM v_evaluations"
    score = ("shapes", "zero_shot", "shapes/zero_shot", 0.2, 20, 2e3)
    assert rows(store, scores) == [(*score, 0)]
    again.complete()
    assert rows(store, scores) == [(*score, 1)]
    assert points(store) == [("loss", 1, 3.0), ("loss", 2, 4.0)]


@pytest.mark.both_databases
def test_nan_and_unknown_costs_are_stored_as_null_and_infinity_unchanged(store, attempt):
    attempt.log(1, {"nan": math.nan, "plus": math.inf, "minus": -math.inf, "numpy": np.float32(0.5)})
    attempt.evaluation(1, None, None, {"shapes/zero_shot": math.nan})
    attempt.evaluation(2, 20, None, {"shapes/zero_shot": 0.2}, seconds=1.5)
    attempt.complete()
    found = {name: value for name, _, value in points(store)}
    assert found == {"nan": None, "plus": math.inf, "minus": -math.inf, "numpy": 0.5}
    scores = "SELECT step, value, examples_seen, flops_total, seconds FROM v_evaluations ORDER BY step"
    assert rows(store, scores) == [(1, None, None, None, None), (2, 0.2, 20, None, 1.5)]
    progress = store.progress([RUN.fingerprint], ["nan", "plus"])[RUN.fingerprint]
    assert progress.latest == {"plus": math.inf}


@pytest.mark.parametrize(
    ("end", "reason", "state", "failures"),
    [
        ("complete", (), "COMPLETED", 0),
        ("fail", ("because",), "FAILED", 1),
        ("interrupt", ("because",), "PREEMPTED", 0),
    ],
)
def test_an_end_is_written_with_the_last_points(store, attempt, end, reason, state, failures):
    attempt.log(1, {"loss": 0.5})
    attempt.progress(1, 4)
    getattr(attempt, end)(*reason)
    assert points(store) == [("loss", 1, 0.5)]
    [run] = store.runs("toy")
    assert (run.state, run.step, run.total_steps) == (RunState(state), 1, 4)
    assert run.reason == (reason[0] if reason else None)
    assert leases.standings(store, [RUN.fingerprint])[RUN.fingerprint].failures == failures


@pytest.mark.both_databases
def test_a_revoked_attempt_writes_nothing_more(store, attempt, tmp_path):
    give_up(store)
    begun(store, tmp_path)
    attempt.log(1, {"loss": 1.0})
    for call in (attempt.flush, lambda: attempt.log(2, {"loss": 1.0}), attempt.complete):
        with pytest.raises(AttemptLost):
            call()
    assert points(store) == []
    assert state(store) == RunState.RUNNING


def test_heartbeats_return_the_users_wish_to_stop(store, attempt):
    assert attempt.stop_requested() is None
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    attempt.flush()
    assert attempt.stop_requested() == "cancelled by me"
    attempt.interrupt("stopped by SIGTERM")
    assert store.runs("toy")[0].reason == "cancelled by me"
    assert state(store) == RunState.CANCELLED


# ---- while the store is unreachable


def test_unwritten_batches_are_spooled_and_replayed_once(store, unreliable, attempt, tmp_path):
    attempt.log(1, {"loss": 1.0})
    attempt.flush()
    unreliable.refusals = math.inf
    attempt.log(2, {"loss": 2.0})
    attempt.evaluation(2, 20, 2e3, {"shapes/zero_shot": 0.2})
    attempt.progress(2, 4)
    attempt.flush()  # on disk, so a checkpoint may follow
    [spool] = tmp_path.glob("spool-*.jsonl")
    assert points(store) == [("loss", 1, 1.0)]
    attempt.log(3, {"loss": 3.0})
    unreliable.refusals = 5
    attempt.complete()  # waits for the store
    assert unreliable.refusals == 0
    assert state(store) == RunState.COMPLETED
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.0), ("loss", 3, 3.0)]
    assert rows(store, "SELECT value, step FROM v_evaluations") == [(0.2, 2)]
    assert store.runs("toy")[0].step == 2
    assert not spool.exists()


def test_lost_answers_double_nothing(store, unreliable, attempt):
    is_completed = []

    def loses_answer() -> bool:
        is_completed.append(state(store) == RunState.COMPLETED)
        return len(is_completed) == 1 or is_completed.count(True) == 1

    unreliable.loses_answer = loses_answer
    attempt.log(1, {"loss": 1.0})
    attempt.flush()
    attempt.log(2, {"loss": 2.0})
    attempt.complete()
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.0)]
    assert state(store) == RunState.COMPLETED
    assert is_completed.count(True) == 1


def test_a_program_does_not_wait_for_an_unreachable_store(attempt, unreliable, monkeypatch):
    monkeypatch.setattr(attempts, "FLUSH_POINTS", 50)
    unreliable.refusals = math.inf
    for step in range(250):
        attempt.log(step, {"loss": 1.0})
    wait_until(lambda: len(attempt._buffer) < attempts.FLUSH_POINTS)  # the rest is on disk
    unreliable.refusals = 0
    attempt.complete()


@pytest.mark.both_databases
def test_the_next_attempt_replays_spools_without_overwriting_newer_points(
    store, unreliable, attempt, tmp_path
):
    attempt.log(1, {"loss": 1.0})
    attempt.flush()
    unreliable.refusals = math.inf
    attempt.log(2, {"loss": 2.0})
    attempt.flush()
    give_up(store)
    second = begun(store, tmp_path, may_resume=True)
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.0)]
    second.progress(1, 2)
    second.log(2, {"loss": 2.5})
    second.flush()
    # The first process was only suspended, and spools more, which the third attempt finds.
    attempt.log(2, {"loss": -1.0})
    attempt.flush()
    second.interrupt("stopped")
    begun(store, tmp_path)
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.5)]


def test_a_checkpoint_waits_if_the_lease_may_have_ended(unreliable, tmp_path):
    """Without the store, an attempt relies on two thirds of its lease; its launcher waits for all of it."""
    attempt = begun(unreliable, tmp_path, lease_seconds=900.0)
    for silent_seconds, refusals, waits in ((500.0, 10_000, False), (700.0, 10, True)):
        unreliable.refusals = refusals
        attempt._heard_at = time.monotonic() - silent_seconds
        attempt.log(1, {"loss": 1.0})
        attempt.flush()
        assert (unreliable.refusals == 0) == waits


def test_a_full_disk_and_an_unreachable_store_fail_a_checkpoint(store, unreliable, attempt, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    unreliable.refusals = math.inf
    monkeypatch.setattr(Spool, "append", full)
    attempt.log(1, {"loss": 1.0})
    with pytest.raises(StoreUnreachable):
        attempt.flush()
    unreliable.refusals = 0
    attempt.complete()
    assert points(store) == [("loss", 1, 1.0)]


def record_refused(store: Store, attempt: WorkerAttempt, step: int) -> None:
    """Record a score of 0.25 in a SQLite store that refuses it."""
    refuse = "WHEN NEW.value = 0.25 BEGIN SELECT RAISE(ABORT, 'not that'); END"
    with store.writing() as connection:
        connection.execute(text(f"CREATE TRIGGER refuse BEFORE INSERT ON evaluation {refuse}"))
    attempt.evaluation(step, 10 * step, 1e3, {"shapes/zero_shot": 0.25})


@plans.ON_SQLITE
def test_a_refused_value_in_the_spool_fails_the_run_and_the_rest_is_written(
    store, unreliable, attempt, tmp_path
):
    unreliable.refusals = math.inf
    for step in range(1, 4):
        attempt.log(step, {"loss": float(step), "accuracy": 0.5})
    record_refused(store, attempt, 2)
    attempt.progress(3, 4)
    attempt.flush()
    attempt.log(4, {"loss": 4.0})
    unreliable.refusals = 0
    with pytest.raises(ValueRefused, match=r"score \[2, 'shapes', 'zero_shot', 0\.25, 20, 1000\.0"):
        attempt.complete()
    assert [step for name, step, _ in points(store) if name == "loss"] == [1, 2, 3, 4]
    [run] = store.runs("toy")
    assert (run.state, run.step) == (RunState.FAILED, 3)
    assert "score [2, 'shapes', 'zero_shot'" in (run.reason or "")
    assert list(tmp_path.glob("spool-*")) == []


@plans.ON_SQLITE
def test_a_refused_value_of_an_earlier_attempt_fails_the_run(store, unreliable, attempt, tmp_path):
    unreliable.refusals = math.inf
    attempt.log(1, {"loss": 1.0})
    record_refused(store, attempt, 1)
    attempt.flush()
    give_up(store)
    second = begun(store, tmp_path)
    assert points(store) == [("loss", 1, 1.0)]
    with pytest.raises(ValueRefused, match=r"score \[1, 'shapes'"):
        second.complete()
    assert state(store) == RunState.FAILED


def test_only_the_same_process_takes_an_attempt_up_again(store, unreliable, tmp_path):
    """It can't know whether the first try succeeded if its answer was lost."""
    begin = functools.partial(
        WorkerAttempt, unreliable, RUN.fingerprint, plans.claimed(store, RUN), root=tmp_path,
        directory=tmp_path, provenance=plans.HERE, handle="host:1:2:log.txt",
    )  # fmt: skip
    unreliable.loses_answer = lambda: True
    with pytest.raises(StoreUnreachable):
        begin()
    unreliable.loses_answer = lambda: False
    with pytest.raises(AttemptLost):
        begin()
    begin(again=True).complete()
    assert state(store) == RunState.COMPLETED


def test_spools_of_another_store_are_ignored(store, tmp_path):
    foreign = Spool(tmp_path, 0)
    foreign.append([("point", 1, "loss", 1.0), ("end", "COMPLETED", None, 0)])
    attempt = begun(store, tmp_path)
    assert not attempt.ended_before
    attempt.complete()
    assert points(store) == []
    assert foreign.path.exists()


def test_values_that_no_database_accepts_are_errors_at_once_but_not_in_reasons(store, attempt):
    for step in (-1, 2**63):
        with pytest.raises(ValueError, match="invalid step"):
            attempt.log(step, {"loss": 1.0})
    for name in ("lo\0ss", "lo\ud800ss"):
        with pytest.raises(ValueError, match="invalid name"):
            attempt.log(1, {name: 1.0})
    with pytest.raises(ValueError, match="dataset/metric"):
        attempt.evaluation(1, 1, 1.0, {"zero_shot": 0.5})
    attempt.log(2**63 - 1, {"loss": 1.0})
    attempt.fail("a \0 byte and half a \ud800 character")
    assert store.runs("toy")[0].reason == "a ? byte and half a ? character"


def test_any_error_in_writing_fails_the_program_but_not_its_heartbeat(store, attempt, monkeypatch):
    def refuse(*_: object, late: bool) -> None:
        raise OverflowError("too large for SQL")

    with monkeypatch.context() as broken:
        broken.setattr(attempts, "write", refuse)
        attempt.log(1, {"loss": 1.0})
        wait_until(lambda: attempt._refused is not None)
    for call in (attempt.flush, lambda: attempt.log(2, {"loss": 1.0})):
        with pytest.raises(ValueRefused, match=r"point \[1, 'loss', 1\.0\]: OverflowError: too large"):
            call()
    assert attempt._ticker.is_alive()
    attempt.fail("OverflowError: too large for SQL")
    assert state(store) == RunState.FAILED


def test_artifacts_have_a_size_and_a_digest(store, attempt, tmp_path):
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "a.txt").write_bytes(b"one")
    (tmp_path / "folder" / "deep" / "b.txt").write_bytes(b"two")
    attempt.artifact("file", tmp_path / "folder" / "deep" / "b.txt")
    attempt.flush()
    attempt.artifact("file", tmp_path / "folder" / "a.txt")  # replaces it
    attempt.artifact("folder", tmp_path / "folder")
    attempt.flush()
    assert rows(store, "SELECT name, uri, size, sha256 FROM artifact ORDER BY name") == [
        ("file", "folder/a.txt", 3, hashlib.sha256(b"one").hexdigest()),
        ("folder", "folder", 6, hashlib.sha256(b"a.txt\0onedeep/b.txt\0two").hexdigest()),
    ]
    with pytest.raises(ValueError, match="outside the lab"):
        attempt.artifact("passwords", Path("/etc/passwd"))
    with pytest.raises(ValueError, match="nothing at"):
        attempt.artifact("missing", tmp_path / "missing")
