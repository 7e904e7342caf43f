"""`match: {seconds: …}`: a run trains as long as another one took, by what the store has measured."""

import json
from contextlib import closing

import labs_support as labs
import plans_support as plans
import pytest
import yaml
from sqlalchemy import select, update

from jestlab.platform.errors import SpecError, UserError
from jestlab.platform.planning.cost import refuse_above
from jestlab.platform.planning.plan import plan
from jestlab.platform.planning.timings import Timings
from jestlab.platform.spec import Study
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Member

JOINT = {"selection": {"rule": "joint", "reference": "reference"}}
RUNS = {
    "uniform_in_time": {"match": {"seconds": "joint"}},
    "reference": {"model.vision.depth": 1},
    "uniform": {},
    "joint": JOINT,
}
LENGTH = 64_000


@pytest.fixture
def store(store_url):
    with closing(Store.open(store_url)) as opened:
        yield opened


def study(runs=RUNS, seeds=2, length=LENGTH, **written):
    base = {"schedule": {"batch_size": 64, "examples_seen": length}}
    return Study.parse({"name": "s", "base": base, "runs": runs, "seeds": seeds, **written})


def planned(store, spec):
    return plan(spec, timings=Timings.read(store, spec))


def lengths(found, name):
    return [run.config["schedule"]["examples_seen"] for run in found.runs if run.name == name]


def complete(store, folder, found, seconds):
    """Run the runs of these names, at some seconds for 1,000 examples each, or a list of one a seed."""
    store.record(found)
    for run in found.with_states(store.states(found.fingerprints)).runs:
        if run.name in seconds and run.state != RunState.COMPLETED:
            pace = seconds[run.name]
            pace = pace if isinstance(pace, float) else pace[run.seed]
            attempt = plans.begun(store, run, folder / run.fingerprint)
            seen = run.config["schedule"]["examples_seen"]
            for share in (2, 1):
                spent = pace * seen / 1_000 / share
                scores = {"a/x": 0.5, "b/x": 0.5}
                attempt.evaluation(seen // 64 // share, seen // share, 1e6, scores, seconds=spent)
            attempt.complete()


def test_it_waits_for_what_nobody_has_measured(store):
    found = planned(store, study())
    assert [(its.label, its.seed, its.match, its.awaits) for its in found.waiting] == [
        ("uniform_in_time", seed, "seconds: joint", ("joint", "uniform")) for seed in (0, 1)
    ]
    assert {run.name for run in found.runs} == {"reference", "uniform", "joint"}
    assert plan(study()).waiting == found.waiting  # without a store, too
    with pytest.raises(UserError, match="max-chip-hours cannot be checked: how long uniform_in_time trains"):
        refuse_above(found, 1e9, "local")


def test_it_trains_as_long_as_the_other_to_half_a_step(store, tmp_path):
    complete(store, tmp_path, planned(store, study()), {"uniform": [1.0, 1.2], "joint": [2.9, 3.1]})
    found = planned(store, study())
    assert found.waiting == ()
    seen = lengths(found, "uniform_in_time")
    assert seen[0] == seen[1] == round(LENGTH * 3.0 / 1.1 / 64) * 64
    assert [run.match for run in found.runs if run.name == "uniform_in_time"] == ["seconds: joint"] * 2
    by_hand = study({**RUNS, "uniform_in_time": {"schedule.examples_seen": seen[0]}})
    assert set(plan(by_hand).fingerprints) == set(found.fingerprints)


def test_seconds_of_different_devices_say_nothing(store, tmp_path):
    complete(store, tmp_path, planned(store, study(seeds=1)), {"uniform": 1.0})
    complete(store, tmp_path, planned(store, study(seeds=1)), {"joint": 0.1})
    with store.writing() as connection:
        joint = select(Member.run_id).where(Member.name == "joint")
        connection.execute(update(Attempt).where(Attempt.run_id.in_(joint)).values(device="H100"))
    assert planned(store, study(seeds=1)).waiting
    more = planned(store, study())
    complete(store, tmp_path, more, {"joint": [0.1, 4.0]})
    assert lengths(planned(store, study()), "uniform_in_time") == [4 * LENGTH] * 2


def test_what_a_launch_solved_for_stays_until_its_rival_changes(store, tmp_path):
    complete(store, tmp_path, planned(store, study(seeds=1)), {"uniform": 1.0, "joint": 2.0})
    store.record(planned(store, study(seeds=1)))
    complete(store, tmp_path, planned(store, study(seeds=3)), {"uniform": 1.0, "joint": 6.0})
    assert lengths(planned(store, study(seeds=3)), "uniform_in_time") == [2 * LENGTH] * 3
    other = {**RUNS, "joint": {**JOINT, "selection.filtering_ratio": 0.5}}
    complete(store, tmp_path, planned(store, study(other, seeds=1)), {"joint": 5.0})
    assert lengths(planned(store, study(other, seeds=1)), "uniform_in_time") == [5 * LENGTH]


def test_another_length_of_the_rival_is_another_time(store, tmp_path):
    complete(store, tmp_path, planned(store, study(seeds=1)), {"uniform": 1.0, "joint": 2.0})
    store.record(planned(store, study(seeds=1)))
    longer = {**RUNS, "joint": {**JOINT, "schedule.examples_seen": 2 * LENGTH}}
    assert lengths(planned(store, study(longer, seeds=1)), "uniform_in_time") == [4 * LENGTH]


def test_what_needs_a_run_that_waits_waits_too(store):
    embeds = {"cache": {"program": "embed", "reference": "uniform_in_time"}}
    found = planned(store, study({**RUNS, **embeds}, seeds=1))
    assert [its.label for its in found.waiting] == ["uniform_in_time", "cache"]
    assert "cache" not in {run.name for run in found.runs}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uniform": {"model.vision.depth": 1}, },
         "nothing tells how long an example of uniform_in_time takes: add a run of the same config"),
        ({"uniform_in_time": {"match": {"seconds": "cache"}},
          "cache": {"program": "embed", "reference": "reference"}},
         "both must be runs of train: uniform_in_time and cache are not"),
    ],
)  # fmt: skip
def test_what_cannot_be_solved_for_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        plan(study(RUNS | changes))


def test_a_rival_that_matches_itself_is_refused():
    with pytest.raises(SpecError, match="'uniform_in_time' itself matches"):
        plan(study({**RUNS, "third": {"match": {"flops": "uniform_in_time"}}}))


def test_one_launch_measures_solves_and_runs(root, tmp_path):
    runs = {
        "small": {},
        "large": {"model.vision.depth": 3},
        "small_in_time": {"match": {"seconds": "large"}},
    }
    base = {"schedule": {"batch_size": 16, "examples_seen": 1_600}, "evaluation": {"points": 1}}
    spec = tmp_path / "fair.yaml"
    spec.write_text(yaml.safe_dump({"name": "fair", "base": base, "runs": runs, "seeds": 1}))
    shown = labs.jestlab("plan", spec, root=root)
    assert "NOT PLANNED YET: small_in_time (seconds: large), 1 seed: the launch solves" in shown.stdout
    launched = labs.jestlab("launch", spec, "--json", "--no-reports", root=root)
    assert launched.returncode == 0, launched.stderr
    outcome = json.loads(launched.stdout)
    assert {run["run"]: run["state"] for run in outcome["runs"]} == dict.fromkeys(runs, "COMPLETED")
    table = json.loads(
        labs.jestlab(
            "query",
            "SELECT label, MAX(examples_seen) AS seen, MAX(seconds) AS seconds"
            " FROM v_evaluations GROUP BY label",
            "--json",
            root=root,
        ).stdout
    )
    found = {row["label"]: row for row in table}
    steps = 1_600 / 16 * found["large"]["seconds"] / found["small"]["seconds"]  # as measured, however that is
    assert found["small_in_time"]["seen"] == round(steps) * 16
    again = labs.jestlab("launch", spec, "--no-reports", root=root)
    assert "nothing to run: all 3 runs are COMPLETED" in again.stdout
