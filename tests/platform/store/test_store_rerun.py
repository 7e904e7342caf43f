"""Runs that start over: what they measured goes, their attempts stay, nothing is resumed."""

from __future__ import annotations

from collections.abc import Iterator

import plans_support as plans
import pytest
import stores_support as stores
from sqlalchemy import text

from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import next_folder, start_over, with_dependents
from jestlab.platform.store.store import Store

REFERENCE, JOINT, UNIFORM = plans.reference_and_two().runs


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """Three completed runs; `joint` needs `reference`."""
    store = Store.open(store_url)
    store.record(plans.reference_and_two())
    for run in (REFERENCE, JOINT, UNIFORM):
        stores.attempt(store, run, scores={"toy/score": 0.5}, loss=(2.0, 1.0))
    yield store
    store.close()


def counts(store: Store) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    with store.reading() as connection:
        for view in ("v_attempts", "v_metrics", "v_evaluations"):
            rows = connection.execute(text(f"SELECT run, COUNT(*) FROM {view} GROUP BY run")).tuples()
            for run, count in rows:
                found.setdefault(run, {})[view] = count
    return found


def test_nothing_of_the_old_result_is_left_but_its_attempt(store):
    again = start_over(store, [REFERENCE.fingerprint, JOINT.fingerprint])
    assert set(again) == {REFERENCE.fingerprint, JOINT.fingerprint}
    assert counts(store) == {
        "reference": {"v_attempts": 1},
        "joint": {"v_attempts": 1},
        "uniform": {"v_attempts": 1, "v_metrics": 2, "v_evaluations": 1},
    }
    runs = {run.name: run for run in store.runs("toy")}
    assert (runs["reference"].state, runs["joint"].state) == (RunState.PENDING, RunState.BLOCKED)
    assert runs["uniform"].state == RunState.COMPLETED
    assert runs["reference"].step == 0 and runs["reference"].total_steps is None
    assert runs["reference"].directory == next_folder(REFERENCE.directory, 2) != REFERENCE.directory
    again_and_again = next_folder(next_folder(REFERENCE.directory, 2), 3)
    assert again_and_again == f"runs/reference.again3-{REFERENCE.fingerprint[:8]}"


def test_a_run_that_a_worker_has_goes_on(store):
    start_over(store, [UNIFORM.fingerprint])
    attempt = plans.begun(store, UNIFORM)
    assert start_over(store, [UNIFORM.fingerprint]) == []
    attempt.complete()
    assert {run.name: run.state for run in store.runs("toy")}["uniform"] == RunState.COMPLETED


def test_what_needs_a_run_follows_it_through_others():
    runs = [("a", []), ("b", ["a"]), ("c", ["b"]), ("d", [])]
    assert with_dependents(["a"], runs) == ["a", "b", "c"]
    assert with_dependents([], runs) == []
