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


@pytest.fixture
def spec(tmp_path):
    """Return a function that writes a study with these claims."""

    def write(claims):
        file = tmp_path / "study.yaml"
        file.write_text(RUNS + AXES + claims)
        return str(file)

    return write


def test_a_printed_study_has_the_same_claims(spec, tmp_path):
    assert "claims" not in load(spec("")).to_dict()
    first = load(spec(YAML))
    file = tmp_path / "again.yaml"
    file.write_text(first.to_yaml())
    assert load(str(file)) == first
    assert first.to_dict()["claims"][1] == {
        "statement": "As good as its reference", "of": "joint", "near": "reference", "within": 0.02,
        "measure": "shapes/zero_shot", "unless": "the reference is small",
    }  # fmt: skip


def test_a_claim_can_be_set_by_an_override(spec):
    assert load(spec(YAML), overrides=["claims.1.within=0.05"]).claims[1].within == 0.05
    with pytest.raises(UserError, match=r"--set claims.3.within: no claims.3: there are 3, counted from 0"):
        load(spec(YAML), overrides=["claims.3.within=0.05"])


ERRORS = """
{statement: A, of: joint filtering_ratio=0.9, above: uniform}
=> 4: claims.0.of: no run 'joint filtering_ratio=0.9': did you mean 'joint filtering_ratio=0.8'?
{statement: A, of: joint, below: [uniform, unifrm]}
=> 4: claims.0.below.1: no run 'unifrm': did you mean 'uniform'?
{statement: A, of: {of: joint, minus: unifrm}, above: uniform}
=> 4: claims.0.of.minus: no run 'unifrm': did you mean 'uniform'?
{statement: A, of: joint}
=> 4: claims.0: must have exactly one of above, below, better_than, near, not none
{statement: A, of: joint, abov: uniform}
=> 4: claims.0.abov: unknown key: did you mean 'above'?
{statement: A, of: joint, above: uniform}
- {statement: A, of: joint, below: uniform}
=> 5: claims.1.statement: duplicate statement: give each statement once
"""


def test_errors_name_the_line_and_the_fix(spec, check_errors):
    check_errors(ERRORS, lambda claim: load(spec(f"claims:\n- {claim}\n")))


def test_python_and_yaml_give_the_same_claims(spec):
    written = claim(
        "Joint selection learns more, the more it filters",
        of={"of": "joint filtering_ratio=0.8", "minus": "joint filtering_ratio=0.5"},
        above={"of": ("uniform", "joint"), "minus": "uniform"},
        source="Figure 3",
    )
    in_yaml = load(spec(YAML)).claims
    [in_python] = StudySpec.parse({"name": "s", "runs": {"uniform": {}}, "claims": [written]}).claims
    assert in_python == in_yaml[0]
    assert [each.comparison for each in in_yaml] == ["above", "near", "above"]
    assert in_yaml[1].other == Side(("reference",))
    assert (in_yaml[1].within, in_yaml[1].unless) == (0.02, "the reference is small")
