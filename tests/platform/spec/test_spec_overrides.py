from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.config import TrainConfig
from jestlab.platform.errors import SpecError
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
        "metrics": {"clip-v1.5/acc": {"goal": "max"}},
    }
)


def changed(*texts, study=STUDY):
    return apply(study, [parse(text) for text in texts])


def configs(study):
    return {member.variant.label: member.config for member in expand(study)}


def test_overrides_change_base_and_runs():
    found = configs(
        changed(
            "base.optimizer.beta2=0.6",
            "base.optimizer.beta2=0.5",
            "base.schedule={batch_size: 32}",
            "runs.vit.b.optimizer.beta2=0.1",
            "runs.vit.optimizer.beta2=0.2",
        )
    )
    beta2 = {label: config.optimizer.beta2 for label, config in found.items()}
    assert (beta2["reference"], beta2["vit.b"], beta2["vit"]) == (0.5, 0.1, 0.2)
    assert {config.schedule.batch_size for config in found.values()} == {32}


@pytest.mark.parametrize("step", [1, -1])
def test_setting_a_kind_replaces_the_section_wherever_it_is_written(step):
    texts = ["base.data.train.kind=folder", "base.data.train.path=/d"][::step]
    study = changed(*texts, study=changed("base.data.train.examples=7"))
    assert study.base["data"] == {"train": {"kind": "folder", "path": "/d"}}


def test_a_run_that_gets_another_program_starts_from_its_defaults():
    text = "runs.vit={program: weights, path: siglip.npz}"
    study = changed(text, study=changed("runs.vit.optimizer.beta2=0.1"))
    assert study.to_dict()["runs"]["vit"] == {"program": "weights", "path": "siglip.npz"}
    again = changed("runs.vit={program: weights, digest: abc}", study=study).to_dict()["runs"]["vit"]
    assert again == {"program": "weights", "path": "siglip.npz", "digest": "abc"}


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("runs.vit.needs=[reference]", lambda s: s.runs["vit"].needs, {"reference": "reference"}),
        ("runs.vit.needs.teacher=joint", lambda s: s.runs["vit"].needs, {"teacher": "joint"}),
        ("seeds=[4, 9]", lambda s: s.seeds, (4, 9)),
        ("resources.parallel=7", lambda s: s.resources.parallel, 7),
        ("reports.1.baseline=vit", lambda s: s.reports[1].baseline, "vit"),
        ("question=Why?", lambda s: s.question, "Why?"),
        ("paper=null", lambda s: s.paper, None),
        ("metrics.clip-v1.5/acc.digits=3", lambda s: s.to_dict()["metrics"],
         {"clip-v1.5/acc": {"goal": "max", "digits": 3}}),
        ("axes.0.grid.selection.filtering_ratio=[0]", lambda s: [*configs(s)][1], "joint filtering_ratio=0"),
        ("axes=[]", lambda s: [*configs(s)][1], "joint"),
        ("axes=[{runs: vit, zip: {optimizer.beta1: [0.1, 0.2]}}]", lambda s: [*configs(s)][3:],
         ["vit beta1=0.1", "vit beta1=0.2"]),
    ],
)  # fmt: skip
def test_whatever_a_spec_has_can_be_set(text, value, expected):
    assert value(changed(text)) == expected


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


ERRORS = """
runs.joint.selection.filtering_ratio=0.9
=> runs.joint.selection.filtering_ratio: has no effect because an axis sets it: use --set axes.0.grid.
runs.joint.selection.rul=joint => runs.joint.selection.rul: unknown key: did you mean 'rule'?
runs.jint.selection.rule=joint => runs.jint.selection.rule: no run 'jint': did you mean 'joint'?
runs=3 => runs: incomplete: expected runs.<name>, with a run of reference, joint, vit.b, vit
bsae.optimizer.beta2=1 => bsae.optimizer.beta2: unknown key 'bsae': did you mean 'base'?
base=3 => base: must be a mapping, not 3
base.optimizer.beta2=2 => base.optimizer.beta2: must be less than 1, not 2
runs.joint.needs.a=b => runs.joint.needs: no run 'b'
scale=paper => scale: cannot be set: use --scale
axes.1.grid.x=[1] => axes.1.grid.x: no axes.1: there are 1, counted from 0
question.x=3 => question.x: no question.x: it has no parts
axes.0.grid.selection.chunk=[1] => axes.0.grid.selection.chunk: unknown key: did you mean 'chunks'?
axes.0=1 => axes.0: must be a mapping
reports.0=1 => reports.0: must be one of
reports.0.ovr=flops => reports.0.ovr: unknown key: did you mean 'over'?
base.optimizer.beta2 => invalid override 'base.optimizer.beta2': expected path=value
base..x=3 => invalid override
seeds= => seeds: has no value: write null for none, '' for an empty string
base.data.filter=similarity > => base.data.filter: filter 'similarity >': character 13, at the end: expected
base.data.filter=[a => base.data.filter: '[a': line 1: not valid YAML
"""
NO_PARTS = """
base.lst.4=9 => base.lst.4: base.lst is [1, 2, [3, 4], {'a': 5}], without '4': set it as a whole
base={lst.7: 9} => base.lst.7: no such element: there are 4, counted from 0
runs.r.lst.4=9 => runs.r.lst.4: runs.r.lst is [1, 2, [3, 4], {'a': 5}], without '4'
base.n.x.y=9 => base.n.x.y: base.n is 3, without 'x'
axes=[{runs: [own], grid: {lst.2: [9]}}] => axes.0.grid.lst.2: no such element: there are 2, counted from 0
reports.²=x => reports: must be a list
base.sep=| => base.sep: '|': has a special meaning in YAML; put strings with special characters in quotes
base.sep=--- => base.sep: '---': has a special meaning in YAML
base.sep=- => base.sep: '-': has a special meaning in YAML
base.sep=&amp => base.sep: '&amp': has a special meaning in YAML
"""


@pytest.mark.parametrize(("study", "errors"), [(STUDY, ERRORS), (StudySpec.parse(LISTS), NO_PARTS)])
def test_rejects_invalid_overrides(check_errors, tmp_path, study, errors):
    file = tmp_path / "s.yaml"
    file.write_text(study.to_yaml())
    check_errors(errors, lambda text: load(str(file), None, [text]), "--set ")


@pytest.mark.parametrize("value", ["a\nb", "'a\nb'", '"a\n#b"', "[a,\nb\nc]", "|-\n a\n b"])
def test_a_line_break_does_not_become_a_space(value):
    with pytest.raises(SpecError, match="has a special meaning in YAML"):
        parse(f"base.sep={value}")


@given(st.lists(st.sampled_from(["#", " #", "# ", "a", "fix", " ", "12", "é"]), min_size=1).map("".join))
def test_a_value_is_never_a_comment(text):
    word = f"x{text}".strip()
    assert parse(f"base.i={word}") == (("base", "i"), word)
    assert parse(f"base.i=[1, {word}]")[1] == [1, word]
    assert parse(f"base.i={{{word}: {word}}}")[1] == {word: word}
    assert parse(f"base.i=#{text}")[1] == f"#{text}".strip()


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
