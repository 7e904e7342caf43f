"""Options of reports in specs: figures, curves, and tables."""

import pytest

from jestlab.analysis.figures import Sheet
from jestlab.platform.errors import SpecError
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


def test_parts_without_figure_options_have_those_of_their_union():
    parts = {"one": {"runs": {"a": {}}}, "two": {"runs": {"a": {}}, "figure": {"width": "4in"}}}
    union = StudySpec.parse({"name": "both", "figure": {"width": "3in"}, "studies": parts})
    widths = {name: part.figure and part.figure.width for name, part in union.studies.items()}
    assert widths == {"one": "3in", "two": "4in"}


def test_curves_of_metrics():
    found = study({"curves": {"metric": "loss", "over": "steps", "smooth": 5, "highlight": "uniform"}})
    assert found.reports[0].metric == ("loss",)
    assert found.reports[0].highlight == ("uniform",)
    assert StudySpec.parse(found.to_dict()) == found


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


ERRORS = [
    ({"curves": {"figure": {"width": 3.25}}}, "0.figure.width: must be a length with its unit"),
    ({"pareto": {"figure": {"legend": "left"}}}, "0.figure.legend: must be direct, inside"),
    ({"table": {"figure": {"width": "3in"}}}, "0.figure: unknown key"),
    ({"curves": {"metric": "loss", "smooth": "wide"}}, "0.smooth: must be a number of recorded"),
    ({"curves": {"scale": "log"}}, "0: scale applies to a metric"),
    ({"curves": {"metric": "loss", "scale": "exp"}}, "0.scale: 'exp' is not valid"),
    (table(colums=["score"]), "0.colums: unknown key: did you mean 'columns'?"),
    (table(rows=["jiont"]), "0.rows.0: no run 'jiont': did you mean 'joint'?"),
    (table(width="wide"), "0.width: "),
    (table(digits=-1), "0.digits"),
    (table(digits={"score": "two"}), "0.digits"),
    (table(notes="no"), "0.notes"),
]


def test_rejects_invalid_options_of_studies_and_reports(subtests):
    with pytest.raises(SpecError, match=r"^figure.height: must be a length with its unit"):
        study(figure={"height": "tall"})
    with pytest.raises(SpecError, match=r"^figure: must be a mapping"):
        study(figure="wide")
    for report, message in ERRORS:
        with subtests.test(message):
            with pytest.raises(SpecError) as error:
                expand(study(report))
            assert str(error.value).startswith(f"reports.{message}")
            assert "\n" not in str(error.value)
