"""Claims in specs, written in Python and in YAML."""

import pytest

from jestlab.analysis.claims import Side
from jestlab.platform.errors import UserError
from jestlab.platform.spec import StudySpec, claim, load

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


def loaded(tmp_path, *overrides):
    (tmp_path / "study.yaml").write_text(RUNS + AXES + YAML)
    return load(str(tmp_path / "study.yaml"), overrides=overrides)


def test_a_printed_study_has_the_same_claims(tmp_path):
    first = loaded(tmp_path)
    (tmp_path / "again.yaml").write_text(first.to_yaml())
    assert load(str(tmp_path / "again.yaml")).claims == first.claims
    assert first.to_dict()["claims"][1] == {
        "statement": "As good as its reference", "of": "joint", "near": "reference", "within": 0.02,
        "measure": "shapes/zero_shot", "unless": "the reference is small",
    }  # fmt: skip


def test_a_claim_can_be_set_by_an_override(tmp_path):
    assert loaded(tmp_path, "claims.1.within=0.05").claims[1].within == 0.05
    with pytest.raises(UserError, match=r"--set claims.3.within: no claims.3: there are 3, counted from 0"):
        loaded(tmp_path, "claims.3.within=0.05")


def test_python_and_yaml_give_the_same_claims(tmp_path):
    written = claim(
        "Joint selection learns more, the more it filters",
        of={"of": "joint filtering_ratio=0.8", "minus": "joint filtering_ratio=0.5"},
        above={"of": ("uniform", "joint"), "minus": "uniform"},
        source="Figure 3",
    )
    in_yaml = loaded(tmp_path).claims
    [in_python] = StudySpec.parse({"name": "s", "runs": {"uniform": {}}, "claims": [written]}).claims
    assert in_python == in_yaml[0]
    assert [each.comparison for each in in_yaml] == ["above", "near", "above"]
    assert in_yaml[1].other == Side(("reference",))
    assert (in_yaml[1].within, in_yaml[1].unless) == (0.02, "the reference is small")
