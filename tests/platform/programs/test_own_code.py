"""Code of the user, as programs and in configs: found without importing it, identified, and checked."""

import json
import shutil
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
import yaml

from jestlab.models import extensions
from jestlab.models.config import TrainConfig
from jestlab.models.extensions import kinds, references
from jestlab.models.training.phases import PhaseClock
from jestlab.platform import programs
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
SOURCE = OWN.read_text()
EXPLODES = "raise RuntimeError('imported')\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source)


def study(folder: Path, **parts: Any) -> Path:
    write(folder, {"study.yaml": yaml.safe_dump({"name": "own", **parts}, sort_keys=False)})
    return folder / "study.yaml"


def spec(folder: Path, source: str = SOURCE, /, **runs: Any) -> Path:
    """Write a study next to the code that it names."""
    write(folder, {"own.py": source})
    return study(folder, base=plans.TINY, runs={"reference": {"initialization": 1}, **runs})


def planned(path: Path, *overrides: str) -> Plan:
    return plan(load(str(path), overrides=overrides))


def fingerprint(path: Path, *overrides: str) -> str:
    return planned(path, *overrides).runs[-1].fingerprint


# ---- programs


def program(folder: Path, name: str) -> Path:
    return study(folder, program=name, base={"a": 1}, runs={"r": {}})


def test_a_module_is_read_and_not_imported(tmp_path, monkeypatch):
    fit = "def fit(config, context): ...\n" + EXPLODES
    modules = (
        "research_a/__init__",
        "research_a/training",
        "outer_b/inner/training",
    )  # b without __init__.py
    write(tmp_path, {f"{module}.py": fit for module in modules})
    monkeypatch.chdir(tmp_path)
    assert programs.get("research_a.training:fit").name == "research_a.training:fit"
    programs.get("outer_b.inner.training:fit")
    for name, message in (
        ("research_a.training:fitt", r"no 'fitt' in .*training.py: did you mean 'fit'\?"),
        ("research_a.trainin:fit", "no module 'research_a.trainin' for 'research_a.trainin:fit'"),
        ("outer_b.inner.training:fat", "no 'fat' in"),
    ):
        with pytest.raises(UserError, match=message):
            programs.get(name)
    assert not {name for name in sys.modules if name.startswith(("research_a", "outer_b"))}


@pytest.mark.parametrize(
    ("source", "defines"),
    [
        ("class fit:\n    def __call__(self): ...", True),
        ("fit: object = print", True),
        ("from somewhere import fit", True),
        ("from somewhere import other as fit", True),
        ("from somewhere import *", True),
        ("try:\n    import torch\nexcept ImportError:\n    def fit(): ...", True),
        ("a, (b, *fit) = 1, (2, 3)", True),
        ("def __getattr__(name): ...", True),
        ("globals()['fit'] = print", True),
        ("", False),
        ("def other():\n    fit = 1", False),
        ("class A:\n    def fit(self): ...", False),
        ("fit", False),
    ],
)
def test_a_file_must_define_the_name(tmp_path, source, defines):
    write(tmp_path, {"own.py": source + "\n"})
    if defines:
        references.check(f"{tmp_path}/own.py:fit")
    else:
        with pytest.raises(ValueError, match="no 'fit' in"):
            references.check(f"{tmp_path}/own.py:fit")


def test_the_name_of_a_file_is_part_of_the_identity_but_not_its_folder_and_content(tmp_path):
    files = {"a/own.py": "", "b/own.py": "MORE = 2\n", "a/other.py": ""}
    write(tmp_path, {file: f"{source}def fit(): ...\n" for file, source in files.items()})
    one, moved, other = (fingerprint(program(tmp_path, f"{file}:fit")) for file in files)
    assert one == moved != other


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("gone.py:fit", "", r"study.yaml:2: program: .*/gone.py: no such file"),
        ("own.py:fti", "def fit(): ...", r"study.yaml:2: program: no 'fti' in .*: did you mean 'fit'"),
        ("own.py:fit", "def fit(:", r"study.yaml:2: program: .*own.py:1: invalid syntax"),
        ("own.py", "", r"no program '.*own.py': .*path/to/file.py:callable"),
    ],
)
def test_a_wrong_program_is_an_error_of_the_spec(tmp_path, name, source, message):
    write(tmp_path, {"own.py": source})
    with pytest.raises(UserError, match=message):
        planned(program(tmp_path, name))


def test_a_file_runs_with_its_neighbors_importable(tmp_path, monkeypatch):
    own = """
from __future__ import annotations
from dataclasses import dataclass
from neighbor_c import FACTOR

@dataclass
class Result:
    value: float

class Programs:
    @staticmethod
    def fit(config, context):
        context.reported(Result(FACTOR * config["a"]).value)
"""
    write(tmp_path, {"code/neighbor_c.py": "FACTOR = 3.0\n", "code/own_c.py": own})
    monkeypatch.setattr(sys, "path", [*sys.path])
    context: Any = SimpleNamespace(clock=PhaseClock(), reported=mock.Mock())
    [run] = planned(program(tmp_path, "code/own_c.py:Programs.fit")).runs
    with mock.patch.dict(sys.modules):
        programs.execute(run.program, run.config, context)
    context.reported.assert_called_once_with(3.0)


# ---- code in configs


def selecting(**selection: Any) -> dict[str, Any]:
    return {"selection": {"rule": "joint", "chunks": 4, "reference": "reference"} | selection}


ONE_OF_EACH: dict[str, dict[str, Any]] = {
    "criterion": selecting(criterion="own.py:clipped", criterion_options={"floor": 0.5}),
    "rule": selecting(rule="own.py:halves"),
    "loss": {"loss": "own.py:decoupled", **selecting()},
    "evaluation": {"evaluation.extra": {"squares": "own.py:colours"}},
    "reader": {"data.train": {"kind": "reader", "function": "own.py:squares", "options": {"count": 64}}},
    "tower": {"model.vision": {"architecture": "own.py:Layer", "options": {"hidden": 32}}},
}


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_code_is_part_of_the_identity(tmp_path, kind):
    first, changed = (
        planned(spec(tmp_path / str(number), source, x=ONE_OF_EACH[kind])).runs[-1]
        for number, source in enumerate((SOURCE, SOURCE + "\nMORE = 1\n"))
    )
    assert first.fingerprint != changed.fingerprint
    shutil.rmtree(tmp_path)  # as on a machine that an archive is imported on
    assert identity.is_authentic(first.fingerprint, first.program, first.config, first.needs)


def test_options_are_part_of_the_identity_and_axes_go_over_them(tmp_path):
    path = spec(tmp_path, x=ONE_OF_EACH["criterion"])
    same, other = (f"runs.x.selection.criterion_options.floor={floor}" for floor in (0.5, 0.6))
    assert fingerprint(path) == fingerprint(path, same) != fingerprint(path, other)
    axes = "axes=[{runs: [x], grid: {selection.criterion_options.floor: [1, 2]}}]"
    assert [run.label for run in planned(path, axes).runs[1:]] == ["x floor=1", "x floor=2"]
    uniform = {"selection": {"criterion": "own.py:clipped"}}  # without effect
    assert fingerprint(spec(tmp_path, x=uniform)) == fingerprint(spec(tmp_path, x={}))


def test_files_count_from_the_folder_of_the_spec(tmp_path, monkeypatch):
    path = spec(tmp_path / "lab", **ONE_OF_EACH)
    monkeypatch.chdir(tmp_path)
    named = {name for run in planned(Path("lab/study.yaml")).runs for name in run.config["code"]}
    assert {name.rpartition(":")[0] for name in named} == {str(tmp_path / "lab" / "own.py")}
    write(tmp_path, {"again.yaml": load("lab/study.yaml").to_yaml()})
    assert planned(tmp_path / "again.yaml").fingerprints == planned(path).fingerprints


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
        (selecting(gain=1e39), "selection.gain: .*less than or equal to 34028"),
        ({"evaluation.extra.a": {"function": "colors"}}, "'colors' is not valid: custom code: "),
        ({"data.train": {"kind": "reader", "function": "own.py:squares", "path": "gone.txt"}},
         "data.train.path: .*gone.txt: no such file or folder"),
        ({"model.vision.architecture": "own.py:OWN"}, "model.vision.architecture: .* declares no FLOPs"),
    ],
)  # fmt: skip
def test_wrong_code_is_an_error_of_the_plan(tmp_path, run, message):
    with pytest.raises(UserError, match=message):
        planned(spec(tmp_path, SOURCE + "OWN = print\n", x=run))


def test_an_installed_package_offers_code_by_name(tmp_path, monkeypatch):
    path = spec(tmp_path / "study", x=selecting(rule="halves", criterion="clipped"))
    with pytest.raises(UserError, match="'halves' is not valid"):
        planned(path)
    points = (
        "[jestlab.rules]\nhalves = pack_d.selection:halves\n"
        "[jestlab.criteria]\nclipped = pack_d.selection:clipped\n"
    )
    about = {"METADATA": "Metadata-Version: 2.1\nName: pack-d\nVersion: 1.0\n", "entry_points.txt": points}
    write(tmp_path / "pack_d", {"__init__.py": "", "selection.py": SOURCE})
    write(tmp_path / "pack_d-1.0.dist-info", about)
    monkeypatch.syspath_prepend(tmp_path)
    kinds.installed.cache_clear()
    try:
        by_name = planned(path).runs[-1]
        assert by_name.config["selection"]["rule"] == "halves"
        assert by_name.config["code"]["halves"]["digest"] == extensions.digest("pack_d.selection:halves")
        with pytest.raises(UserError, match="'halfs' is not valid: did you mean 'halves'"):
            planned(path, "runs.x.selection.rule=halfs")
        by_path = selecting(rule="own.py:halves", criterion="own.py:clipped")
        assert by_name.fingerprint == fingerprint(spec(tmp_path / "b", x=by_path))  # the same code, elsewhere
    finally:
        kinds.installed.cache_clear()


def costs(folder: Path, source: str, **runs: Any) -> dict[str, Any]:
    found = planned(spec(folder, source, **runs)).runs
    return {run.name: run.price.cost for run in found if run.price is not None}


def test_selection_is_priced_by_the_flops_of_the_rule(tmp_path):
    def extra(flops: str) -> float:
        source = SOURCE.replace("halves.flops = _flops_of_halves", flops)
        found = costs(tmp_path, source, x=ONE_OF_EACH["rule"], alone=selecting(rule="independent"))
        return float(found["x"].selection - found["alone"].selection)

    b, B, dims, steps = 16, 80, 32, 4
    assert extra("halves.flops = _flops_of_halves") == 4 * B * (b // 2) * dims * steps
    assert extra("unused = _flops_of_halves") == 0
    with pytest.raises(UserError, match=r"selection.rule: flops of .*own.py:halves failed: TypeError: "):
        extra("halves.flops = print")
    with pytest.raises(UserError, match=r"are -1.0: expected"):
        extra("halves.flops = lambda **_: -1")


def test_a_criterion_of_the_reference_alone_needs_no_scoring_pass(tmp_path):
    criteria = {"own": "own.py:near", "easy": "easy_reference"}
    runs = {name: selecting(criterion=criterion) for name, criterion in criteria.items()}
    found = costs(tmp_path, "def near(reference):\n    return -reference\n", **runs)
    assert found["own"] == found["easy"]


def test_code_that_changed_after_the_plan_stops_the_run(tmp_path):
    run = planned(spec(tmp_path, x=ONE_OF_EACH["criterion"])).runs[-1]
    config = TrainConfig.model_validate(run.config)
    check_unchanged(config)
    for change in (
        lambda: write(tmp_path, {"own.py": SOURCE + "\nMORE = 1\n"}),
        (tmp_path / "own.py").unlink,
    ):
        change()
        with pytest.raises(UserError, match=r"selection.criterion: .*own.py:clipped has changed since"):
            check_unchanged(config)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("learner.mean()", "must keep the shape"),
        ("(learner - reference) / reference.mean()", "independently"),
        ("learner - referense", "the criterion fails: NameError"),
        ("learner - reference", None),
    ],
)
def test_criteria_are_checked_before_anything_is_trained(tmp_path, body, message):
    source = f"def mine(learner, reference):\n    return {body}\n"
    run = planned(spec(tmp_path, source, joint=selecting(criterion="own.py:mine"))).runs[-1]
    config = TrainConfig.model_validate(run.config)
    if message is None:
        check_criteria(config)
    else:
        with pytest.raises(UserError, match=rf"selection.criterion: .*own.py:mine: .*{message}"):
            check_criteria(config)


def test_a_finished_run_of_custom_code(root, tmp_path):
    """No format holds its tower; its code is in its identity, so that it isn't compared again."""
    path = spec(tmp_path, tower=ONE_OF_EACH["tower"])
    found, lab = planned(path), Lab.find(root)
    assert [*(sources_of(found.runs[-1].program, found.runs[-1].config) or ())] == ["own.py"]
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
    write(tmp_path, {"own.py": SOURCE.replace("floor: float = 0.0", "floor: float = 1.0")})
    assert "2 runs: 1 done, 0 to resume, 1 to run" in labs.here("plan", path, root=root).stdout


@pytest.mark.full
def test_a_study_with_custom_code_is_launched(root, tmp_path):
    runs = {name: ONE_OF_EACH[name] for name in ("rule", "loss", "evaluation", "reader", "tower")}
    launched = labs.here("launch", spec(tmp_path, **runs), "--no-reports", root=root)
    assert launched.returncode == 0, launched.stdout + launched.stderr
