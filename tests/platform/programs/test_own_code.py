"""Custom code in configs: found by the plan, part of the identity, and checked when a run starts."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
import yaml

from jestlab.models import extensions
from jestlab.models.config import TrainConfig
from jestlab.models.extensions import kinds
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning import identity
from jestlab.platform.planning.changes import changes_of
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.plugins import check_criteria, check_unchanged
from jestlab.platform.programs.sources import sources_of
from jestlab.platform.spec.load import load
from jestlab.platform.store.store import Store

OWN = Path(__file__).parents[2] / "models" / "support" / "own_code.py"
JOINT = {"rule": "joint", "chunks": 4, "reference": "reference"}


def spec(folder: Path, source: str | None = None, /, **runs: Any) -> Path:
    """Write a study next to the code that it names."""
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(OWN.read_text() if source is None else source)
    path = folder / "study.yaml"
    written = {"name": "own", "base": plans.TINY, "runs": {"reference": {"initialization": 1}, **runs}}
    path.write_text(yaml.safe_dump(written))
    return path


def planned(path: Path, *overrides: str) -> Plan:
    return plan(load(str(path), overrides=overrides))


def fingerprint(path: Path, *overrides: str) -> str:
    return planned(path, *overrides).runs[-1].fingerprint


def selecting(**selection: Any) -> dict[str, Any]:
    return {"selection": JOINT | selection}


ONE_OF_EACH = {
    "criterion": selecting(criterion="own.py:clipped", criterion_options={"floor": 0.5}),
    "rule": selecting(rule="own.py:halves"),
    "loss": {"loss": "own.py:decoupled", **selecting()},
    "evaluation": {"evaluation.extra": {"squares": "own.py:colours"}},
    "reader": {"data.train": {"kind": "reader", "function": "own.py:squares", "options": {"count": 64}}},
    "tower": {"model.vision": {"architecture": "own.py:Layer", "options": {"hidden": 32}}},
}


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_code_is_part_of_the_identity_without_comments(tmp_path, kind):
    run = ONE_OF_EACH[kind]
    first = fingerprint(spec(tmp_path / "a", x=run))
    commented = OWN.read_text().replace("import jax\n", "# JAX\n\nimport jax\n")
    assert fingerprint(spec(tmp_path / "b", commented, x=run)) == first
    changed = fingerprint(spec(tmp_path / "c", OWN.read_text() + "\nMORE = 1\n", x=run))
    assert changed != first
    stored = planned(tmp_path / "a" / "study.yaml").runs[-1]
    assert identity.is_authentic(first, stored.program, stored.config, stored.needs)
    (tmp_path / "a" / "own.py").unlink()  # as on a machine that an archive is imported on
    assert identity.is_authentic(first, stored.program, stored.config, stored.needs)


def test_options_are_part_of_the_identity_and_axes_go_over_them(tmp_path):
    path = spec(tmp_path, x=ONE_OF_EACH["criterion"])
    same, other = (f"runs.x.selection.criterion_options.floor={floor}" for floor in (0.5, 0.6))
    assert fingerprint(path) == fingerprint(path, same) != fingerprint(path, other)
    path.write_text(
        path.read_text() + "axes: [{runs: [x], grid: {selection.criterion_options.floor: [1, 2]}}]\n"
    )
    assert [run.label for run in planned(path).runs[1:]] == ["x floor=1", "x floor=2"]
    uniform = {"selection": {"criterion": "own.py:clipped"}}  # without effect
    assert fingerprint(spec(tmp_path, x=uniform)) == fingerprint(spec(tmp_path, x={}))


def test_files_count_from_the_folder_of_the_spec(tmp_path, monkeypatch):
    path = spec(tmp_path / "lab", **ONE_OF_EACH)
    monkeypatch.chdir(tmp_path)
    study = load("lab/study.yaml")
    named = {name for run in plan(study).runs for name in run.config["code"]}
    assert {name.rpartition(":")[0] for name in named} == {str(tmp_path / "lab" / "own.py")}
    again = tmp_path / "again.yaml"
    again.write_text(study.to_yaml())
    assert planned(again).fingerprints == planned(path).fingerprints


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (selecting(criterion="own.py:clippd"), "selection.criterion: no 'clippd' in .*: .* 'clipped'"),
        (selecting(criterion="gone.py:x"), r"selection.criterion: .*gone.py: no such file"),
        (selecting(criterion="own.py:clipped", criterion_options={"flor": 1}),
         "has no option 'flor', given in selection.criterion_options: did you mean 'floor'"),
        (selecting(criterion="own.py:clipped", reference=None),
         "own.py:clipped uses the reference model: set selection.reference"),
        (selecting(criterion="own.py:decoupled"), "must take `learner`, `reference`, or both"),
        (selecting(rule="own.py:halves", rule_options={"x": 1}), "its options: second_gain"),
        (selecting(rule="jont"), "'jont' is not valid: did you mean 'joint'"),
        ({"data.train": {"kind": "reader", "function": "own.py:squares", "path": "gone.txt"}},
         "data.train.path: .*gone.txt: no such file or folder"),
        ({"model.vision.architecture": "own.py:OWN"}, "model.vision.architecture: .* declares no FLOPs"),
    ],
)  # fmt: skip
def test_wrong_code_is_an_error_of_the_plan(tmp_path, run, message):
    with pytest.raises(UserError, match=message):
        planned(spec(tmp_path, OWN.read_text() + "OWN = print\n", x=run))


def test_an_installed_package_offers_code_by_name(tmp_path, monkeypatch):
    (tmp_path / "pack_d").mkdir()
    shutil.copy(OWN, tmp_path / "pack_d" / "selection.py")
    (tmp_path / "pack_d" / "__init__.py").write_text("")
    about = tmp_path / "pack_d-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pack-d\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[jestlab.rules]\nhalves = pack_d.selection:halves\n[jestlab.criteria]\n"
        "clipped = pack_d.selection:clipped\n"
    )
    path = spec(tmp_path / "study", x=selecting(rule="halves", criterion="clipped"))
    with pytest.raises(UserError, match="'halves' is not valid"):
        planned(path)
    monkeypatch.syspath_prepend(tmp_path)
    kinds.installed.cache_clear()
    try:
        by_name = planned(path).runs[-1]
        assert by_name.config["selection"]["rule"] == "halves"
        assert by_name.config["code"]["halves"]["digest"] == extensions.digest("pack_d.selection:halves")
        with pytest.raises(UserError, match="'halfs' is not valid: did you mean 'halves'"):
            planned(path, "runs.x.selection.rule=halfs")
        by_path = fingerprint(
            spec(tmp_path / "b", x=selecting(rule="own.py:halves", criterion="own.py:clipped"))
        )
        assert by_name.fingerprint == by_path  # the same code, wherever it is
    finally:
        kinds.installed.cache_clear()


def test_selection_is_priced_by_the_flops_of_the_rule(tmp_path):
    def costs(flops: str) -> dict[str, float]:
        source = OWN.read_text().replace("halves.flops = _flops_of_halves", flops)
        runs = planned(
            spec(tmp_path, source, x=ONE_OF_EACH["rule"], alone=selecting(rule="independent"))
        ).runs
        return {run.name: run.price.cost.selection for run in runs if run.price is not None}

    b, B, dims, steps = 16, 80, 32, 4
    found = costs("halves.flops = _flops_of_halves")
    assert found["x"] - found["alone"] == 4 * B * (b // 2) * dims * steps
    found = costs("unused = _flops_of_halves")
    assert found["x"] == found["alone"]
    with pytest.raises(UserError, match=r"selection.rule: flops of .*own.py:halves failed: TypeError: "):
        costs("halves.flops = print")
    with pytest.raises(UserError, match=r"are -1.0: expected"):
        costs("halves.flops = lambda **_: -1")


def test_a_criterion_of_the_reference_alone_needs_no_scoring_pass(tmp_path):
    source = "def near(reference):\n    return -reference\n"
    criteria = {"own": "own.py:near", "easy": "easy_reference"}
    runs = planned(
        spec(tmp_path, source, **{name: selecting(criterion=c) for name, c in criteria.items()})
    ).runs
    own, easy = (run.price for run in runs[1:])
    assert own is not None and easy is not None and own.cost == easy.cost


def test_code_that_changed_after_the_plan_stops_the_run(tmp_path):
    run = planned(spec(tmp_path, x=ONE_OF_EACH["criterion"])).runs[-1]
    config = TrainConfig.model_validate(run.config)
    check_unchanged(config)
    (tmp_path / "own.py").write_text(OWN.read_text() + "\nMORE = 1\n")
    with pytest.raises(
        UserError, match=r"selection.criterion: .*own.py:clipped has changed since .* launch again"
    ):
        check_unchanged(config)
    (tmp_path / "own.py").unlink()
    with pytest.raises(UserError, match=r"selection.criterion: .*has changed"):
        check_unchanged(config)


def test_criteria_are_checked_before_anything_is_trained(tmp_path):
    for body, message in (
        ("learner.mean()", "must keep the shape"),
        ("(learner - reference) / reference.mean()", "independently"),
        ("learner - referense", "the criterion fails: NameError"),
    ):
        source = f"def mine(learner, reference):\n    return {body}\n"
        config = planned(spec(tmp_path, source, joint=selecting(criterion="own.py:mine"))).runs[-1].config
        with pytest.raises(UserError, match=rf"selection.criterion: .*own.py:mine: .*{message}"):
            check_criteria(TrainConfig.model_validate(config))
    path = spec(tmp_path, joint=selecting(criterion="own.py:clipped"))
    check_criteria(TrainConfig.model_validate(planned(path).runs[-1].config))


def test_attempts_record_the_code_that_configs_name(tmp_path):
    run = planned(spec(tmp_path, x=ONE_OF_EACH["rule"])).runs[-1]
    found = sources_of(run.program, run.config, tmp_path)
    assert found is not None and [*found] == ["own.py"]


def test_a_finished_run_of_custom_code(root, tmp_path):
    """No format holds its tower; its code is in its identity, so that it isn't compared again."""
    path = spec(tmp_path, tower=ONE_OF_EACH["tower"])
    found, lab = planned(path), Lab.find(root)
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, found)
        for run in found.runs:
            sources = json.dumps({"own.py": "0" * 64})
            stores.attempt(store, run, sources=sources, scores={"shapes/zero_shot": 0.5})
            (root / run.directory / "checkpoints").mkdir(parents=True)
        assert changes_of(store, "own").lines("own") == []
    wanted = ("weights", "export", "own/tower", tmp_path / "w", "--format", "big_vision")
    refused = labs.here(*wanted, root=root)
    assert refused.returncode == 1 and "format" in refused.stderr
    (tmp_path / "own.py").write_text(OWN.read_text().replace("floor: float = 0.0", "floor: float = 1.0"))
    assert "2 runs: 1 done, 0 to resume, 1 to run" in labs.here("plan", path, root=root).stdout


@pytest.mark.full
def test_a_study_with_custom_code_is_launched(root, tmp_path):
    runs = {name: ONE_OF_EACH[name] for name in ("rule", "loss", "evaluation", "reader", "tower")}
    launched = labs.here("launch", spec(tmp_path, **runs), "--no-reports", root=root)
    assert launched.returncode == 0, launched.stdout + launched.stderr
