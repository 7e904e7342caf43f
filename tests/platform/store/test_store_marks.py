"""Marks show every change of a run, and reading them again reads only states whose runs may have changed."""

import plans_support as plans
import pytest

from jestlab.platform.store import leases
from jestlab.platform.store.marks import NOTHING, marks
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

RUNS = [plans.run(name, config={"steps": 10, "name": name}) for name in ("uniform", "independent", "joint")]


@pytest.fixture
def store(store: Store) -> Store:
    store.record(plans.plan(*RUNS))
    leases.enter_launcher(store, "nobody:0:0")
    return store


def test_only_states_whose_runs_have_changed_are_read(store, tmp_path):
    first = marks(store, "toy")
    assert first.read == {"PENDING"}
    assert len(first.states["PENDING"]) == 3
    assert marks(store, "toy", first).read == set()
    attempt = plans.begun(store, RUNS[2], tmp_path)
    running = marks(store, "toy", first)
    assert running.read == {"PENDING", "RUNNING"}
    [(run, mark)] = running.states["RUNNING"].items()
    assert run == RUNS[2].fingerprint
    assert run not in running.states["PENDING"]
    attempt.progress(4, 10)
    attempt.flush()
    later = marks(store, "toy", running)
    assert later.read == {"RUNNING"}
    assert (later.states["RUNNING"][run].step, mark.step) == (4, 0)
    assert list(later.of([RunState.RUNNING])) == [run]
    attempt.progress(10, 10)
    attempt.complete()
    completed = marks(store, "toy", later)
    assert completed.read == {"COMPLETED"}
    assert "RUNNING" not in completed.states


def test_a_study_that_is_recorded_again_is_read_completely(store):
    first = marks(store, "toy")
    store.record(plans.plan(*RUNS, plans.run("new", config={"steps": 1})))
    assert len(marks(store, "toy", first).states["PENDING"]) == 4
    assert marks(store, "toy", NOTHING).read == {"PENDING"}
