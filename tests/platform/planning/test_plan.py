import io
import sys
import tarfile
from dataclasses import replace

import pytest

from jestlab.analysis import costs
from jestlab.models.config import TrainConfig
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Action, plan, totals
from jestlab.platform.spec import Study, load
from jestlab.platform.store.records import RunState

JOINT = {"selection": {"rule": "joint", "reference": "reference"}}


def planned(runs, states=None, **written):
    planned = plan(Study.parse({"name": "s", "runs": runs, **written}))
    return planned.with_states(states or {})


def test_runs_are_ordered_fingerprinted_and_placed():
    joint, *_ = (
        run for run in planned({"joint": JOINT, "reference": {}}, seeds=[4]).runs if run.name == "joint"
    )
    reference, last = planned({"joint": JOINT, "reference": {}}, seeds=[4]).runs
    assert (reference.name, last.name) == ("reference", "joint")
    assert last.needs == {"selection.reference": reference.fingerprint}
    assert last.fingerprint == joint.fingerprint
    assert last.seed == last.config["seed"] == 4
    assert last.directory == f"runs/joint-{last.fingerprint[:8]}"
    assert TrainConfig.model_validate(last.config).selection.reference == "reference"


def test_equal_runs_are_one_run_that_knows_all_its_names():
    runs = planned(
        {
            "plain": {},
            "uniform": {"selection.gain": 5.0},
            "joint": {**JOINT, "selection.reference": "uniform"},
        }
        | {"joint": {"selection": {"rule": "joint", "reference": "uniform"}}},
        axes={
            "uniform": {"grid": {"selection.chunks": [2, 4]}},
            "joint": {"grid": {"selection.chunks": [2]}},
        },
        seeds=2,
    ).runs
    assert [(run.label, run.seed) for run in runs] == [
        ("plain", 0),
        ("joint chunks=2", 0),
        ("plain", 1),
        ("joint chunks=2", 1),
    ]
    for run in runs[::2]:
        assert [(alias.name, alias.label, alias.point) for alias in run.aliases] == [
            ("uniform", "uniform chunks=2", {"selection.chunks": 2}),
            ("uniform", "uniform chunks=4", {"selection.chunks": 4}),
        ]
    for reference, joint in zip(runs[::2], runs[1::2], strict=True):
        assert joint.needs == {"selection.reference": reference.fingerprint}
        assert joint.aliases == ()


def test_a_run_with_its_own_seed_is_planned_once_for_all_replicates():
    runs = planned({"reference": {"seed": 9}, "joint": JOINT}, seeds=3).runs
    assert [(run.label, run.seed) for run in runs] == [
        ("reference", 9),
        ("joint", 0),
        ("joint", 1),
        ("joint", 2),
    ]
    assert {run.needs["selection.reference"] for run in runs[1:]} == {runs[0].fingerprint}
    assert runs[0].aliases == ()


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (None, Action.RUN),
        (RunState.PENDING, Action.RUN),
        (RunState.BLOCKED, Action.RUN),
        (RunState.SKIPPED, Action.RUN),
        (RunState.RUNNING, Action.RESUME),
        (RunState.FAILED, Action.RESUME),
        (RunState.CANCELLED, Action.RESUME),
        (RunState.PREEMPTED, Action.RESUME),
        (RunState.COMPLETED, Action.DONE),
    ],
)
def test_the_state_in_the_store_says_what_a_launch_does(state, action):
    (run,) = planned({"a": {}}).runs
    states = {} if state is None else {run.fingerprint: state}
    (compared,) = planned({"a": {}}, states).runs
    assert (compared.state, compared.action) == (state, action)
    assert planned({"a": {}}).with_states(states).runs == (compared,)


FORWARD = costs.vision_forward(
    image_size=16, patch_size=4, width=64, depth=2, mlp_dim=256, pooling="map", embedding_dim=48
) + costs.text_forward(length=12, width=48, depth=1, mlp_dim=192, embedding_dim=48)


@pytest.mark.parametrize(
    ("selection", "scoring", "reference_scoring"),
    [
        ({"rule": "uniform", "filtering_ratio": 0.9}, 0, 0),
        ({"rule": "joint", "reference": "reference"}, 5, 5),
        ({"rule": "independent", "reference": "reference", "filtering_ratio": 0.5}, 2, 2),
        ({"rule": "joint", "reference": "reference", "criterion": "easy_reference"}, 0, 5),
        ({"rule": "joint", "criterion": "hard_learner"}, 5, 0),
        ({"rule": "joint", "reference": "reference", "criterion": "hard_learner"}, 5, 0),
    ],
)
def test_a_run_is_priced_by_what_it_computes(selection, scoring, reference_scoring):
    """3F for each example seen, and for each candidate F of whoever scores it; steps are whole."""
    runs = planned(
        {"reference": {}, "a": {"selection": selection}},
        base={"schedule": {"batch_size": 64, "examples_seen": 1_000}},
    ).runs
    price = next(run.price for run in runs if run.name == "a" or any(a.name == "a" for a in run.aliases))
    examples = 1_024
    assert price.examples == examples
    cost = price.cost
    assert cost.image_tower + cost.text_tower == pytest.approx(3 * FORWARD * examples)
    assert cost.loss == pytest.approx(6 * 64 * 48 * examples)
    assert cost.scoring == pytest.approx(scoring * FORWARD * examples)
    assert cost.reference_scoring == pytest.approx(reference_scoring * FORWARD * examples)
    assert (cost.selection > 0) == (selection["rule"] != "uniform")
    assert price.total == cost.learner + cost.scoring + cost.selection


def test_a_reference_of_another_size_scores_at_its_own_price():
    runs = planned({"reference": {"model.text.depth": 3}, "joint": JOINT}).runs
    extra = 2 * costs.encoder_forward(length=12, width=48, depth=1, mlp_dim=192)
    price = runs[1].price
    assert price.cost.reference_scoring == pytest.approx((FORWARD + extra) * 5 * price.examples)
    assert price.cost.scoring == pytest.approx(FORWARD * 5 * price.examples)


def test_an_image_head_is_priced_only_where_there_is_one():
    with_head, without = planned({"a": {}, "b": {"model.embedding_dim": 64}}).runs
    image_head, wider_text_head = 2 * 64 * 48, 2 * 48 * (64 - 48)
    one, other = with_head.price.cost, without.price.cost
    assert one.image_tower - other.image_tower == pytest.approx(3 * with_head.price.examples * image_head)
    assert other.text_tower - one.text_tower == pytest.approx(3 * with_head.price.examples * wider_text_head)


def test_totals_add_up_what_is_known():
    runs = planned({"a": {}, "own": {"program": "json:dumps", "x": 1}}).runs
    assert runs[1].price is None
    assert totals(runs) == replace(runs[0].price, step=None)


def test_a_users_program_has_a_free_form_config_and_its_seed():
    (run,) = planned(
        {"own": {"a.b": [1, {"c": None}]}}, program="json:dumps", base={"a.x": 2}, seeds=[7]
    ).runs
    assert run.config == {"seed": 7, "a": {"b": [1, {"c": None}], "x": 2}}
    assert run.program == "json:dumps"


def test_the_base_is_the_config_of_the_studys_program_alone():
    runs = planned({"a": {}, "own": {"program": "json:dumps", "x": 1}}, base={"optimizer.beta2": 0.5}).runs
    assert runs[0].config["optimizer"]["beta2"] == 0.5
    assert runs[1].config == {"seed": 0, "x": 1}


def shards(folder, text):
    folder.mkdir()
    with tarfile.open(folder / "00000.tar", "w") as tar:
        for name, content in (("000.jpg", b"image"), ("000.txt", text)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return str(folder)


def test_folders_are_identified_by_their_content(tmp_path):
    paths = [shards(tmp_path / name, text) for name, text in (("a", b"one"), ("b", b"one"), ("c", b"two"))]
    folders = {path[-1]: {"data.train": {"kind": "folder", "path": path}} for path in paths}
    runs = planned(folders, base={"schedule.batch_size": 1}).runs
    assert [run.name for run in runs] == ["a", "c"]
    assert [alias.name for alias in runs[0].aliases] == ["b"]
    assert len(runs[0].config["data"]["train"]["digest"]) == 64
    assert runs[0].config["data"]["train"]["path"] == paths[0]


def test_a_folder_is_read_once_per_plan(tmp_path, monkeypatch):
    from jestlab.models.data import datasets

    seen = []
    real = datasets.digest

    def digest(folder):
        seen.append(folder)
        return real(folder)

    monkeypatch.setattr(datasets, "digest", digest)
    path = shards(tmp_path / "a", b"one")
    (tmp_path / "a" / "wds_toy" / "test").mkdir(parents=True)
    base = {
        "data": {"train": {"kind": "folder", "path": path}, "benchmark": {"kind": "folder", "path": path}},
        "schedule.batch_size": 1,
    }
    planned({"a": {}, "b": {"optimizer.beta2": 0.5}}, base=base, seeds=3)
    assert len(seen) == 1


def test_a_missing_or_empty_folder_gives_a_one_line_error(tmp_path):
    runs = {"a": {"data.train": {"kind": "folder", "path": str(tmp_path / "nowhere")}}}
    with pytest.raises(UserError, match=r"^runs.a: data.train.path: no folder .*nowhere"):
        planned(runs)
    (tmp_path / "nowhere").mkdir()
    with pytest.raises(UserError, match=r"^runs.a: .*nowhere: holds no .tar shards"):
        planned(runs)


def calls(function):
    """How many functions a call calls, C functions included: the same on every machine."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("form", ["grid", "cases", "inert"])
def test_time_grows_with_the_number_of_runs_and_no_faster(tmp_path, form):
    def work(points):
        key = "selection.chunks" if form == "inert" else "schedule.examples_seen"
        values = [{key: n} for n in range(1, points + 1)]
        axis = {"grid": {key: list(range(1, points + 1))}} if form != "cases" else {"cases": values}
        axes = [{"runs": ["reference"] if form == "inert" else ["reference", "joint"], **axis}]
        runs = {"reference": {}} if form == "inert" else {"joint": JOINT, "reference": {}}
        study = {"name": "s", "runs": runs, "axes": axes, "seeds": 2, "base": {"schedule.batch_size": 32}}
        return calls(lambda: plan(Study.parse(study)))

    work(2)  # what is made once and kept
    small, large = work(50), work(200)
    assert large < 4.4 * small


def test_a_plan_is_the_same_every_time():
    assert plan(load("quickstart")) == plan(load("quickstart"))
