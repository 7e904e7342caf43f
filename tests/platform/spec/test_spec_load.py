import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.registry import study_names
from jestlab.platform.spec import StudySpec, load
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.variants import Replicate

PYTHON = """
    from jestlab.platform.spec import at_scale, cases, curves, grid, learnability, pareto, study, table, zip_

    SCALES = ("smoke", "mini")

    def get_config(scale="smoke"):
        s = study(question="Who wins?", paper="Figure 3")
        examples_seen = at_scale(scale, smoke=640, mini=6_400)
        s.base = {"schedule.examples_seen": examples_seen, "model": {"vision.width": 32}}
        s.runs.reference = {"data.filter": "similarity > 0.25"}
        s.runs.uniform = {"selection.rule": "uniform"}
        s.runs.joint = {"selection": {"rule": "joint", "reference": "reference"}}
        s.runs["joint-hard"] = {"selection.rule": "joint", "selection.criterion": "hard_learner"}
        s.axes = {
            ("joint", "joint-hard"): grid({"selection.filtering_ratio": (0.5, 0.8)}),
            ("uniform",): [zip_({"optimizer.beta1": (0.9, 0.8), "optimizer.beta2": (0.95, 0.99)})],
            "reference": cases({"optimizer.clip_norm": 2.0}),
        }
        s.seeds = 2
        s.resources = {"threads": 3}
        s.reports = [table(baseline="uniform"), curves(over="flops"), pareto(), learnability(run="joint")]
        return s
"""
YAML = """
    question: Who wins?
    paper: Figure 3
    scale: smoke
    base:
      schedule: {examples_seen: 640}
      model.vision.width: 32
    runs:
      reference: {data.filter: similarity > 0.25}
      uniform: {selection.rule: uniform}
      joint: {selection: {rule: joint, reference: reference}}
      joint-hard: {selection.rule: joint, selection.criterion: hard_learner}
    axes:
      joint, joint-hard: {grid: {selection.filtering_ratio: [0.5, 0.8]}}
      uniform: {zip: {optimizer: {beta1: [0.9, 0.8], beta2: [0.95, 0.99]}}}
      reference: {cases: [{optimizer.clip_norm: 2.0}]}
    seeds: 2
    resources: {threads: 3}
    reports:
    - {kind: table, baseline: uniform}
    - {kind: curves, over: flops}
    - pareto
    - learnability: {run: joint}
"""


def write(folder, name, text):
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return str(file)


def config_of(member: Replicate) -> Any:
    return member.config


def fingerprints(study):
    return {(run.label, run.seed): run.fingerprint for run in plan(study).runs}


def test_python_and_yaml_give_the_same_study(tmp_path):
    in_python, in_yaml = load(write(tmp_path, "who.py", PYTHON)), load(write(tmp_path, "who.yaml", YAML))
    assert in_python == in_yaml
    assert fingerprints(in_python) == fingerprints(in_yaml)
    assert in_python.name == "who"
    assert list(in_python.runs) == ["reference", "uniform", "joint", "joint-hard"]


def test_a_study_is_loaded_at_the_scale_asked_for(tmp_path):
    file = write(tmp_path, "who.py", PYTHON)
    mini = load(file, "mini")
    assert mini.scale == "mini"
    assert config_of(expand(mini)[0]).schedule.examples_seen == 6_400
    assert load(file) == load(file, "smoke")
    with pytest.raises(UserError, match=r"has no scale 'mni': did you mean 'mini'\? \(valid: smoke, mini\)"):
        load(file, "mni")
    yaml = write(tmp_path, "who.yaml", YAML)
    assert load(yaml, "smoke") == load(yaml)
    with pytest.raises(UserError, match=r"has no scale 'mini': its scale is smoke"):
        load(yaml, "mini")
    without = write(tmp_path, "whom.yaml", "runs: {a: {}}")
    with pytest.raises(UserError, match="'mini': it names none, and only specs in Python have several"):
        load(without, "mini")


NAMES = st.sampled_from(["a", "joint", "b.2", "c++"])
VALUES = {
    "optimizer.beta2": 0.5,
    "model.vision.width": 128,
    "schedule.examples_seen": 128,
    "data.filter": "noise != ': # y' and similarity > 1e-3",
}
CONFIGS = st.sets(st.sampled_from(sorted(VALUES))).map(lambda keys: {key: VALUES[key] for key in keys})
AXES = st.sampled_from(
    [
        {"grid": {"optimizer.beta1": [0.1, 1e-07, 0.3]}},
        {"zip": {"optimizer.beta1": [0.1, 0.2], "data": {"filter": ["aesthetic > 1", None]}}},
        {"cases": [{"evaluation.points": 1}, {"evaluation": {"points": 2, "shots": 3}}]},
    ]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def studies(draw):
    runs = draw(st.dictionaries(NAMES, CONFIGS, min_size=1, max_size=3))
    first = next(iter(runs))
    for name in list(runs)[1:]:
        runs[name] |= draw(
            st.sampled_from(
                [{}, {"needs": [first]}, {"needs": {"teacher": first}}, {"match": {"flops": first}}]
            )
        )
    runs |= draw(st.sampled_from([{}, {"matched": {"match": {"flops": first}}}]))
    return {
        "name": draw(NAMES),
        "question": draw(TEXTS),
        "paper": draw(st.none() | TEXTS),
        "base": draw(CONFIGS),
        "runs": runs,
        "axes": [{"runs": list(runs), **axis} for axis in draw(st.lists(AXES, max_size=1))],
        "seeds": draw(st.integers(1, 3) | st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)),
        "reports": draw(st.sampled_from([[], ["curves", {"kind": "table", "baseline": first}]])),
    }


@given(studies())
def test_studies_survive_yaml_and_json(tmp_path_factory, written):
    study = StudySpec.parse(written)
    file = tmp_path_factory.getbasetemp() / "study.yaml"
    file.write_text(study.to_yaml(), encoding="utf-8")
    again = load(str(file))
    assert again == study
    assert fingerprints(again) == fingerprints(study)
    assert StudySpec.parse(json.loads(json.dumps(study.to_dict()))) == study
    assert StudySpec.model_validate_json(study.model_dump_json()) == study


def test_relative_folders_count_from_the_yaml_file(tmp_path):
    file = write(
        tmp_path,
        "s.yaml",
        """
        runs:
          a: {data.train: {kind: folder, path: web}}
          b: {data: {train: {kind: folder, path: ../web}}}
          c: {data.benchmark: {kind: folder, path: /abs}}
        axes:
        - {runs: [b], grid: {data.train.path: [one, /two]}}
        """,
    )
    data = [config_of(member).data for member in expand(load(file))]
    assert [each.train.path for each in data[:3]] == [f"{tmp_path}/web", f"{tmp_path}/one", "/two"]
    assert data[3].benchmark.path == "/abs"
    study = load(file, None, ["runs.a.data.train.path=other"])
    assert config_of(expand(study)[0]).data.train.path == f"{tmp_path}/other"


def test_relative_paths_count_from_the_spec_in_python_and_in_overrides_too(tmp_path, monkeypatch):
    """A command runs in its spec's folder, unless `cwd` says otherwise: its words may name files."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "own.py").write_text("def train(config, context): ...")
    runs = {
        "data": {"program": "train", "data.train": {"kind": "folder", "path": "web"}},
        "function": {"program": "own.py:train"},
        "script": {"command": ["true"]},
        "below": {"command": ["true"], "cwd": "code"},
        "launcher": {"command": ["true"], "cwd": None},
    }
    written = {"name": "own", "program": "command", "runs": runs}
    python = f"SCALES = ('smoke',)\ndef get_config(scale):\n    return {written!r}\n"
    write(tmp_path / "specs", "s.py", python)
    write(tmp_path / "specs", "s.yaml", json.dumps(written))
    monkeypatch.chdir(tmp_path)
    specs = tmp_path / "specs"
    for file in ("specs/s.py", "specs/s.yaml"):
        found: dict[str, Any] = {member.variant.name: member.variant for member in expand(load(file))}
        assert found["data"].config.data.train.path == str(specs / "web")
        assert found["function"].program.name == f"{specs / 'own.py'}:train"
        assert found["script"].config["cwd"] == str(specs)
        assert found["below"].config["cwd"] == str(specs / "code")
        assert found["launcher"].config["cwd"] is None
        given = ["runs.below.cwd=other", "runs.script.program=own.py:train", "runs.data.data.train.path=web2"]
        found = {member.variant.name: member.variant for member in expand(load(file, None, given))}
        assert found["below"].config["cwd"] == str(specs / "other")
        assert found["script"].program.name == f"{specs / 'own.py'}:train"
        assert found["data"].config.data.train.path == str(specs / "web2")


NOT_SPECS = [
    ("x = 1", 'a Python spec has SCALES = ("smoke",) and get_config(scale)'),
    ("SCALES = ('a',)\ndef get_config(scale):\n    return undefined", ":3: NameError: name 'undefined'"),
    ("SCALES = ('a',)\ndef get_config(scale)\n", ":2: SyntaxError: expected ':'"),
    ("import no_such_module", ":1: ModuleNotFoundError: No module named 'no_such_module'"),
    ("SCALES = ('a',)\ndef get_config(scale): return {'runs': {'a': {'x': {1}}}}", "must be plain data"),
]


def test_rejects_python_files_that_are_not_specs_in_one_line(tmp_path, subtests):
    for text, message in NOT_SPECS:
        with subtests.test(text):
            with pytest.raises(UserError) as caught:
                load(write(tmp_path, "spec.py", text))
            assert "spec.py:" in str(caught.value)
            assert message in str(caught.value)
            assert "\n" not in str(caught.value)


def test_rejects_missing_files_and_other_types(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("missing.yaml", "./missing", "spec.yml/"):
        with pytest.raises(UserError, match=f"{name}: no such file"):
            load(name)
    with pytest.raises(UserError, match=r"no study 'quikstart': did you mean 'quickstart'\?"):
        load("quikstart")
    assert "base" not in study_names()
    with pytest.raises(UserError, match=r"not a spec: expected a \.py, \.yaml or \.yml file"):
        load(write(tmp_path, "spec.json", "{}"))
    binary = tmp_path / "spec.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"not valid UTF-8"):
        load(str(binary))


RUNS = {"program": "command", "base": {"command": ["true"]}, "runs": {"a": {}}}


def reserved(folder: Path, file: str = "own.yaml", **parts) -> str:
    path: str = write(folder, file, json.dumps(RUNS | parts if "studies" not in parts else parts))
    return path


@pytest.mark.parametrize(("name", "what"), [("summary", "a table"), ("pareto", "a kind of report")])
def test_names_of_tables_and_reports_are_reserved(tmp_path, name, what):
    message = rf"name: '{name}' is the name of {what}.*: choose another one, such as my_{name}$"
    with pytest.raises(UserError, match=message):
        load(reserved(tmp_path, f"{name}.yaml"))
    with pytest.raises(UserError, match=rf"^--set {message}"):
        load(reserved(tmp_path), None, [f"name={name}"])
    assert load(reserved(tmp_path, name=f"my_{name}")).name == f"my_{name}"


def test_registered_studies_may_have_reserved_names_also_as_parts(tmp_path):
    assert load("comparison").name == "comparison"
    assert load("comparison", None, ["seeds=1"]).name == "comparison"
    assert "comparison" in load("paper").studies
    union = load(reserved(tmp_path, name="mine", studies=["comparison"]))
    assert "comparison" in union.studies
    with pytest.raises(UserError, match=r"studies\.summary: 'summary' is the name of a table"):
        load(reserved(tmp_path, name="mine", studies={"summary": RUNS}))
    with pytest.raises(UserError, match="'pareto' is the name of a kind"):
        load("quickstart", None, ["name=pareto"])
