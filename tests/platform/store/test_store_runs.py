"""Plans, states, and views of the store."""

import getpass
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from threading import Barrier

import plans_support as plans
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from jestlab.models.training.phases import Spent
from jestlab.platform.errors import UserError
from jestlab.platform.launch.status import read_status
from jestlab.platform.planning.plan import PlannedRun, plan
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.records import IllegalMove, RunState, check_move
from jestlab.platform.store.store import Store


def completed(store: Store, run: PlannedRun) -> None:
    attempt = plans.begun(store, run)
    attempt.progress(5, 5)
    attempt.complete()


def view(store: Store, name: str, **where: object) -> list[dict[str, object]]:
    condition = " AND ".join([f"{key} = :{key}" for key in where]) or "1 = 1"
    with store.reading() as connection:
        found = connection.execute(text(f"SELECT * FROM {name} WHERE {condition}"), where)
        return [dict(row) for row in found.mappings()]


@pytest.mark.both_databases
def test_runs_that_need_others_are_recorded_as_blocked(store):
    plan = plans.reference_and_two()
    plans.record(store, plan)
    assert [(run.name, run.label, run.state) for run in store.runs("toy")] == [
        ("reference", "reference", RunState.PENDING),
        ("joint", "joint", RunState.BLOCKED),
        ("uniform", "uniform ratio=0.5", RunState.PENDING),
    ]
    reference, joint, _ = plan.runs
    record = store.run(joint.fingerprint)
    assert record.config == {"steps": 20}
    assert {role: need.fingerprint for role, need in record.needs.items()} == {
        "selection.reference": reference.fingerprint
    }


def test_runs_of_later_rounds_stay_members_once_another_launcher_has_added_them(store):
    """A launcher that planned an earlier round records its plan after the other one."""
    plan = plans.reference_and_two()
    reference, joint, uniform = plan.runs
    plans.record(store, plan)
    earlier = replace(plan, runs=(reference, joint), later=frozenset({uniform.fingerprint}))
    plans.record(store, earlier)
    assert set(store.members("toy")) == set(plan.fingerprints)
    plans.record(store, replace(earlier, later=frozenset()))  # the run was removed from the study
    assert set(store.members("toy")) == set(earlier.fingerprints)


@pytest.mark.both_databases
def test_recording_again_reopens_runs_that_ended_early_but_no_completed_ones(store):
    plan = plans.reference_and_two()
    reference, joint, uniform = plan.runs
    plans.record(store, plan)
    completed(store, reference)
    plans.begun(store, uniform).fail("ValueError: no")
    plans.move(store, joint, RunState.SKIPPED, "why not")
    before = [run for run in store.runs("toy") if run.name == "reference"]
    plans.record(store, plan)
    after = {run.name: run for run in store.runs("toy")}
    assert [after["reference"]] == before
    assert (after["joint"].state, after["joint"].reason) == (RunState.PENDING, None)
    assert (after["uniform"].state, after["uniform"].reason) == (RunState.PENDING, None)


def test_two_studies_share_a_run(store):
    shared = plans.run("uniform", config={"path": "/old"})
    plans.record(store, plans.plan(shared, name="first"))
    completed(store, shared)
    again = replace(shared, name="baseline", label="baseline", config={"path": "/new"})
    plans.record(store, plans.plan(again, name="second"))
    [row] = store.runs("second")
    assert (row.name, row.state) == ("baseline", RunState.COMPLETED)
    assert row.directory == shared.directory  # named after the first study's run
    found = [(row["run"], row["config"], row["state"], row["attempts"]) for row in view(store, "v_runs")]
    assert found == [(name, '{"path":"/new"}', "COMPLETED", 1) for name in ("uniform", "baseline")]


@pytest.mark.both_databases
def test_labels_of_one_run_are_listed_in_the_order_of_their_text(store):
    study = {"program": "toy_programs:loop", "runs": {"b": {"steps": 3}, "a": {"steps": 4}}, "seeds": 2}
    planned = plan(StudySpec.parse({"name": "both", "studies": dict.fromkeys("zaY", study)}))
    plans.record(store, planned)
    with store.writing() as connection:
        connection.execute(text("ANALYZE"))  # PostgreSQL then reads small tables in any order
    names = [run.label.partition("/")[2] for run in planned.runs]
    expected = [
        (f"{part}/{name}", run.seed) for name, run in zip(names, planned.runs, strict=True) for part in "Yaz"
    ]
    assert [(run.label, run.seed) for run in store.runs("both")] == expected
    assert [label for label, _, _ in store.launched("both")] == [label for label, _ in expected]
    rows = read_status(store, "both")
    assert [row.is_repeat for row in rows] == [False, True, True] * 4


def test_the_last_launch_determines_members_user_and_host(store, monkeypatch):
    runs = [plans.run("a", config={"steps": steps}) for steps in (1, 2, 3)]
    plans.record(store, plans.plan(*runs))
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(socket, "gethostname", lambda: "tower")
    plans.record(store, plans.plan(runs[2], runs[0], runs={"z": {}, "a": {}}))
    assert list(store.spec("toy")["runs"]) == ["z", "a"]
    assert [run.fingerprint for run in store.runs("toy")] == [runs[2].fingerprint, runs[0].fingerprint]
    [experiment] = store.experiments()
    assert experiment.counts == {RunState.PENDING: 2}
    [experiment] = view(store, "v_experiments")
    assert (experiment["owner"], experiment["host"]) == ("ada", "tower")


def test_recording_is_all_or_nothing_and_unknown_names_are_errors(store):
    broken = plans.run("joint", needs={"reference": 64 * "0"})
    with pytest.raises(IntegrityError):
        plans.record(store, plans.plan(plans.run("uniform"), broken))
    assert store.experiments() == []
    assert view(store, "v_runs") == []
    plans.record(store, plans.reference_and_two())
    with pytest.raises(UserError, match="did you mean 'toy'"):
        store.runs("toi")
    with pytest.raises(UserError, match="no run abc"):
        store.run("abc")


def test_legal_moves():
    """COMPLETED is final; only a running attempt reaches it."""
    for current in RunState:
        legal = {
            RunState.COMPLETED: set(),
            RunState.RUNNING: set(RunState) - {RunState.PENDING, RunState.BLOCKED, RunState.SKIPPED},
        }.get(current, set(RunState) - {RunState.COMPLETED})
        for wanted in RunState:
            if wanted in legal:
                check_move("a" * 64, current, wanted)
            else:
                with pytest.raises(IllegalMove, match=f"is {current} and cannot become {wanted}"):
                    check_move("a" * 64, current, wanted)


def test_illegal_moves_change_nothing_and_many_states_are_read(store):
    run = plans.run("a")
    plans.record(store, plans.plan(run))
    plans.move(store, run, RunState.FAILED, "because")
    with pytest.raises(IllegalMove):
        plans.move(store, run, RunState.COMPLETED, "no")
    assert store.states([run.fingerprint]) == {run.fingerprint: RunState.FAILED}
    assert store.reasons([run.fingerprint]) == {run.fingerprint: "because"}
    asked = [str(number) for number in range(40_000)]
    # More than SQL takes parameters.
    assert store.states([*asked, run.fingerprint]) == {run.fingerprint: RunState.FAILED}


def test_progress_of_many_runs(store):
    runs = [plans.run("many", seed=seed) for seed in range(6)]
    plans.record(store, plans.plan(*runs))
    for run in runs[:3]:
        attempt = plans.begun(store, run)
        for step in (1, 2, 10):
            attempt.log(step, {"loss": 1.0 / step, "speed": float(run.seed)})
        attempt.progress(10, 20)
        attempt.complete()
    spent = Spent(3.0, 4.0, 4.0, 1.0, 0.0, None, 5, 10, None, None)  # 5 steps
    for run, reported in ((runs[3], spent), (runs[4], None)):
        attempt = plans.begun(store, run, spent=reported)
        attempt.progress(10, 20)
        attempt.flush()
    found = store.progress([run.fingerprint for run in runs], ["loss", "speed", "unknown"])
    for run in runs[:3]:
        progress = found[run.fingerprint]
        assert (progress.step, progress.total_steps, progress.steps_per_second) == (10, 20, None)
        assert progress.latest == {"loss": 0.1, "speed": float(run.seed)}
    resumed, first, waiting = (found[run.fingerprint] for run in runs[3:])
    assert (resumed.steps_per_second, resumed.seconds_left, waiting.seconds_left) == (1.0, 10.0, None)
    assert first.steps_per_second is not None and first.steps_per_second > 0
    assert replace(resumed, latest={"seen": 40.0}).per_second("seen") == 4.0
    assert [found[run.fingerprint].latest for run in runs[3:]] == [{}] * 3


@pytest.mark.both_databases
def test_many_create_a_store_and_record_the_same_runs(database_url):
    runs, launchers = [plans.run("a", config={"x": x}) for x in range(6)], 3
    begin = Barrier(launchers)

    def launch(number: int) -> None:
        begin.wait(60)
        with closing(Store.open(database_url)) as store:
            for _ in range(2):
                plans.record(store, plans.plan(*(runs[::-1] if number % 2 else runs), name=f"{number}"))
                plans.record(store, plans.plan(*runs, name="shared"))

    with ThreadPoolExecutor(launchers) as threads:
        list(threads.map(launch, range(launchers)))
    with closing(Store.open(database_url, create=False)) as store:
        counts = {row.name: row.counts[RunState.PENDING] for row in store.experiments()}
        assert counts == dict.fromkeys(("0", "1", "2", "shared"), len(runs))
        assert [row.fingerprint for row in store.runs("shared")] == [run.fingerprint for run in runs]
