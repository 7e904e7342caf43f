"""Claims in specs: the same words in Python and YAML; errors name the place and the remedy."""

from __future__ import annotations

import textwrap

import pytest

from jestlab.analysis.claims import Side
from jestlab.platform.errors import UserError
from jestlab.platform.spec import Study, claim, grid, load, study

RUNS = "runs: {reference: {}, uniform: {}, joint: {selection: {rule: joint, reference: reference}}}\n"
AXES = "axes: [{runs: [joint], grid: {selection.filtering_ratio: [0.5, 0.8]}}]\n"
YAML = """
claims:
- statement: "Joint selection learns more, the more it filters"
  of: {of: joint filtering_ratio=0.8, minus: joint filtering_ratio=0.5}
  above: {of: [uniform, joint], minus: uniform}
  source: Figure 3
- {statement: As good as its reference, of: joint, near: reference, within: 0.02, measure: shapes/zero_shot,
   unless: the reference is small}
- {statement: Better by images, of: {of: joint, measure: shapes/i2t_r1}, 
   above: {of: joint, measure: shapes/t2i_r1}}
"""


@pytest.fixture
def spec(tmp_path):
    """Writes a study of uniform and of joint at two points, with these claims."""

    def write(claims):
        file = tmp_path / "study.yaml"
        file.write_text(RUNS + AXES + textwrap.dedent(claims))
        return str(file)

    return write


def test_python_and_yaml_give_the_same_study(spec):
    written = study(question="", name="study")
    written.runs.reference = {}
    written.runs.uniform = {}
    written.runs.joint = {"selection.rule": "joint", "selection.reference": "reference"}
    written.axes = {("joint",): grid({"selection.filtering_ratio": (0.5, 0.8)})}
    written.claims = [
        claim(
            "Joint selection learns more, the more it filters",
            of={"of": "joint filtering_ratio=0.8", "minus": "joint filtering_ratio=0.5"},
            above={"of": ("uniform", "joint"), "minus": "uniform"},
            source="Figure 3",
        ),
        claim(
            "As good as its reference",
            of="joint",
            near="reference",
            within=0.02,
            measure="shapes/zero_shot",
            unless="the reference is small",
        ),
        claim(
            "Better by images",
            of={"of": "joint", "measure": "shapes/i2t_r1"},
            above={"of": "joint", "measure": "shapes/t2i_r1"},
        ),
    ]
    ours, theirs = Study.parse(written), load(spec(YAML))
    assert ours.claims == theirs.claims
    assert [each.comparison for each in theirs.claims] == ["above", "near", "above"]
    assert theirs.claims[1].other == Side(("reference",))


def test_a_printed_study_with_claims_is_the_same_study(spec, tmp_path):
    first = load(spec(YAML))
    file = tmp_path / "again.yaml"
    file.write_text(first.to_yaml())
    assert load(str(file)) == first
    assert first.to_dict()["claims"][1] == {
        "statement": "As good as its reference", "of": "joint", "near": "reference", "within": 0.02,
        "measure": "shapes/zero_shot", "unless": "the reference is small",
    }  # fmt: skip


def test_claims_do_not_change_fingerprints(spec):
    from jestlab.platform.planning.plan import plan

    assert plan(load(spec(YAML))).fingerprints == plan(load(spec(""))).fingerprints


def test_a_claim_can_be_set_by_an_override(spec):
    assert load(spec(YAML), overrides=["claims.1.within=0.05"]).claims[1].within == 0.05
    with pytest.raises(UserError, match=r"--set claims.3.within: no claims.3: there are 3, counted from 0"):
        load(spec(YAML), overrides=["claims.3.within=0.05"])


CASES = {
    "an unknown label": (
        "{statement: A, of: joint filtering_ratio=0.9, above: uniform}",
        ":4: claims.0.of: no run 'joint filtering_ratio=0.9': did you mean 'joint filtering_ratio=0.8'?",
    ),
    "an unknown run in a list": (
        "{statement: A, of: joint, below: [uniform, unifrm]}",
        ":4: claims.0.below.1: no run 'unifrm': did you mean 'uniform'?",
    ),
    "an unknown run in a difference": (
        "{statement: A, of: {of: joint, minus: unifrm}, above: uniform}",
        ":4: claims.0.of.minus: no run 'unifrm': did you mean 'uniform'?",
    ),
    "no comparison": (
        "{statement: A, of: joint}",
        ":4: claims.0: must have exactly one of above, below, better_than, near, not none",
    ),
    "two comparisons": (
        "{statement: A, of: joint, above: uniform, near: uniform, within: 1}",
        ":4: claims.0: must have exactly one of above, below, better_than, near, not above and near",
    ),
    "no distance": (
        "{statement: A, of: joint, above: uniform, within: 0}",
        ":4: claims.0.within: must be a number above 0, not 0",
    ),
    "near without within": (
        "{statement: A, of: joint, near: uniform}",
        ":4: claims.0.within: is missing: near is how near?",
    ),
    "a within that is no distance": (
        "{statement: A, of: joint, near: uniform, within: 0}",
        ":4: claims.0.within: must be a number above 0, not 0",
    ),
    "true for a within": (
        "{statement: A, of: joint, near: uniform, within: true}",
        ":4: claims.0.within: must be a number above 0, not true",
    ),
    "an unknown key": (
        "{statement: A, of: joint, abov: uniform}",
        ":4: claims.0.abov: unknown key: did you mean 'above'?",
    ),
    "an unknown key of a difference": (
        "{statement: A, of: {of: joint, mins: uniform}, above: uniform}",
        ":4: claims.0.of.mins: unknown key: did you mean 'minus'?",
    ),
    "half a difference": (
        "{statement: A, of: {of: joint}, above: uniform}",
        ":4: claims.0.of: has nothing but `of`: write the name alone, or add minus or measure",
    ),
    "a difference from nothing": (
        "{statement: A, of: {minus: joint}, above: uniform}",
        ":4: claims.0.of.of: is missing: a side is {of: …, minus: …} or {of: …, measure: …}",
    ),
    "a number for the measure of a side": (
        "{statement: A, of: {of: joint, measure: 3}, above: uniform}",
        ":4: claims.0.of.measure: must be a string, not 3",
    ),
    "a run against itself by the same measure": (
        "{statement: A, of: {of: joint, measure: m}, above: {of: joint, measure: m}}",
        ":4: claims.0.above: is what the claim is of: name another run, or another measure",
    ),
    "no statement": ("{of: joint, above: uniform}", ":4: claims.0.statement: is missing"),
    "an empty statement": (
        "{statement: '', of: joint, above: uniform}",
        ":4: claims.0.statement: must be a string, not ''",
    ),
    "nothing that it is of": ("{statement: A, above: uniform}", ":4: claims.0.of: is missing"),
    "a number for a run": (
        "{statement: A, of: 3, above: uniform}",
        ":4: claims.0.of: must name a run, by label or name, or list several, not 3",
    ),
    "an empty list": (
        "{statement: A, of: [], above: uniform}",
        ":4: claims.0.of: must name a run, by label or name, or list several, not []",
    ),
    "a run twice": (
        "{statement: A, of: [joint, joint], above: uniform}",
        ":4: claims.0.of.1: duplicate run 'joint': give each run once",
    ),
    "a run against itself": (
        "{statement: A, of: joint, above: joint}",
        ":4: claims.0.above: is what the claim is of: name another run",
    ),
    "a number for a source": (
        "{statement: A, of: joint, above: uniform, source: 3}",
        ":4: claims.0.source: must be a string, not 3",
    ),
    "a text for a claim": ("joint wins", ":4: claims.0: must be a mapping of statement, of, above,"),
    "a statement twice": (
        "{statement: A, of: joint, above: uniform}\n- {statement: A, of: joint, below: uniform}",
        ":5: claims.1.statement: duplicate statement: give each statement once",
    ),
}


@pytest.mark.parametrize(("claims", "message"), CASES.values(), ids=CASES.keys())
def test_one_line_names_place_and_remedy(spec, claims, message):
    file = spec(f"claims:\n- {claims}\n")
    with pytest.raises(UserError) as caught:
        load(file)
    line = str(caught.value)
    assert line.startswith(f"{file}:")
    assert message in line
    assert "\n" not in line


def test_claims_must_be_a_list(spec):
    with pytest.raises(UserError, match=r":3: claims: must be a list of claims, not 'A'"):
        load(spec("claims: A\n"))


def test_a_study_without_claims_is_written_without_them():
    assert "claims" not in Study.parse({"name": "s", "runs": {"a": {}}}).to_dict()
