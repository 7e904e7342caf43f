import plans_support as plans

from jestlab.platform.planning.explain import explain
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import StudySpec
from jestlab.platform.store.records import FinishedRun, RunState

JOINT = {"selection": {"rule": "joint", "reference": "reference"}}


def planned(runs, **written):
    return plan(StudySpec.parse({"name": "s", "runs": runs, **written}))


def finished(runs):
    return [FinishedRun(run.fingerprint, run.program, run.config, run.directory, run.needs) for run in runs]


def reasons(now, before):
    done = {run.fingerprint: RunState.COMPLETED for run in before.runs}
    compared = now.with_states(done)
    by_fingerprint = {run.fingerprint: run for run in compared.runs}
    return {by_fingerprint[f].label: why for f, why in explain(compared, finished(before.runs)).items()}


def test_only_new_runs_are_explained():
    assert reasons(planned({"a": {}}), planned({"a": {}})) == {}
    found = reasons(planned({"a": {}}), planned({"own": {"program": "json:dumps"}}))
    assert str(found["a"]) == "new: the store has no completed run of train"


def test_the_nearest_finished_run_is_compared_field_by_field_with_defaults_filled_in():
    before = planned(
        {"reference": {}, "joint": JOINT, "far": {"optimizer.beta2": 0.5, "schedule.batch_size": 32}}
    )
    now = planned({"reference": {}, "joint": {"selection": {**JOINT["selection"], "filtering_ratio": 0.9}}})
    found = reasons(now, before)
    joint = next(run for run in before.runs if run.name == "joint")
    assert set(found) == {"joint"}
    assert found["joint"].nearest == joint.directory
    assert found["joint"].differences == {"selection.filtering_ratio": {"before": 0.8, "now": 0.9}}
    assert str(found["joint"]) == f"new; {joint.directory} differs in selection.filtering_ratio 0.8 → 0.9"
    # One run differs in a value; the other has all of them, and three fields more.
    before = planned({"more": {"a": 1, "x": 1, "y": 1, "z": 1}, "less": {"a": 2}}, program="json:dumps")
    found = reasons(planned({"now": {"a": 1}}, program="json:dumps"), before)
    assert list(found["now"].differences) == ["a"]
    # A field that is back at its default:
    found = reasons(planned({"a": {}}), planned({"a": {"optimizer.beta2": 0.5}}))
    assert found["a"].differences == {"optimizer.beta2": {"before": 0.5, "now": 0.95}}


def test_a_run_whose_reference_changed_says_so_and_the_reference_says_why():
    before = planned({"reference": {}, "joint": JOINT})
    now = planned({"reference": {"optimizer.beta2": 0.5}, "joint": JOINT})
    found = reasons(now, before)
    assert list(found["reference"].differences) == ["optimizer.beta2"]
    assert found["joint"].differences == {
        "selection.reference": {"before": before.runs[0].fingerprint[:8], "now": now.runs[0].fingerprint[:8]}
    }


def test_a_run_that_had_started_is_resumed():
    now = planned({"a": {}, "b": {"optimizer.beta2": 0.5}})
    states = dict(zip(now.fingerprints, (RunState.CANCELLED, RunState.SKIPPED), strict=True))
    found = list(explain(now.with_states(states), []).values())
    assert str(found[0]) == "CANCELLED before: resumes from its latest checkpoint, if it has one"
    assert str(found[1]).startswith("SKIPPED before: has not started yet")


def test_stored_configs_that_no_longer_validate_are_skipped():
    old = FinishedRun("0" * 64, "train", {"removed_field": 1}, "runs/old", {})
    gone = FinishedRun("1" * 64, "no_such_module:main", {}, "runs/gone", {})
    now = planned({"a": {}})
    (why,) = explain(now, [old, gone]).values()
    assert why.nearest is None


def test_comparing_a_pair_takes_few_operations():
    def work(points):
        axes = {"a": {"grid": {"schedule.examples_seen": list(range(1, points + 1))}}}
        now, before = (planned({"a": {"optimizer.beta2": beta}}, axes=axes) for beta in (0.5, 0.95))
        found = reasons(now, before)
        assert len(found) == points
        assert all(
            why.differences == {"optimizer.beta2": {"before": 0.95, "now": 0.5}} for why in found.values()
        )
        return plans.function_calls(lambda: explain(now, finished(before.runs)))

    small, large = work(20), work(80)
    assert large < 6 * small, "flattening the configs of each pair would take 16 times as many calls"
