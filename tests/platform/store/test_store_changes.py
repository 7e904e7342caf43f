"""Runs that have changed since an earlier look."""

import plans_support as plans
import pytest
from sqlalchemy import update

from jestlab.platform.errors import UserError
from jestlab.platform.store import leases
from jestlab.platform.store.changes import changes_since
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Run, run_key

RUNS = [plans.run(name, config={"steps": 10, "name": name}) for name in ("uniform", "independent", "joint")]


@pytest.fixture
def store(store: Store) -> Store:
    store.record(plans.plan(*RUNS))
    leases.enter_launcher(store, "nobody:0:0")
    return store


def changed(store: Store, cursor: int) -> tuple[list[tuple[str, RunState, int]], int]:
    found = changes_since(store, "toy", cursor)
    names = {run.fingerprint: run.name for run in RUNS}
    return sorted((names[run.fingerprint], run.state, run.step) for run in found.runs), found.cursor


@pytest.mark.both_databases
def test_every_change_is_reported_once(store, tmp_path):
    first, cursor = changed(store, 0)
    assert [name for name, _, _ in first] == ["independent", "joint", "uniform"]
    assert changed(store, cursor)[0] == []
    attempt = plans.begun(store, RUNS[2], tmp_path)
    found, cursor = changed(store, cursor)
    assert found == [("joint", RunState.RUNNING, 0)]
    attempt.progress(4, 10)
    attempt.flush()
    found, cursor = changed(store, cursor)
    assert found == [("joint", RunState.RUNNING, 4)]
    leases.request_stop(store, [RUNS[0].fingerprint], "by ada")
    attempt.complete()
    found, cursor = changed(store, cursor)
    assert found == [("joint", RunState.COMPLETED, 4), ("uniform", RunState.CANCELLED, 0)]
    assert changed(store, cursor)[0] == []


@pytest.mark.both_databases
def test_a_launch_is_reported_and_other_experiments_are_not(store):
    first = changes_since(store, "toy")
    store.record(plans.plan(plans.run("other", config={"steps": 1}), name="other"))
    second = changes_since(store, "toy", first.cursor)
    assert (second.runs, second.launched_at) == ([], first.launched_at)
    store.record(plans.plan(*RUNS))
    assert changes_since(store, "toy", second.cursor).launched_at > first.launched_at
    with pytest.raises(UserError, match="did you mean 'toy'"):
        changes_since(store, "toi")


def test_a_transaction_that_commits_late_is_not_missed(postgresql_url):
    store = Store.open(postgresql_url)
    store.record(plans.plan(*RUNS))
    _, cursor = changed(store, 0)
    first, second = (run_key(run.fingerprint) for run in RUNS[:2])
    with store.writing() as slow:
        slow.execute(update(Run).where(Run.id == first).values(step=1))
        with store.writing() as fast:
            fast.execute(update(Run).where(Run.id == second).values(step=2))
        found, cursor = changed(store, cursor)
        assert found == [("independent", RunState.PENDING, 2)]
    assert ("uniform", RunState.PENDING, 1) in changed(store, cursor)[0]
    store.close()
