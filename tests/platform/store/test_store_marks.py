"""Marks tell every change of a run, and read no more runs than may have changed."""

from __future__ import annotations

import plans_support as plans
import pytest

from jestlab.platform.store import leases
from jestlab.platform.store.marks import NOTHING, marks
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

RUNS = [plans.run(name, config={"steps": 10, "name": name}) for name in ("uniform", "independent", "joint")]


@pytest.fixture
def store(store_url):
    opened = Store.open(store_url)
    opened.record(plans.plan(*RUNS))
    leases.enter_launcher(opened, "nobody:0:0")
    yield opened
    opened.close()


def test_only_states_whose_runs_have_changed_are_read(store, tmp_path):
    first = marks(store, "toy")
    assert first.read == {"PENDING"}
    assert len(first.states["PENDING"]) == 3
    assert marks(store, "toy", first).read == set()
    attempt = plans.begun(store, RUNS[2], tmp_path)
    begun = marks(store, "toy", first)
    assert begun.read == {"PENDING", "RUNNING"}
    [(run, mark)] = begun.states["RUNNING"].items()
    assert run == RUNS[2].fingerprint
    assert run not in begun.states["PENDING"]
    attempt.progress(4, 10)
    attempt.flush()
    went_on = marks(store, "toy", begun)
    assert went_on.read == {"RUNNING"}
    assert (went_on.states["RUNNING"][run].step, mark.step) == (4, 0)
    assert list(went_on.of([RunState.RUNNING])) == [run]
    attempt.progress(10, 10)
    attempt.complete()
    over = marks(store, "toy", went_on)
    assert over.read == {"COMPLETED"}
    assert "RUNNING" not in over.states


def test_a_study_that_is_launched_anew_is_read_whole(store):
    first = marks(store, "toy")
    store.record(plans.plan(*RUNS, plans.run("new", config={"steps": 1})))
    assert len(marks(store, "toy", first).states["PENDING"]) == 4
    assert marks(store, "toy", NOTHING).read == {"PENDING"}
