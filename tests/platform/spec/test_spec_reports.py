"""Options of reports in specs: figures, curves, and tables."""

from jestlab.analysis.figures import Sheet
from jestlab.platform.spec import StudySpec, table
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.options import custom_code_in

RUNS: dict[str, dict[str, str]] = {"uniform": {}, "joint": {}}


def study(*reports, **parts):
    return StudySpec.parse({"name": "s", "runs": RUNS, "reports": list(reports)} | parts)


def test_reports_have_figure_options():
    found = study({"curves": {"figure": {"width": "3.25in", "title": "none", "font_size": 7}}}, "pareto")
    assert found.reports[0].figure.sheet == Sheet(width=3.25, title="", font_size=7.0)
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
        "columns": ["scores", "delta"], "rows": "joint", "digits": {"scores": 2, "coco/i2t_r1": 1},
        "sort": "-score", "caption": "Mine.", "label": "tab:mine", "notes": False, "width": "3.25in",
    }  # fmt: skip
    once = study(table(**options))
    assert StudySpec.parse(once.to_dict()) == once
    shape = once.reports[0].shape
    assert {name: getattr(shape, name) for name in options} == options | {
        "columns": ("scores", "delta"), "rows": ("joint",),
    }  # fmt: skip
    assert study(table()).reports[0].shape == type(shape)()
    assert expand(study(table(name="comparison", rows=["SigLIP B", "joint"])))
