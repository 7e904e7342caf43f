from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.config import TrainConfig
from jestlab.platform.errors import SpecError, UserError
from jestlab.platform.spec import StudySpec, load
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.fields import fields_of
from jestlab.platform.spec.overrides import apply, parse

STUDY = StudySpec.parse(
    {
        "name": "s",
        "base": {"optimizer.beta2": 0.9},
        "runs": {
            "reference": {},
            "joint": {"selection": {"rule": "joint", "reference": "reference"}},
            "vit.b": {},
            "vit": {},
        },
        "axes": [{"runs": ["joint"], "grid": {"selection.filtering_ratio": [0.5, 0.8]}}],
        "question": "What?",
        "reports": ["curves", {"kind": "table", "baseline": "joint"}],
    }
)


def changed(*texts, study=STUDY):
    return apply(study, [parse(text) for text in texts])


def configs(study):
    return {member.variant.label: member.config for member in expand(study)}


def test_overrides_change_base_and_runs():
    study = changed(
        "base.optimizer.beta2=0.6",
        "base.optimizer.beta2=0.5",
        "runs.reference.optimizer.beta2=0.25",
        "base.schedule={batch_size: 32}",
    )
    beta2 = {label: config.optimizer.beta2 for label, config in configs(study).items()}
    assert (beta2["reference"], beta2["vit"]) == (0.25, 0.5)
    assert {config.schedule.batch_size for config in configs(study).values()} == {32}


def test_a_run_whose_name_has_dots_is_found():
    found = configs(changed("runs.vit.b.optimizer.beta2=0.1", "runs.vit.optimizer.beta2=0.2"))
    assert (found["vit.b"].optimizer.beta2, found["vit"].optimizer.beta2) == (0.1, 0.2)


@pytest.mark.parametrize("kind_first", [True, False])
def test_setting_a_kind_replaces_the_section_wherever_it_is_written(kind_first):
    study = changed("base.data.train.examples=7")
    texts = ["base.data.train.kind=folder", "base.data.train.path=/d"]
    study = changed(*(texts if kind_first else texts[::-1]), study=study)
    assert study.base["data"] == {"train": {"kind": "folder", "path": "/d"}}


def test_a_run_that_gets_another_program_starts_from_its_defaults():
    text = "runs.vit={program: weights, path: siglip.npz}"
    before = changed("runs.vit.optimizer.beta2=0.1")
    written = changed(text, study=before).to_dict()["runs"]["vit"]
    assert written == {"program": "weights", "path": "siglip.npz"}
    again = changed("runs.vit={program: weights, digest: abc}", study=changed(text)).to_dict()["runs"]["vit"]
    assert again == {"program": "weights", "path": "siglip.npz", "digest": "abc"}


def test_needs_programs_seeds_resources_axes_and_reports_can_be_set():
    study = changed(
        "runs.vit.needs=[reference]",
        "seeds=[4, 9]",
        "resources.parallel=7",
        "axes.0.grid.selection.filtering_ratio=[0.25]",
        "reports.1.baseline=vit",
        "question=Why?",
        "paper=null",
    )
    assert study.runs["vit"].needs == {"reference": "reference"}
    assert study.seeds == (4, 9)
    assert study.resources.parallel == 7
    assert [label for label in configs(study) if label.startswith("joint")] == ["joint filtering_ratio=0.25"]
    assert study.reports[1].baseline == "vit"
    assert study.question == "Why?"


def test_keys_with_dots_in_lists_and_mappings_are_set():
    metrics = {"clip-v1.5/acc": {"goal": "max"}}
    study = changed(
        "metrics.clip-v1.5/acc.digits=3", study=StudySpec.parse(STUDY.to_dict() | {"metrics": metrics})
    )
    assert (study.metrics["clip-v1.5/acc"].goal, study.metrics["clip-v1.5/acc"].digits) == ("max", 3)
    assert changed("runs.vit.needs={teacher: reference}", "runs.vit.needs.teacher=joint").runs[
        "vit"
    ].needs == {"teacher": "joint"}


def test_axes_can_be_dropped_or_replaced():
    assert "joint" in configs(changed("axes=[]"))
    study = changed("axes=[{runs: [vit], zip: {optimizer.beta1: [0.1, 0.2]}}]")
    assert {"joint", "vit beta1=0.1", "vit beta1=0.2"} <= set(configs(study))


ERRORS = """
runs.joint.selection.filtering_ratio=0.9
=> runs.joint.selection.filtering_ratio: has no effect because an axis sets it: use --set axes.0.grid.
runs.joint.selection.rul=joint
=> runs.joint.selection.rul: unknown key: did you mean 'rule'?
runs.jint.selection.rule=joint
=> runs.jint.selection.rule: no run 'jint': did you mean 'joint'?
runs=3
=> runs: incomplete: expected runs.<name>, with a run of reference, joint, vit.b, vit
bsae.optimizer.beta2=1
=> bsae.optimizer.beta2: unknown key 'bsae': did you mean 'base'?
base=3
=> base: must be a mapping, not 3
base.optimizer.beta2=2
=> base.optimizer.beta2: must be less than 1, not 2
runs.joint.needs.a=b
=> runs.joint.needs: no run 'b'
scale=paper
=> scale: cannot be set: use --scale
axes.1.grid.x=[1]
=> axes.1.grid.x: no axes.1: there are 1, counted from 0
question.x=3
=> question.x: no question.x: it has no parts
axes.0.grid.selection.chunk=[1]
=> axes.0.grid.selection.chunk: unknown key: did you mean 'chunks'?
axes.0=1
=> axes.0: must be a mapping
reports.0=1
=> reports.0: must be one of
reports.0.ovr=flops
=> reports.0.ovr: unknown key: did you mean 'over'?
base.optimizer.beta2
=> invalid override 'base.optimizer.beta2': expected path=value
base..x=3
=> invalid override
seeds=
=> seeds: has no value: write null for none, '' for an empty string
base.data.filter=similarity >
=> base.data.filter: filter 'similarity >': character 13, at the end: expected a key
base.data.filter=[a
=> base.data.filter: '[a': line 1: not valid YAML: 
"""


def test_rejects_invalid_overrides(check_errors, tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(STUDY.to_yaml())
    check_errors(ERRORS, lambda text: load(str(file), None, [text]), "--set ")


@given(st.lists(st.sampled_from(["#", " #", "# ", "a", "fix", " ", "12", "é"]), min_size=1).map("".join))
def test_a_value_is_never_a_comment(text):
    word = f"x{text}".strip()
    assert parse(f"base.i={word}") == (("base", "i"), word)
    assert parse(f"base.i=[1, {word}]")[1] == [1, word]
    assert parse(f"base.i={{{word}: {word}}}")[1] == {word: word}
    assert parse(f"base.i=#{text}")[1] == f"#{text}".strip()


LISTS = {
    "name": "s",
    "program": "command",
    "base": {"command": "true", "lst": [1, 2, [3, 4], {"a": 5}], "n": 3, "none": None},
    "runs": {"r": {}, "own": {"lst": [7, 8]}},
}


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        ("base.lst.0=9", [[9, 2, [3, 4], {"a": 5}], [7, 8]]),
        ("base.lst.2.1=[9]", [[1, 2, [3, [9]], {"a": 5}], [7, 8]]),
        ("base.lst.3.a=9", [[1, 2, [3, 4], {"a": 9}], [7, 8]]),
        ("base.lst.3={b: 9}", [[1, 2, [3, 4], {"a": 5, "b": 9}], [7, 8]]),
        ("runs.r.lst.1=9", [[1, 9, [3, 4], {"a": 5}], [7, 8]]),
        ("runs.own.lst.1=9", [[1, 2, [3, 4], {"a": 5}], [7, 9]]),
        ("axes=[{runs: [own], grid: {lst.1: [9]}}]", [[1, 2, [3, 4], {"a": 5}], [7, 9]]),
        ("studies.part.base.lst.0=9", [[9, 2, [3, 4], {"a": 5}], [7, 8]]),
    ],
)
def test_elements_of_lists_are_set(text, lists):
    study = StudySpec.parse(LISTS)
    if text.startswith("studies"):
        study = StudySpec.parse({"name": "both", "studies": {"part": LISTS | {"name": "part"}}})
        assert changed(text.removeprefix("studies.part."), study=study) == changed(text, study=study)
    study = changed(text, study=study)
    members: Any = expand(next(iter(study.studies.values()), study))
    found = {m.variant.name: m.config["lst"] for m in members}
    assert [found["r"], found["own"]] == lists


NO_PARTS = """
base.lst.4=9
=> base.lst.4: base.lst is [1, 2, [3, 4], {'a': 5}], without '4': set it as a whole
base={lst.7: 9}
=> base.lst.7: no such element: there are 4, counted from 0
runs.r.lst.4=9
=> runs.r.lst.4: runs.r.lst is [1, 2, [3, 4], {'a': 5}], without '4'
base.n.x.y=9
=> base.n.x.y: base.n is 3, without 'x'
axes=[{runs: [own], grid: {lst.2: [9]}}]
=> axes.0.grid.lst.2: no such element: there are 2, counted from 0
reports.²=x
=> reports: must be a list
base.sep=|
=> base.sep: '|': has a special meaning in YAML; put strings with special characters in quotes
base.sep=---
=> base.sep: '---': has a special meaning in YAML
base.sep=-
=> base.sep: '-': has a special meaning in YAML
base.sep=&amp
=> base.sep: '&amp': has a special meaning in YAML
"""


def test_what_has_no_parts_or_means_something_else_is_refused(check_errors, tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(StudySpec.parse(LISTS).to_yaml())
    check_errors(NO_PARTS, lambda text: load(str(file), None, [text]), "--set ")


@pytest.mark.parametrize("value", ["a\nb", "'a\nb'", '"a\n#b"', "[a,\nb\nc]", "|-\n a\n b"])
def test_a_line_break_does_not_become_a_space(value):
    with pytest.raises(SpecError, match="has a special meaning in YAML"):
        parse(f"base.sep={value}")


def test_an_error_in_the_file_is_not_blamed_on_an_override(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("runs:\n  a: {optimizer.beta2: 2}\n")
    with pytest.raises(UserError) as caught:
        load(str(file), None, ["seeds=3"])
    assert str(caught.value).startswith(f"{file}:2: runs.a.optimizer.beta2: ")


KEYS = sorted(
    ".".join(path)
    for path, field in fields_of(TrainConfig).walk()
    if not field.children and path != ("seed",) and field.schema.get("type") in ("integer", "number")
)


@given(st.dictionaries(st.sampled_from(KEYS), st.integers(), max_size=5), st.randoms(use_true_random=False))
def test_setting_one_by_one_in_any_order_is_writing_all_in_the_file(values, random):
    bare = StudySpec.parse({"name": "s", "runs": {"a": {}}})
    written = StudySpec.parse({"name": "s", "base": values, "runs": {"a": {}}})
    texts = [f"base.{key}={value}" for key, value in values.items()]
    random.shuffle(texts)
    assert changed(*texts, study=bare) == written
    assert changed(*texts, *texts, study=bare) == written
