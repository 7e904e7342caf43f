"""What a worker writes: in bulk, once, and all of it, on both databases."""

from __future__ import annotations

import errno
import functools
import hashlib
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import plans_support as plans
import pytest
from sqlalchemy import Connection, text

from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.store import attempt as attempts
from jestlab.platform.store import engine, leases
from jestlab.platform.store.attempt import Attempt, AttemptLost, ValueRefused
from jestlab.platform.store.records import RunState
from jestlab.platform.store.spool import Batch, Spool
from jestlab.platform.store.store import Store

RUN = plans.run("a")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = Store.open(store_url)
    store.record(plans.plan(RUN))
    yield store
    leases.request_stop(store, [RUN.fingerprint], "the test is over")
    for standing in leases.standings(store, [RUN.fingerprint]).values():
        if standing.lease is not None:  # attempts that were left learn that they are over, and write no more
            leases.end(store, RUN.fingerprint, standing.lease.id, RunState.CANCELLED, "over", None)
    time.sleep(0.1)
    store.close()


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Store]:
    store = Store.open(sqlite_url)
    store.record(plans.plan(RUN))
    yield store
    store.close()


def begun(store: Store, folder: Path, lease_seconds: float = 90.0) -> Attempt:
    return plans.begun(store, RUN, folder, lease_seconds)


@pytest.fixture
def attempt(store: Store, tmp_path: Path) -> Attempt:
    return begun(store, tmp_path)


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.reading() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def points(store: Store) -> list[tuple[Any, ...]]:
    return rows(store, "SELECT name, step, value FROM v_metrics ORDER BY name, step")


def give_up(store: Store) -> None:
    """End the live attempt, as a launcher does that sees no sign of life."""
    lease = leases.standings(store, [RUN.fingerprint])[RUN.fingerprint].lease
    assert lease is not None
    assert leases.end(store, RUN.fingerprint, lease.id, RunState.PREEMPTED, "silent", None)


def soon(condition: Callable[[], bool]) -> bool:
    for _ in range(80):
        if condition():
            return True
        time.sleep(0.05)
    return False


@plans.ON_SQLITE
def test_an_attempt_tells_where_it_runs(store, attempt):
    about = "SELECT state, host, handle, device, environment, versions FROM attempt"
    assert rows(store, about) == [
        ("RUNNING", "host", "host:1:2:log.txt", "2 cores", '{"JAX_PLATFORMS":"cpu"}', '{"python":"3"}')
    ]


@plans.ON_SQLITE
def test_points_are_buffered_until_a_flush(store, attempt):
    attempt.log(1, {"loss": 0.5})
    assert points(store) == []
    attempt.flush()
    assert points(store) == [("loss", 1, 0.5)]


@plans.ON_SQLITE
def test_points_are_written_within_a_second_or_two(store, attempt):
    attempt.log(1, {"loss": 0.5})
    attempt.progress(1, 10)
    assert soon(lambda: points(store) == [("loss", 1, 0.5)])
    assert store.progress([RUN.fingerprint], ["loss"])[RUN.fingerprint].latest == {"loss": 0.5}
    assert store.runs("toy")[0].step == 1


@plans.ON_SQLITE
def test_a_thousand_points_are_not_kept_waiting(store, tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "TICK_SECONDS", 60.0)
    attempt = begun(store, tmp_path)
    for step in range(attempts.FLUSH_POINTS // 2):
        attempt.log(step, {"loss": 1.0, "accuracy": 0.5})
    assert soon(lambda: len(points(store)) == attempts.FLUSH_POINTS)


def test_the_last_write_of_a_step_wins_within_and_across_attempts(store, attempt, tmp_path):
    attempt.log(1, {"loss": 1.0})
    attempt.log(1, {"loss": 2.0})
    attempt.evaluation(1, 10, 1e3, {"shapes/zero_shot": 0.1})
    attempt.interrupt("stopped")
    again = begun(store, tmp_path)
    assert points(store) == [("loss", 1, 2.0)]
    again.log(1, {"loss": 3.0})
    again.log(2, {"loss": 4.0})
    again.evaluation(1, 20, 2e3, {"shapes/zero_shot": 0.2})
    again.complete()
    assert points(store) == [("loss", 1, 3.0), ("loss", 2, 4.0)]
    scores = "SELECT value, examples_seen, flops_total, final FROM v_evaluations"
    assert rows(store, scores) == [(0.2, 20, 2e3, 1)]


def test_what_scores_had_cost_may_be_unknown(store, attempt):
    attempt.evaluation(1, None, None, {"shapes/zero_shot": 0.1})
    attempt.evaluation(2, 20, math.nan, {"shapes/zero_shot": 0.2}, seconds=1.5)
    attempt.complete()
    spent = "SELECT step, examples_seen, flops_total, seconds FROM v_evaluations ORDER BY step"
    assert rows(store, spent) == [(1, None, None, None), (2, 20, None, 1.5)]


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


@plans.ON_SQLITE
@pytest.mark.parametrize(
    "end, state", [("fail", RunState.FAILED), ("interrupt", RunState.PREEMPTED)], ids=["fail", "interrupt"]
)
def test_other_ends_keep_their_reason(store, attempt, end, state):
    attempt.log(1, {"loss": 0.5})
    getattr(attempt, end)("because")
    assert points(store) == [("loss", 1, 0.5)]
    assert (store.runs("toy")[0].state, store.runs("toy")[0].reason) == (state, "because")
    failures = leases.standings(store, [RUN.fingerprint])[RUN.fingerprint].failures
    assert failures == (1 if end == "fail" else 0)


def test_an_attempt_that_was_given_up_writes_nothing_more(store, attempt, tmp_path):
    attempt.log(1, {"loss": 1.0})
    give_up(store)
    begun(store, tmp_path)
    with pytest.raises(AttemptLost):
        attempt.flush()
    with pytest.raises(AttemptLost):
        attempt.log(2, {"loss": 1.0})
    with pytest.raises(AttemptLost):
        attempt.complete()
    # What was logged first may have been written before it was given up: it writes whenever it likes.
    assert ("loss", 2, 1.0) not in points(store)
    assert store.runs("toy")[0].state == RunState.RUNNING


@plans.ON_SQLITE
def test_a_stop_that_the_user_wants_is_heard_with_the_next_heartbeat(store, attempt):
    assert attempt.stop_requested() is None
    leases.request_stop(store, [RUN.fingerprint], "cancelled by me")
    attempt.flush()
    assert attempt.stop_requested() == "cancelled by me"
    attempt.interrupt("stopped by SIGTERM")
    assert store.runs("toy")[0].reason == "cancelled by me"
    assert store.states([RUN.fingerprint]) == {RUN.fingerprint: RunState.CANCELLED}


# ---- while the store is away


class Away:
    """A store that may be out of reach; all else is the real one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_away = False
        self.fails_at_commit = False

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        if self.is_away:
            raise StoreUnreachable("nobody answers")
        with self.store.reading() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        if self.is_away:
            raise StoreUnreachable("nobody answers")
        with self.store.writing() as connection:
            yield connection
        if self.fails_at_commit:
            raise StoreUnreachable("committed, but the answer was lost")


@pytest.fixture
def away(store: Store) -> Away:
    return Away(store)


@pytest.fixture
def cut_off(away: Away, tmp_path: Path) -> Attempt:
    """An attempt whose store can be taken away."""
    return begun(away, tmp_path)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(attempts, "TICK_SECONDS", 0.05)


def test_what_cannot_be_written_is_kept_on_disk_and_replayed_once(store, away, cut_off, tmp_path):
    cut_off.log(1, {"loss": 1.0})
    away.is_away = True
    cut_off.flush()
    cut_off.log(2, {"loss": 2.0})
    cut_off.evaluation(2, 20, 2e3, {"shapes/zero_shot": 0.2})
    cut_off.progress(2, 4)
    cut_off.flush()  # on disk, so that a checkpoint may follow
    [spool] = tmp_path.glob("spool-*.jsonl")
    assert points(store) == []
    away.is_away = False
    cut_off.log(3, {"loss": 3.0})
    cut_off.complete()
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.0), ("loss", 3, 3.0)]
    assert rows(store, "SELECT value, step FROM v_evaluations") == [(0.2, 2)]
    assert store.runs("toy")[0].step == 2
    assert not spool.exists()


def test_an_answer_that_was_lost_doubles_nothing(store, away, cut_off):
    away.fails_at_commit = True
    cut_off.log(1, {"loss": 1.0})
    cut_off.flush()
    away.fails_at_commit = False
    cut_off.log(2, {"loss": 2.0})
    away.fails_at_commit = True
    threading.Timer(0.3, lambda: setattr(away, "fails_at_commit", False)).start()
    cut_off.complete()
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.0)]
    assert store.states([RUN.fingerprint]) == {RUN.fingerprint: RunState.COMPLETED}


@plans.ON_SQLITE
def test_a_program_does_not_wait_for_a_store_that_is_away(cut_off, away):
    away.is_away = True
    for step in range(5 * attempts.FLUSH_POINTS):
        cut_off.log(step, {"loss": 1.0})
    assert soon(lambda: len(cut_off._buffer) < attempts.FLUSH_POINTS), "memory fills up"
    away.is_away = False
    cut_off.complete()


def test_what_a_dead_attempt_kept_is_written_by_the_next_and_overwrites_nothing_newer(
    store, away, cut_off, tmp_path
):
    cut_off.log(1, {"loss": 1.0})
    cut_off.flush()
    away.is_away = True
    cut_off.log(2, {"loss": 2.0})
    cut_off.flush()
    give_up(store)
    second = begun(store, tmp_path)
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.0)]
    second.log(2, {"loss": 2.5})
    second.flush()
    # Frozen meanwhile, the first one goes on and keeps more, which the third attempt finds.
    cut_off.log(2, {"loss": -1.0})
    cut_off.flush()
    second.interrupt("stopped")
    begun(store, tmp_path)
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.5)]


@plans.ON_SQLITE
def test_a_checkpoint_waits_until_it_is_sure_whose_the_run_is(store, away, tmp_path):
    """For two thirds of its own lease it is; whoever would take the run from it waits for the whole."""
    cut_off = begun(away, tmp_path, lease_seconds=1.5)
    away.is_away = True
    cut_off.log(1, {"loss": 1.0})
    cut_off.flush()
    time.sleep(1.1)
    flushed = threading.Event()

    def flush() -> None:
        cut_off.flush()
        flushed.set()

    threading.Thread(target=flush, daemon=True).start()
    assert not flushed.wait(0.5)
    away.is_away = False
    assert flushed.wait(5)


@plans.ON_SQLITE
def test_a_full_disk_beside_a_store_that_is_away_is_said_before_a_checkpoint(
    store, away, cut_off, monkeypatch
):
    def full(_: object, __: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    away.is_away = True
    monkeypatch.setattr(Spool, "append", full)
    cut_off.log(1, {"loss": 1.0})
    with pytest.raises(StoreUnreachable):
        cut_off.flush()
    away.is_away = False
    cut_off.complete()
    assert points(store) == [("loss", 1, 1.0)]


@plans.ON_SQLITE
def test_an_end_waits_for_the_store(store, away, cut_off):
    away.is_away = True
    cut_off.log(1, {"loss": 1.0})
    threading.Timer(0.5, lambda: setattr(away, "is_away", False)).start()
    cut_off.complete()
    assert store.states([RUN.fingerprint]) == {RUN.fingerprint: RunState.COMPLETED}
    assert points(store) == [("loss", 1, 1.0)]


def refused_by_sqlite(store: Store, attempt: Attempt, step: int) -> None:
    """Record a score of 0.25 in a store that refuses it."""
    refusing = "WHEN NEW.value = 0.25 BEGIN SELECT RAISE(ABORT, 'not that'); END"
    with store.writing() as connection:
        connection.execute(text(f"CREATE TRIGGER refusing BEFORE INSERT ON evaluation {refusing}"))
    attempt.evaluation(step, 10 * step, 1e3, {"shapes/zero_shot": 0.25})


def test_a_value_that_is_refused_when_the_spool_is_replayed_is_named_and_the_rest_is_written(
    sqlite_store, tmp_path, monkeypatch
):
    monkeypatch.setattr(attempts, "END_SECONDS", 5.0)
    away = Away(sqlite_store)
    cut_off = begun(away, tmp_path)  # type: ignore[arg-type]
    away.is_away = True
    for step in range(1, 4):
        cut_off.log(step, {"loss": float(step), "accuracy": 0.5})
    refused_by_sqlite(sqlite_store, cut_off, 2)
    cut_off.progress(3, 4)
    cut_off.flush()
    cut_off.log(4, {"loss": 4.0})
    away.is_away = False
    began = time.monotonic()
    with pytest.raises(ValueRefused, match=r"'shapes/zero_shot' at step 2: 0\.25 \(.*flops_total 1000\.0\)"):
        cut_off.complete()
    assert time.monotonic() - began < 4
    assert [step for name, step, _ in points(sqlite_store) if name == "loss"] == [1, 2, 3, 4]
    [run] = sqlite_store.runs("toy")
    assert (run.state, run.step) == (RunState.FAILED, 3)
    assert "the store refused score 'shapes/zero_shot' at step 2" in (run.reason or "")
    assert list(tmp_path.glob("spool-*")) == []


def test_a_refused_value_fails_the_program_at_its_next_call(sqlite_store, tmp_path):
    attempt = begun(sqlite_store, tmp_path)
    attempt.log(1, {"loss": 1.0})
    refused_by_sqlite(sqlite_store, attempt, 1)
    with pytest.raises(ValueRefused, match="zero_shot' at step 1"):
        attempt.flush()
    with pytest.raises(ValueRefused, match="zero_shot' at step 1"):
        attempt.log(2, {"loss": 2.0})
    assert points(sqlite_store) == [("loss", 1, 1.0)]
    attempt.fail("because")
    assert sqlite_store.runs("toy")[0].reason == "because"


def test_a_value_that_an_earlier_attempt_kept_and_the_store_refuses_is_not_hidden(sqlite_store, tmp_path):
    away = Away(sqlite_store)
    first = begun(away, tmp_path)  # type: ignore[arg-type]
    away.is_away = True
    first.log(1, {"loss": 1.0})
    refused_by_sqlite(sqlite_store, first, 1)
    first.flush()
    give_up(sqlite_store)
    second = begun(sqlite_store, tmp_path)
    assert points(sqlite_store) == [("loss", 1, 1.0)]
    with pytest.raises(ValueRefused, match="zero_shot' at step 1"):
        second.complete()
    assert sqlite_store.runs("toy")[0].state == RunState.FAILED


def test_any_reason_can_be_stored(store, attempt):
    attempt.fail("a \0 byte and half a \ud800 character")
    assert store.runs("toy")[0].reason == "a ? byte and half a ? character"


def test_nothing_is_lost_while_another_process_holds_the_database(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.05)
    store = Store.open(f"sqlite:///{tmp_path / 'results.db'}")
    store.record(plans.plan(RUN))
    attempt = begun(store, tmp_path)
    attempt.log(1, {"loss": 1.0})
    other = sqlite3.connect(tmp_path / "results.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    attempt.flush()
    assert points(store) == []
    other.execute("ROLLBACK")
    attempt.log(2, {"loss": 2.0})
    attempt.flush()
    assert points(store) == [("loss", 1, 1.0), ("loss", 2, 2.0)]


def test_taking_an_attempt_up_again_after_a_lost_answer_is_no_second_worker(store, away, tmp_path):
    number = plans.claimed(store, RUN)
    away.fails_at_commit = True
    begin = functools.partial(
        Attempt.begin, away, RUN.fingerprint, number, directory=tmp_path,
        provenance=plans.HERE, handle="host:1:2:log.txt",
    )  # fmt: skip
    with pytest.raises(StoreUnreachable):
        begin()
    away.fails_at_commit = False
    with pytest.raises(AttemptLost):
        begin()
    begin(again=True).complete()
    assert store.states([RUN.fingerprint]) == {RUN.fingerprint: RunState.COMPLETED}


@plans.ON_SQLITE
def test_spools_of_another_store_are_left_alone(store, tmp_path):
    foreign = Spool(tmp_path, 0)
    foreign.append(Batch(points=[(1, "loss", 1.0)], end=("COMPLETED", None, 0)))
    attempt = begun(store, tmp_path)
    assert not attempt.ended_before
    attempt.complete()
    assert points(store) == []
    assert foreign.path.exists()


@plans.ON_SQLITE
@pytest.mark.parametrize("step", [-1, 2**63])
def test_a_step_that_no_database_takes_is_an_error_at_once(attempt, step):
    with pytest.raises(ValueError, match="invalid step"):
        attempt.log(step, {"loss": 1.0})


@plans.ON_SQLITE
@pytest.mark.parametrize("name", ["lo\0ss", "lo\ud800ss"])
def test_a_name_that_no_database_takes_is_an_error_at_once(attempt, name):
    with pytest.raises(ValueError, match="invalid name"):
        attempt.log(1, {name: 1.0})


@plans.ON_SQLITE
def test_whatever_goes_wrong_in_writing_fails_the_program_and_not_its_heartbeat(store, attempt, monkeypatch):
    def refused(*_: object, late: bool) -> None:
        raise OverflowError("too large for SQL")

    attempt.log(1, {"loss": 1.0})
    with monkeypatch.context() as broken:
        broken.setattr(attempt._points, "write", refused)
        assert soon(lambda: attempt._refused is not None)
    with pytest.raises(ValueRefused, match=r"'loss' at step 1: 1\.0: OverflowError: too large for SQL"):
        attempt.log(2, {"loss": 1.0})
    assert attempt._ticker.is_alive()
    attempt.fail("OverflowError: too large for SQL")
    assert store.states([RUN.fingerprint]) == {RUN.fingerprint: RunState.FAILED}


@plans.ON_SQLITE
def test_a_score_must_name_its_dataset(attempt):
    with pytest.raises(ValueError, match="dataset/metric"):
        attempt.evaluation(1, 1, 1.0, {"zero_shot": 0.5})


@plans.ON_SQLITE
def test_artifacts_have_size_and_digest(store, attempt, tmp_path):
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "a.txt").write_bytes(b"one")
    (tmp_path / "folder" / "deep" / "b.txt").write_bytes(b"two")
    attempt.artifact("file", tmp_path / "folder" / "a.txt", tmp_path)
    attempt.artifact("folder", tmp_path / "folder", tmp_path)
    attempt.flush()
    found = {row[0]: row[1:] for row in rows(store, "SELECT name, uri, size, sha256 FROM artifact")}
    assert found["file"] == ("folder/a.txt", 3, hashlib.sha256(b"one").hexdigest())
    assert found["folder"] == ("folder", 6, hashlib.sha256(b"a.txt\0onedeep/b.txt\0two").hexdigest())
    with pytest.raises(ValueError, match="outside the lab"):
        attempt.artifact("passwords", Path("/etc/passwd"), tmp_path)
    with pytest.raises(ValueError, match="nothing at"):
        attempt.artifact("missing", tmp_path / "missing", tmp_path)
