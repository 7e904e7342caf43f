"""The changes since a cursor, and nothing else."""

import plans_support as plans
import pytest

from jestlab.platform.errors import StoreUnreachable
from jestlab.platform.launch import watch
from jestlab.platform.serve import live
from jestlab.platform.serve.live import Live
from jestlab.platform.store import leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

RUNS = [plans.run(name, config={"steps": 10, "name": name}) for name in ("uniform", "independent", "joint")]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(live, "INTERVAL_SECONDS", 0.0)


@pytest.fixture
def store(store_url):
    opened = Store.open(store_url)
    plans.record(opened, plans.plan(*RUNS))
    leases.enter_launcher(opened, "nobody:0:0")  # else the reason of waiting runs would change later
    yield opened
    opened.close()


def changed(changes):
    return {row.run.name: row.run.state for _, row in changes.rows}


@pytest.mark.both_databases
def test_returns_only_changed_runs_and_new_points(store, tmp_path):
    following = Live(store, "toy")
    first = following.since("")
    assert first.is_reset
    assert set(changed(first)) == {"uniform", "independent", "joint"}
    assert changed(following.since(first.snapshot.cursor)) == {}
    attempt = plans.begun(store, RUNS[2], tmp_path)
    second = following.since(first.snapshot.cursor)
    assert changed(second) == {"joint": RunState.RUNNING}
    assert not second.is_reset
    attempt.log(1, {"loss": 2.0})
    attempt.log(2, {"loss": float("nan")})
    attempt.progress(2, 10)
    attempt.flush()
    third = following.since(second.snapshot.cursor)
    assert changed(third) == {"joint": RunState.RUNNING}
    assert [(point.step, point.value) for point in third.points] == [(1, 2.0), (2, None)]
    assert following.since(third.snapshot.cursor).points == []
    assert [point.step for point in following.since(first.snapshot.cursor).points] == [1, 2]
    attempt.log(3, {"loss": 1.0})
    attempt.progress(10, 10)
    attempt.complete()
    last = following.since(third.snapshot.cursor)
    assert changed(last) == {"joint": RunState.COMPLETED}
    assert [point.step for point in last.points] == [3]  # also what came with the end
    assert changed(following.since(last.snapshot.cursor)) == {}


def test_unknown_and_old_cursors_get_everything(store, tmp_path, monkeypatch):
    following = Live(store, "toy")
    known = following.since("").snapshot.cursor
    for cursor in ("", "nonsense", "0.0", Live(store, "toy").since("").snapshot.cursor):
        assert following.since(cursor).is_reset, cursor
    for cursor in (known, known.replace(".", ".9")):
        assert not following.since(cursor).is_reset, cursor
    monkeypatch.setattr(live, "MOST_POINTS", 5)
    attempt = plans.begun(store, RUNS[0], tmp_path)
    cursor = following.since("").snapshot.cursor
    for step in range(1, 8):
        attempt.log(step, {"loss": float(step)})
    attempt.flush()
    assert following.since(cursor).is_reset
    attempt.complete()


def test_shows_runs_that_are_added_to_the_study(store):
    following = Live(store, "toy")
    cursor = following.since("").snapshot.cursor
    plans.record(store, plans.plan(*RUNS, plans.run("new", config={"steps": 1})))
    changes = following.since(cursor)
    assert len(changes.snapshot.rows) == 4
    assert "new" in changed(changes)


def test_sends_points_again_after_a_run_resumes(store, tmp_path):
    following = Live(store, "toy")
    attempt = plans.begun(store, RUNS[0], tmp_path)
    for step in (1, 2):
        attempt.log(step, {"loss": float(step)})
    attempt.progress(2, 10)
    attempt.flush()
    cursor = following.since("").snapshot.cursor
    attempt.fail("gone")
    plans.move(store, RUNS[0], RunState.PENDING)
    again = plans.begun(store, RUNS[0], tmp_path)
    again.progress(0, 10)
    again.flush()
    following.since(cursor)
    for step in (1, 2, 3):
        again.log(step, {"loss": float(step)})
    again.progress(3, 10)
    again.flush()
    assert [point.step for point in following.since(cursor).points][-3:] == [1, 2, 3]
    again.complete()


@pytest.mark.parametrize("place", [(watch, "read_status"), (live, "read_points")], ids=["rows", "points"])
def test_an_unreachable_store_loses_no_changes(store, tmp_path, monkeypatch, place):
    following = Live(store, "toy")
    attempt = plans.begun(store, RUNS[0], tmp_path)
    cursor = following.since("").snapshot.cursor
    another = plans.begun(store, RUNS[1], tmp_path)
    attempt.log(1, {"loss": 1.0})
    attempt.progress(1, 10)
    attempt.flush()

    def away(*_):
        raise StoreUnreachable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(*place, away)
        with pytest.raises(StoreUnreachable):
            following.since(cursor)
    changes = following.since(cursor)
    assert [row.run.name for row in changes.snapshot.rows] == ["uniform", "independent", "joint"]
    assert [row.run.step for row in changes.snapshot.rows] == [1, 0, 0]
    assert changed(changes)["independent"] == RunState.RUNNING
    assert changes.snapshot.totals.states() == {"PENDING": 1, "RUNNING": 2}
    assert [point.step for point in changes.points] == [1]
    for each in (attempt, another):
        each.complete()
