"""`match: {seconds: …}`: a run trains as long as another one took, by what the store has measured."""

from contextlib import closing
from dataclasses import replace

import labs_support as labs
import plans_support as plans
import pytest
import yaml
from sqlalchemy import select, update

from jestlab.analysis.costs import Cost
from jestlab.platform import programs
from jestlab.platform.errors import UserError
from jestlab.platform.launch import controller
from jestlab.platform.launch.outcome import LaunchOutcome
from jestlab.platform.planning.cost import check_chip_hours
from jestlab.platform.planning.deciding import first_seeds
from jestlab.platform.planning.matching import (
    TimedRun,
    Timings,
    config_key,
    examples_in_time,
    examples_within,
)
from jestlab.platform.planning.plan import plan
from jestlab.platform.programs import Price
from jestlab.platform.spec import StudySpec
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, MemberRow

JOINT = {"selection": {"rule": "joint", "reference": "reference"}}
RUNS = {
    "uniform_in_time": {"match": {"seconds": "joint"}},
    "reference": {"model.vision.depth": 1},
    "uniform": {},
    "joint": JOINT,
}
LENGTH = 64_000


def study(runs=RUNS, seeds=2, length=LENGTH, **written):
    base = {"schedule": {"batch_size": 64, "examples_seen": length}}
    return StudySpec.parse({"name": "s", "base": base, "runs": runs, "seeds": seeds, **written})


def planned(store, spec):
    return plan(spec, timings=Timings.read(store, spec))


def lengths(found, name):
    return [run.config["schedule"]["examples_seen"] for run in found.runs if run.name == name]


def complete(store, folder, spec, **seconds):
    found = planned(store, spec)
    plans.record(store, found)
    measure(store, folder, found.runs, seconds)


def measure(store, folder, runs, seconds):
    """Complete runs; the seconds per 1,000 examples are given by name, as a number or as a list by seed."""
    states = store.states([run.fingerprint for run in runs])
    for run in runs:
        if run.name in seconds and states.get(run.fingerprint) != RunState.COMPLETED:
            pace = seconds[run.name]
            pace = pace[run.seed] if isinstance(pace, list) else pace
            attempt = plans.begun(store, run, folder / run.fingerprint)
            seen = run.config["schedule"]["examples_seen"]
            for share in (2, 1):
                spent = None if pace is None else pace * seen / 1_000 / share
                scores = {"a/x": 0.5, "b/x": 0.5}
                attempt.evaluation(seen // 64 // share, seen // share, 1e6, scores, seconds=spent)
            attempt.complete()


def test_it_waits_for_what_nobody_has_measured(store):
    spec = study(RUNS | {"longer": {"schedule.examples_seen": 2 * LENGTH}})
    found = planned(store, spec)
    assert [(its.label, its.seed, its.match, its.awaits) for its in found.waiting] == [
        ("uniform_in_time", seed, "seconds: joint", ("joint", "uniform")) for seed in (0, 1)
    ]
    assert {run.name for run in found.runs} == {"reference", "uniform", "joint", "longer"}
    assert plan(spec).waiting == found.waiting  # without a store, too
    with pytest.raises(
        UserError, match=r"max-chip-hours .* checked: the training length of uniform_in_time is unknown"
    ):
        check_chip_hours(found, 1e9, "local")


def test_the_first_seeds_of_those_that_wait_are_chosen_whatever_their_numbers(store):
    found = planned(store, study(seeds=[100, 7]))
    assert [its.seed for its in first_seeds(found, lambda _: 1).waiting] == [100]
    assert [its.seed for its in first_seeds(found, lambda _: 2).waiting] == [100, 7]


def test_it_trains_as_long_as_the_other_to_half_a_step(store, tmp_path):
    complete(store, tmp_path, study(), uniform=[1.0, 1.2], joint=[2.9, 3.2])
    found = planned(store, study())
    assert found.waiting == ()
    seen = lengths(found, "uniform_in_time")
    assert seen[0] == seen[1] == round(LENGTH * 3.05 / 1.1 / 64) * 64
    assert [run.match for run in found.runs if run.name == "uniform_in_time"] == ["seconds: joint"] * 2
    by_hand = study({**RUNS, "uniform_in_time": {"schedule.examples_seen": seen[0]}})
    assert set(plan(by_hand).fingerprints) == set(found.fingerprints)


def test_seconds_of_different_devices_say_nothing(store, tmp_path):
    complete(store, tmp_path, study(seeds=1), uniform=1.0)
    complete(store, tmp_path, study(seeds=1), joint=0.1)
    with store.writing() as connection:
        joint = select(MemberRow.run_id).where(MemberRow.name == "joint")
        connection.execute(update(AttemptRow).where(AttemptRow.run_id.in_(joint)).values(device="H100"))
    assert planned(store, study(seeds=1)).waiting
    complete(store, tmp_path, study(), joint=[0.1, 4.0])
    assert lengths(planned(store, study()), "uniform_in_time") == [4 * LENGTH] * 2


def test_what_a_launch_solved_for_stays_until_its_rival_changes(store, tmp_path):
    complete(store, tmp_path, study(seeds=1), uniform=1.0, joint=2.0)
    plans.record(store, planned(store, study(seeds=1)))
    complete(store, tmp_path, study(seeds=3), uniform=1.0, joint=6.0)
    assert lengths(planned(store, study(seeds=3)), "uniform_in_time") == [2 * LENGTH] * 3
    for changes, pace, length in (
        ({"schedule.examples_seen": 2 * LENGTH}, 6.0, 12 * LENGTH),
        ({"selection.filtering_ratio": 0.5}, 5.0, 5 * LENGTH),
    ):
        changed = study({**RUNS, "joint": {**JOINT, **changes}}, seeds=1)
        complete(store, tmp_path, changed, joint=pace)
        assert lengths(planned(store, changed), "uniform_in_time") == [length]


def test_what_needs_a_run_that_waits_waits_too(store):
    embeds = {"cache": {"program": "embed", "reference": "uniform_in_time"}}
    found = planned(store, study({**RUNS, **embeds}, seeds=1))
    assert [its.label for its in found.waiting] == ["uniform_in_time", "cache"]
    assert "cache" not in {run.name for run in found.runs}


def test_what_cannot_be_solved_for_is_refused():
    cache = {"program": "embed", "reference": "reference"}
    as_cache = {"uniform_in_time": {"match": {"seconds": "cache"}}, "cache": cache}
    unknown = "the time per example of uniform_in_time is unknown: add a run with the same config"
    for changes, message in (
        ({"uniform": {"model.vision.depth": 1}}, unknown),
        (as_cache, "both must be runs of train: uniform_in_time and cache are not"),
        ({"third": {"match": {"flops": "uniform_in_time"}}}, "'uniform_in_time' has a match itself"),
    ):
        with pytest.raises(UserError, match=message):
            plan(study(RUNS | changes))


def config(depth, seed=0, length=64):
    return {"seed": seed, "schedule": {"examples_seen": length}, "depth": depth}


def test_paces_are_medians_on_the_device_with_most_measurements_of_both():
    train = programs.get("train")
    own = {"cpu": [1.0, 2.0, 9.0], "gpu": [5.0] * 4, "tpu": [0.1] * 5}
    other = {"cpu": [3.0, 4.0, 20.0], "gpu": [7.0]}
    timings = Timings({config_key(train, config(1)): own, config_key(train, config(2)): other})
    assert timings.pace(train, config(1, seed=7, length=99), config(2, seed=8)) == (2.0, 4.0)
    assert timings.pace(train, config(1), config(3)) is None


def test_other_seeds_get_the_length_of_the_last_launch():
    train = programs.get("train")
    timings = Timings(launched={"run": [config(3, length=1), config(1, length=640)], "rival": [config(2)]})
    run, rival = (TimedRun(train, name, config(d, seed=5), None) for name, d in (("run", 1), ("rival", 2)))
    assert timings.previous_length(run, rival) == 640
    assert timings.previous_length(run, replace(rival, config=config(2, length=65))) is None
    assert timings.previous_length(replace(run, label="other"), rival) is None


def test_budgets_of_zero_and_of_less_than_a_step_are_errors():
    priced, train = plan(study()).runs[0].price, programs.get("train")
    paces = {1: 100.0, 2: 0.1}
    timings = Timings({config_key(train, config(depth)): {"cpu": [pace]} for depth, pace in paces.items()})
    run, rival = (TimedRun(train, name, config(d), priced) for name, d in (("run", 1), ("rival", 2)))
    with pytest.raises(UserError, match="rival takes less time than one step of run"):
        examples_in_time(run, rival, timings)
    with pytest.raises(UserError, match="cost of that run is unknown or zero"):
        examples_within(priced, Price(Cost(), 0), "scoring")


@pytest.fixture
def launch(root, tmp_path, monkeypatch):
    """Launches a study whose runs train at a given pace: the controller is replaced, no process starts."""
    spec = tmp_path / "fair.yaml"
    runs = {"small": {}, "large": {"model.vision.depth": 3}, "small_in_time": {"match": {"seconds": "large"}}}
    written = {"name": "fair", "base": {"schedule.examples_seen": LENGTH}, "runs": runs}
    spec.write_text(yaml.safe_dump(written))

    def launched(**seconds):
        def complete_all(lab, store, title, runs, executors, **options):
            measure(store, lab.root, runs, seconds)
            return LaunchOutcome(store.states([run.fingerprint for run in runs]), {}, False, len(runs))

        monkeypatch.setattr(controller, "launch", complete_all)
        return labs.here("launch", spec, "--no-reports", root=root)

    return launched


def test_one_launch_measures_solves_and_runs(launch, root, tmp_path):
    shown = labs.here("plan", tmp_path / "fair.yaml", root=root)
    assert "NOT PLANNED YET: small_in_time (seconds: large), 1 seed: the launch solves" in shown.stdout
    launched = launch(small=1.0, large=2.5, small_in_time=1.0)
    assert launched.returncode == 0, launched.stderr
    with closing(Store.open(f"sqlite:///{root / 'results.db'}")) as store:
        configs = {label: config for label, _, config in store.launched("fair")}
    seen = {label: config["schedule"]["examples_seen"] for label, config in configs.items()}
    assert seen == {"small": LENGTH, "large": LENGTH, "small_in_time": 2.5 * LENGTH}


def test_a_launch_that_measured_no_seconds_reports_the_run_that_waits(launch):
    launched = launch(small=None, large=None)
    assert launched.returncode == 1
    assert "NOT PLANNED YET: small_in_time (seconds: large)" in launched.stdout
