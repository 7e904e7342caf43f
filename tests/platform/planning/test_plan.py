"""Plans: order, identity, states, prices, and the runs that studies of a union share."""

from unittest import mock

import labs_support as labs
import plans_support as plans
import pytest
import yaml

from jestlab.models.config import TrainConfig
from jestlab.models.data import datasets
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning import cost
from jestlab.platform.planning.plan import Action, plan
from jestlab.platform.programs.pricing import price_train
from jestlab.platform.spec import StudySpec
from jestlab.platform.spec.resources import parse_slice
from jestlab.platform.store.records import RunState

JOINT = {"selection": {"rule": "joint", "reference": "reference"}}


def planned(runs, **written):
    return plan(StudySpec.parse({"name": "s", "runs": runs, **written}))


def test_runs_are_ordered_fingerprinted_and_placed():
    reference, last = planned({"joint": JOINT, "reference": {}}, seeds=[4]).runs
    assert (reference.name, last.name) == ("reference", "joint")
    assert last.needs == {"selection.reference": reference.fingerprint}
    assert last.seed == last.config["seed"] == 4
    assert last.directory == f"runs/joint-{last.fingerprint[:16]}"
    assert TrainConfig.model_validate(last.config).selection.reference == "reference"


def test_equal_runs_are_one_run_that_knows_all_its_names():
    joint = {"selection": {"rule": "joint", "reference": "uniform"}}
    chunks = {name: {"grid": {"selection.chunks": n}} for name, n in (("uniform", [2, 4]), ("joint", [2]))}
    written = {"plain": {}, "uniform": {"selection.gain": 5.0}, "joint": joint}
    runs = planned(written, axes=chunks, seeds=2).runs
    assert [run.label for run in runs] == ["plain", "joint chunks=2"] * 2
    for reference, joint in (runs[:2], runs[2:]):
        assert [(alias.name, alias.label, alias.point) for alias in reference.aliases] == [
            ("uniform", f"uniform chunks={chunks}", {"selection.chunks": chunks}) for chunks in (2, 4)
        ]
        assert joint.needs == {"selection.reference": reference.fingerprint}
        assert joint.aliases == ()


def test_a_run_with_its_own_seed_is_planned_once_for_all_replicates():
    runs = planned({"reference": {"seed": 9}, "joint": JOINT}, seeds=3).runs
    assert [(run.label, run.seed) for run in runs] == [("reference", 9), *(("joint", n) for n in range(3))]
    assert {run.needs["selection.reference"] for run in runs[1:]} == {runs[0].fingerprint}
    assert runs[0].aliases == ()


def test_the_state_in_the_store_decides_the_action():
    new = (None, RunState.PENDING, RunState.BLOCKED, RunState.SKIPPED)
    begun = (RunState.RUNNING, RunState.FAILED, RunState.CANCELLED, RunState.PREEMPTED)
    actions = dict.fromkeys(new, Action.RUN) | dict.fromkeys(begun, Action.RESUME)
    actions[RunState.COMPLETED] = Action.DONE
    whole = planned({"a": {}})
    (run,) = whole.runs
    for state, action in actions.items():
        (compared,) = whole.with_states({} if state is None else {run.fingerprint: state}).runs
        assert (compared.state, compared.action) == (state, action)


def test_a_run_is_priced_by_its_whole_steps_and_with_its_reference():
    base = {"schedule": {"batch_size": 64, "examples_seen": 1_000}}
    runs = planned({"reference": {"model.text.depth": 3}, "joint": JOINT}, base=base).runs
    found, configs = runs[1].price, [TrainConfig.model_validate(run.config) for run in runs]
    assert found.examples == 1_024
    assert found == price_train(configs[1], {"selection.reference": configs[0]})
    assert found.total == found.cost.learner + found.cost.scoring + found.cost.selection


def test_folders_are_identified_by_their_content(tmp_path):
    captions = {"a": "one", "b": "one", "c": "two"}
    paths = {name: plans.write_shard(tmp_path / name, caption) for name, caption in captions.items()}
    folders = {name: {"data.train": {"kind": "folder", "path": path}} for name, path in paths.items()}
    runs = planned(folders, base={"schedule.batch_size": 1}).runs
    assert [run.name for run in runs] == ["a", "c"]
    assert [alias.name for alias in runs[0].aliases] == ["b"]
    train = runs[0].config["data"]["train"]
    assert (len(train["digest"]), train["path"]) == (64, paths["a"])


def test_a_folder_is_read_once_per_plan(tmp_path):
    folder = {"kind": "folder", "path": plans.write_shard(tmp_path / "a", "one")}
    (tmp_path / "a" / "wds_toy" / "test").mkdir(parents=True)
    base = {"data": {"train": folder, "benchmark": folder}, "schedule.batch_size": 1}
    with mock.patch.object(datasets, "digest", wraps=datasets.digest) as digest:
        planned({"a": {}, "b": {"optimizer.beta2": 0.5}}, base=base, seeds=3)
    assert digest.call_count == 1


@pytest.mark.parametrize("form", ["grid", "cases", "inert"])
def test_time_grows_with_the_number_of_runs_and_no_faster(tmp_path, form):
    def work(points):
        key = "selection.chunks" if form == "inert" else "schedule.examples_seen"
        values = [{key: n} for n in range(1, points + 1)]
        axis = {"grid": {key: list(range(1, points + 1))}} if form != "cases" else {"cases": values}
        axes = [{"runs": ["reference"] if form == "inert" else ["reference", "joint"], **axis}]
        runs = {"reference": {}} if form == "inert" else {"joint": JOINT, "reference": {}}
        study = {"name": "s", "runs": runs, "axes": axes, "seeds": 2, "base": {"schedule.batch_size": 32}}
        return plans.function_calls(lambda: plan(StudySpec.parse(study)))

    work(2)  # what is made once and kept
    small, large = work(50), work(200)
    assert large < 4.4 * small


# ---- unions

FIRST = {"runs": {"uniform": {}, "reference": {"schedule.examples_seen": 960}, "joint": JOINT}, "seeds": 2}
SECOND = {
    "runs": {"curated": {"schedule.examples_seen": 960}, "baseline": {}, "wide": {"model.vision.width": 128}},
    "seeds": 3,
}
WRITTEN = {"name": "both", "question": "Both?", "studies": {"first": FIRST, "second": SECOND}}


@pytest.fixture
def both():
    return plan(StudySpec.parse(WRITTEN))


def test_equal_runs_are_one_under_the_first_parts_name(both):
    aliases = {(run.label, run.seed): [alias.label for alias in run.aliases] for run in both.runs}
    shared = {"first/uniform": "second/baseline", "first/reference": "second/curated"}
    assert {place: names for place, names in aliases.items() if names} == {
        (label, seed): [other] for label, other in shared.items() for seed in (0, 1)
    }
    assert len(both.runs) == 6 + 9 - 4
    assert both.needed == {"first/reference"}
    for place, run in enumerate(both.runs):
        assert set(run.needs.values()) <= set(both.fingerprints[:place])
        assert run.directory == f"runs/{run.name.split('/')[1]}-{run.fingerprint[:16]}"


def test_each_part_is_planned_as_if_by_itself(both):
    assert both.parts == tuple(plan(study) for study in both.study.studies.values())


def test_states_and_budgets_reach_the_parts(both):
    shared = next(run for run in both.runs if run.label == "first/uniform")
    compared = both.with_states({shared.fingerprint: RunState.COMPLETED})
    sized = cost.on_tpu(compared, parse_slice("v5e-1x1"), Settings())
    for whole in (sized, *sized.parts):
        [run] = [run for run in whole.runs if run.fingerprint == shared.fingerprint]
        assert (run.state, run.budget is not None) == (RunState.COMPLETED, True)


def test_plan_shows_each_label_under_its_part_and_many_labels_as_one_row_per_part(tmp_path):
    spec = tmp_path / "both.yaml"
    spec.write_text(yaml.safe_dump(WRITTEN, sort_keys=False))

    def first_words(*options):
        lines = labs.here("plan", spec, *options).stdout.splitlines()[3:]
        return [line.split()[0] for line in lines if line]

    labels = ["first", "uniform", "reference", "joint", "second", "curated", "baseline", "wide", "all"]
    assert first_words()[:9] == labels
    axis = f"studies.second.axes=[{{runs: [wide], grid: {{schedule.batch_size: {[*range(16, 60)]}}}}}]"
    assert first_words("--set", axis)[:3] == ["first", "second", "all"]
    assert len(first_words("--set", axis, "--all")) > 130
