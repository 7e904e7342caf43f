"""The `figure` of a spec and of its reports, and the options of curves."""

from __future__ import annotations

import pytest

from jestlab.analysis.figures import Sheet
from jestlab.platform.errors import SpecError
from jestlab.platform.spec.schema import Study


def study(*reports, **more):
    return Study.parse({"name": "mine", "runs": {"uniform": {}}, "reports": list(reports)} | more)


def test_reports_say_how_their_figures_are_printed():
    found = study({"curves": {"figure": {"width": "3.25in", "title": "none", "font_size": 7}}}, "pareto")
    assert found.reports[0].figure.sheet == Sheet(width=3.25, title="", font_size=7.0)
    assert found.reports[1].figure is None
    written = found.to_dict()["reports"][0]
    assert written["figure"] == {"width": "3.25in", "title": "none", "font_size": 7.0}
    assert Study.parse(found.to_dict()) == found


def test_a_study_says_it_once_for_all():
    found = study("curves", figure={"width": "8cm", "caption": "none"})
    assert found.figure.sheet == Sheet(width=8 / 2.54, caption="")
    assert found.to_dict()["figure"] == {"width": "8cm", "caption": "none"}
    assert "figure" not in study("curves").to_dict()


def test_a_union_s_is_that_of_its_studies_which_have_none():
    parts = {"one": {"runs": {"a": {}}}, "two": {"runs": {"a": {}}, "figure": {"width": "4in"}}}
    union = Study.parse({"name": "both", "figure": {"width": "3in"}, "studies": parts})
    found = {name: part.figure for name, part in union.studies.items()}
    assert {name: figure and figure.width for name, figure in found.items()} == {"one": "3in", "two": "4in"}


@pytest.mark.parametrize(
    ("reports", "more", "said"),
    [
        ([{"curves": {"figure": {"width": 3.25}}}], {}, "0.figure.width: must be a length with its unit"),
        ([{"pareto": {"figure": {"widht": "3in"}}}], {}, "widht: unknown key: did you mean 'width'"),
        ([{"pareto": {"figure": {"legend": "left"}}}], {}, "reports.0.figure.legend: must be direct, inside"),
        ([{"table": {"figure": {"width": "3in"}}}], {}, "table has no such option"),
        ([], {"figure": {"height": "tall"}}, "figure.height: must be a length with its unit"),
        ([], {"figure": "wide"}, "figure: must be a mapping"),
        ([{"curves": {"metric": "loss", "smooth": "wide"}}], {}, "0.smooth: must be a number of recorded"),
        ([{"curves": {"scale": "log"}}], {}, "scale is of a metric"),
        ([{"curves": {"metric": "loss", "scale": "exp"}}], {}, "reports.0.scale: 'exp' is not valid"),
    ],
)  # fmt: skip
def test_errors_name_the_place_and_the_remedy(reports, more, said):
    with pytest.raises(SpecError) as error:
        study(*reports, **more)
    assert said in str(error.value)


def test_curves_of_metrics():
    found = study({"curves": {"metrics": "loss", "effort": "steps", "smooth": 5, "highlight": "uniform"}})
    assert found.reports[0].metrics == ("loss",)
    assert found.reports[0].highlight == ("uniform",)
    assert Study.parse(found.to_dict()) == found
