"""Why a run would run: how it differs from the most similar completed run."""

import plans_support as plans

from jestlab.platform.planning.plan import plan
from jestlab.platform.planning.reasons import reasons_to_run
from jestlab.platform.spec import StudySpec
from jestlab.platform.store.records import RunState

JOINT = {"selection": {"rule": "joint", "reference": "reference"}}
OTHER = {"optimizer.beta2": 0.5}


def planned(runs, **written):
    return plan(StudySpec.parse({"name": "s", "runs": runs, **written}))


def reasons(now, before):
    compared = now.with_states({run.fingerprint: RunState.COMPLETED for run in before.runs})
    labels = {run.fingerprint: run.label for run in compared.runs}
    return {labels[run]: why for run, why in reasons_to_run(compared, before.runs).items()}


def test_only_new_runs_are_explained():
    assert reasons(planned({"a": {}}), planned({"a": {}})) == {}
    found = reasons(planned({"a": {}}), planned({"own": {"program": "json:dumps"}}))
    assert str(found["a"]) == "new: the store has no completed run of train"


def test_the_nearest_finished_run_is_compared():
    before = planned({"reference": {}, "joint": JOINT, "far": OTHER | {"schedule.batch_size": 32}})
    now = planned({"reference": {}, "joint": JOINT | {"selection.filtering_ratio": 0.9}})
    [(label, why)] = reasons(now, before).items()
    directory = next(run.directory for run in before.runs if run.name == "joint")
    assert (label, why.nearest) == ("joint", directory)
    assert str(why) == f"new; {directory} differs in selection.filtering_ratio 0.8 → 0.9"
    # One run differs in a value; the other has all of them, and three fields more.
    before = planned({"more": {"a": 1, "x": 1, "y": 1, "z": 1}, "less": {"a": 2}}, program="json:dumps")
    assert [*reasons(planned({"now": {"a": 1}}, program="json:dumps"), before)["now"].differences] == ["a"]
    back = reasons(planned({"a": {}}), planned({"a": OTHER}))["a"]
    assert back.differences == {"optimizer.beta2": {"before": 0.5, "now": 0.95}}  # its default


def test_a_run_whose_reference_changed_says_so_and_the_reference_says_why():
    before, now = (planned({"reference": changes, "joint": JOINT}) for changes in ({}, OTHER))
    found = reasons(now, before)
    assert list(found["reference"].differences) == ["optimizer.beta2"]
    assert found["joint"].differences == {
        "selection.reference": {"before": before.runs[0].fingerprint[:8], "now": now.runs[0].fingerprint[:8]}
    }


def test_a_run_that_had_started_is_resumed():
    now = planned({"a": {}, "b": OTHER})
    states = dict(zip(now.fingerprints, (RunState.CANCELLED, RunState.SKIPPED), strict=True))
    resumed, skipped = reasons_to_run(now.with_states(states), []).values()
    assert str(resumed) == "CANCELLED before: resumes from its latest checkpoint, if it has one"
    assert str(skipped).startswith("SKIPPED before: has not started yet")


def test_stored_configs_that_no_longer_validate_are_skipped():
    old = plans.run("old", "train", {"removed_field": 1})
    gone = plans.run("gone", "no_such_module:main")
    (why,) = reasons_to_run(planned({"a": {}}), [old, gone]).values()
    assert why.nearest is None


def test_comparing_a_pair_takes_few_operations():
    def work(points):
        axes = {"a": {"grid": {"schedule.examples_seen": list(range(1, points + 1))}}}
        now, before = (planned({"a": changes}, axes=axes) for changes in (OTHER, {}))
        found = reasons(now, before)
        assert len(found) == points and all(
            [*why.differences] == ["optimizer.beta2"] for why in found.values()
        )
        return plans.function_calls(lambda: reasons_to_run(now, before.runs))

    assert work(80) < 6 * work(20), "flattening the configs of each pair would take 16 times as many calls"
