import json
import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import StudySpec, load
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.variants import Replicate
from jestlab.platform.study_registry import study_names

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
    file, yaml = write(tmp_path, "who.py", PYTHON), write(tmp_path, "who.yaml", YAML)
    without = write(tmp_path, "whom.yaml", "runs: {a: {}}")
    mini = load(file, "mini")
    assert mini.scale == "mini"
    assert config_of(expand(mini)[0]).schedule.examples_seen == 6_400
    assert load(file) == load(file, "smoke")
    assert load(yaml, "smoke") == load(yaml)
    for path, scale, message in (
        (file, "mni", r"has no scale 'mni': did you mean 'mini'\? \(valid: smoke, mini\)"),
        (yaml, "mini", "has no scale 'mini': its scale is smoke"),
        (without, "mini", "'mini': it names none, and only specs in Python have several"),
    ):
        with pytest.raises(UserError, match=message):
            load(path, scale)


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


FOLDER = {"kind": "folder", "path": "web"}


@pytest.mark.parametrize("file", ["specs/s.py", "specs/s.yaml"])
def test_relative_paths_count_from_the_spec_also_on_axes_and_in_overrides(tmp_path, monkeypatch, file):
    """A command runs in its spec's folder, unless `cwd` says otherwise: its words may name files."""
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "own.py").write_text("def train(config, context): ...")
    runs = {
        "data": {"program": "train", "data.train": FOLDER},
        "axis": {"program": "train", "data": {"train": FOLDER, "benchmark": FOLDER | {"path": "/abs"}}},
        "function": {"program": "own.py:train"},
        "script": {"command": ["true"]},
        "below": {"command": ["true"], "cwd": "code"},
        "launcher": {"command": ["true"], "cwd": None},
    }
    axes = {"axis": {"grid": {"data.train.path": ["one"]}}}
    written = {"name": "own", "program": "command", "runs": runs, "axes": axes}
    text = f"SCALES = ('smoke',)\ndef get_config(scale):\n    return {written!r}\n"
    (tmp_path / file).write_text(json.dumps(written) if file.endswith("yaml") else text)
    monkeypatch.chdir(tmp_path)

    def found(overrides=()) -> dict[str, Any]:
        return {member.variant.name: member.variant for member in expand(load(file, None, overrides))}

    assert found()["data"].config.data.train.path == str(specs / "web")
    assert found()["axis"].config.data.train.path == str(specs / "one")
    assert found()["axis"].config.data.benchmark.path == "/abs"
    assert found()["function"].program.name == f"{specs / 'own.py'}:train"
    commands = {name: found()[name].config["cwd"] for name in ("script", "below", "launcher")}
    assert commands == {"script": str(specs), "below": str(specs / "code"), "launcher": None}
    changed = found(
        ["runs.below.cwd=other", "runs.script.program=own.py:train", "runs.data.data.train.path=web2"]
    )
    assert changed["below"].config["cwd"] == str(specs / "other")
    assert changed["script"].program.name == f"{specs / 'own.py'}:train"
    assert changed["data"].config.data.train.path == str(specs / "web2")


NOT_SPECS = [
    ("spec.py", "x = 1", 'a Python spec has SCALES = ("smoke",) and get_config(scale)'),
    ("spec.py", "SCALES = ('a',)\ndef get_config(scale):\n    return x", ":3: NameError: name 'x'"),
    ("spec.py", "SCALES = ('a',)\ndef get_config(scale)\n", ":2: SyntaxError: expected ':'"),
    ("spec.py", "import no_such_module", ":1: ModuleNotFoundError: No module named 'no_such_module'"),
    ("spec.py", "SCALES = ('a',)\ndef get_config(scale): return {'runs': {'a': {'x': {1}}}}", "plain data"),
    ("spec.json", "{}", "not a spec: expected a .py, .yaml or .yml file"),
    ("spec.yaml", "\udcff", "not valid UTF-8"),
    ("missing.yaml", None, "no such file"),
    ("missing", None, "no such file"),
    ("spec.yml/", None, "no such file"),
]


@pytest.mark.parametrize(("name", "text", "message"), NOT_SPECS)
def test_rejects_what_is_no_spec_in_one_line(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text, errors="surrogateescape")
    with pytest.raises(UserError) as caught:
        load(f"{tmp_path}/{name}")
    assert f"{tmp_path}/{name}:" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rejects_names_of_no_study():
    with pytest.raises(UserError, match=r"no study 'quikstart': did you mean 'quickstart'\?"):
        load("quikstart")
    assert "base" not in study_names()


NAMES_TAKEN = [
    ({"name": "summary"}, None, "name: 'summary' is the name of a table"),
    ({"name": "pareto"}, None, "name: 'pareto' is the name of a kind of report"),
    ({}, "name=pareto", "--set name: 'pareto' is the name of a kind of report.*, such as my_pareto$"),
    (
        {"studies": {"summary": {"runs": {"a": {}}}}},
        None,
        r"studies\.summary: 'summary' is the name of a table",
    ),
]


@pytest.mark.parametrize(("written", "override", "message"), NAMES_TAKEN)
def test_names_of_tables_and_reports_are_reserved(tmp_path, written, override, message):
    text = json.dumps(({} if "studies" in written else {"runs": {"a": {}}}) | written)
    with pytest.raises(UserError, match=message):
        load(write(tmp_path, "own.yaml", text), None, [override] if override else [])


def test_registered_studies_may_have_reserved_names_also_as_parts(tmp_path):
    assert load("comparison", None, ["seeds=1"]).name == "comparison"
    assert "comparison" in load("paper").studies
    assert "comparison" in load(write(tmp_path, "mine.yaml", "studies: [comparison]")).studies
