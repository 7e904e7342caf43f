"""Runs that start over, and retracted runs with the runs that rest on them."""

from datetime import timedelta

import plans_support as plans
import pytest
import stores_support as stores
from sqlalchemy import text

from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.store.annotations import accept, acceptances, retract, retracted, undo_retraction
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import next_folder, start_over, with_dependents
from jestlab.platform.store.store import Store

REFERENCE, JOINT, UNIFORM = plans.reference_and_two().runs


@pytest.fixture
def store(store: Store) -> Store:
    """Three completed runs; `joint` needs `reference`."""
    plans.record(store, plans.reference_and_two())
    for run in (REFERENCE, JOINT, UNIFORM):
        stores.attempt(store, run, scores={"toy/score": 0.5}, loss=(2.0, 1.0))
    return store


def counts(store: Store) -> dict[str, dict[str, int]]:
    """Return view → run → number of rows."""
    views = ("v_attempts", "v_metrics", "v_evaluations")
    with store.reading() as connection:
        return {
            view: dict(
                connection.execute(text(f"SELECT run, COUNT(*) FROM {view} GROUP BY run")).tuples().all()
            )
            for view in views
        }


def test_only_the_attempts_of_the_old_results_stay(store):
    again = start_over(store, [REFERENCE.fingerprint, JOINT.fingerprint])
    assert set(again) == {REFERENCE.fingerprint, JOINT.fingerprint}
    assert counts(store) == {
        "v_attempts": {"reference": 1, "joint": 1, "uniform": 1},
        "v_metrics": {"uniform": 2},
        "v_evaluations": {"uniform": 1},
    }
    reference, joint, uniform = store.runs("toy")
    assert (reference.state, joint.state) == (RunState.PENDING, RunState.BLOCKED)
    assert uniform.state == RunState.COMPLETED
    assert (reference.step, reference.total_steps) == (0, None)
    assert reference.directory == next_folder(REFERENCE.directory, 2) != REFERENCE.directory
    third = next_folder(reference.directory, 3)
    assert third == f"runs/reference.again3-{REFERENCE.fingerprint[:16]}"
    without_attempts = plans.run("fresh", config={"steps": 40})
    plans.record(store, plans.plan(without_attempts, name="new"))
    start_over(store, [without_attempts.fingerprint])
    assert store.runs("new")[0].directory == next_folder(without_attempts.directory, 1)


def test_a_run_with_a_live_attempt_does_not_start_over(store):
    start_over(store, [UNIFORM.fingerprint])
    attempt = plans.begun(store, UNIFORM)
    assert start_over(store, [UNIFORM.fingerprint]) == []
    attempt.complete()
    assert store.states([UNIFORM.fingerprint]) == {UNIFORM.fingerprint: RunState.COMPLETED}


def test_dependents_are_found_through_other_runs():
    runs = [("a", []), ("b", ["a"]), ("c", ["b"]), ("d", [])]
    assert with_dependents(["a"], runs) == ["a", "b", "c"]
    assert with_dependents([], runs) == []


# ---- retractions


def origins(store: Store) -> list[tuple[str, PlannedRun]]:
    """Return (label of a run without valid results, the retracted run that it rests on)."""
    by_fingerprint = {run.fingerprint: run for run in (REFERENCE, JOINT, UNIFORM)}
    return [(row.label, by_fingerprint[row.origin]) for row in retracted(store)]


def test_runs_that_need_a_retracted_run_rest_on_it(store):
    retract(store, UNIFORM.fingerprint, "wrong shards", "ada")
    assert origins(store) == [("uniform ratio=0.5", UNIFORM)]
    retract(store, REFERENCE.fingerprint, "wrong shards", "ada")
    assert origins(store) == [
        ("joint", REFERENCE), ("reference", REFERENCE), ("uniform ratio=0.5", UNIFORM),
    ]  # fmt: skip


def test_repeating_runs_in_order_ends_a_retraction(store):
    retract(store, REFERENCE.fingerprint, "wrong shards", "ada")
    later, last = (stores.START + timedelta(hours=hours) for hours in (1, 2))
    stores.attempt(store, REFERENCE, number=2, started=later)
    assert origins(store) == [("joint", REFERENCE)]
    stores.attempt(store, JOINT, number=2, started=last)
    assert origins(store) == []
    retract(store, JOINT.fingerprint, "wrong shards", "ada")
    assert origins(store) == [("joint", JOINT)]


def test_only_the_retracted_run_itself_can_be_restored(store):
    retract(store, REFERENCE.fingerprint, "wrong shards", "ada")
    with pytest.raises(UserError, match=f"depends on run {REFERENCE.fingerprint[:8]}"):
        undo_retraction(store, JOINT.fingerprint)
    with pytest.raises(UserError, match="is not retracted"):
        undo_retraction(store, UNIFORM.fingerprint)
    undo_retraction(store, REFERENCE.fingerprint)
    assert origins(store) == []


def test_an_acceptance_holds_in_every_study_with_the_run(store):
    plans.record(store, plans.plan(REFERENCE, name="another"))
    plans.record(store, plans.plan(plans.run("new"), name="unrelated"))
    accept(store, "toy", {"code ridge.py": ["a", "b"]}, "a comment", "ada")
    [accepted] = acceptances(store, "another")
    assert (accepted.accepted, accepted.author) == ({"code ridge.py": ["a", "b"]}, "ada")
    assert len(acceptances(store, "toy")) == 1
    assert acceptances(store, "unrelated") == []
    with pytest.raises(UserError, match="reason"):
        accept(store, "toy", {}, " ", "ada")
