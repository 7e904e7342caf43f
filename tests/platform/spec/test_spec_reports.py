"""Reports and claims in specs."""

from jestlab.analysis.claims import Side
from jestlab.analysis.figures import Sheet
from jestlab.analysis.shape import Shape
from jestlab.platform.spec import StudySpec, claim, load, table
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.options import custom_code_in

RUNS: dict[str, dict[str, str]] = {"uniform": {}, "joint": {}}


def study(*reports, **parts):
    return StudySpec.parse({"name": "s", "runs": RUNS, "reports": list(reports)} | parts)


def test_reports_have_figure_options():
    found = study({"curves": {"figure": {"width": "3.25in", "title": "none", "font_size": 7}}}, "pareto")
    assert found.reports[0].figure == Sheet(width="3.25in", title="", font_size=7.0)
    assert found.reports[1].figure is None
    written = found.to_dict()["reports"][0]
    assert written["figure"] == {"width": "3.25in", "title": "none", "font_size": 7.0}
    assert StudySpec.parse(found.to_dict()) == found


def test_custom_code_of_stored_specs():
    own = {"kind": "table", "name": "own.py:rows", "options": {"top": 3}}
    reports = [{"kind": "table", "name": "summary"}, {"kind": "curves"}, {"kind": "own.py:draw"}, own]
    named = [("figure", "own.py:draw", {}), ("table", "own.py:rows", {"top": 3})]
    assert list(custom_code_in({"reports": reports})) == named


def test_curves_of_metrics():
    [curves] = study({"curves": {"metric": "loss", "over": "steps", "smooth": 5, "highlight": "a"}}).reports
    assert (curves.metric, curves.highlight) == (("loss",), ("a",))


def test_table_options():
    options = {
        "columns": ["scores", "delta"], "rows": "joint", "digits": 2,
        "sort": "-score", "caption": "Mine.", "label": "tab:mine", "notes": False, "width": "text",
    }  # fmt: skip
    once = study(table(**options))
    assert StudySpec.parse(once.to_dict()) == once
    [shape] = once.reports
    assert {name: getattr(shape, name) for name in options} == options | {
        "columns": ("scores", "delta"), "rows": ("joint",),
    }  # fmt: skip
    assert Shape(**dict(study(table()).reports[0])) == Shape()
    assert expand(study(table(name="comparison", rows=["SigLIP B", "joint"])))


CLAIMS = """
runs: {reference: {}, uniform: {}, joint: {}}
claims:
- statement: "Joint selection learns more"
  of: {of: joint, minus: reference}
  above: {of: [uniform, joint], minus: uniform}
  source: Figure 3
- {statement: As good as its reference, of: joint, near: reference, within: 0.02, measure: shapes/zero_shot,
   unless: the reference is small}
- {statement: Better by images, of: {of: joint, measure: shapes/i2t_r1}, above: {of: joint, measure: x/y}}
"""


def test_claims_in_yaml_in_python_and_printed_are_the_same(tmp_path):
    (tmp_path / "study.yaml").write_text(CLAIMS)
    loaded = load(str(tmp_path / "study.yaml"))
    first, second, third = loaded.claims
    written = claim(
        "Joint selection learns more",
        of={"of": "joint", "minus": "reference"},
        above={"of": ("uniform", "joint"), "minus": "uniform"},
        source="Figure 3",
    )
    assert study(claims=[written]).claims == (first,)
    assert study(claims=study(claims=[first, second, third]).to_dict()["claims"]).claims == (
        first,
        second,
        third,
    )
    assert (second.comparison, second.other, third.comparison) == ("near", Side(of="reference"), "above")
    assert loaded.to_dict()["claims"][1] == {
        "statement": "As good as its reference", "of": "joint", "near": "reference", "within": 0.02,
        "measure": "shapes/zero_shot", "unless": "the reference is small",
    }  # fmt: skip


def test_a_claim_can_be_set_by_an_override(tmp_path):
    (tmp_path / "study.yaml").write_text(CLAIMS)
    assert load(str(tmp_path / "study.yaml"), overrides=["claims.1.within=0.05"]).claims[1].within == 0.05
