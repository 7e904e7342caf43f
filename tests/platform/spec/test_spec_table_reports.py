"""Options of a table among the reports of a spec."""

from __future__ import annotations

import pytest

from jestlab.platform.errors import SpecError
from jestlab.platform.spec import Study, load, table
from jestlab.platform.spec.reports import TableReport


def report(**options):
    return Study.parse({"name": "s", "runs": {"uniform": {}, "joint": {}}, "reports": [table(**options)]})


def test_they_make_the_shape_of_the_table():
    made = report(
        columns=["scores", "delta"], rows="joint", digits={"scores": 2, "coco/i2t_r1": 1}, sort="-score",
        caption="Mine.", label="tab:mine", notes=False, width="3.25in",
    ).reports[0]  # fmt: skip
    shape = made.shape
    assert (shape.columns, shape.rows, shape.sort) == (("scores", "delta"), ("joint",), "-score")
    assert shape.digits == {"scores": 2, "coco/i2t_r1": 1}
    assert (shape.caption, shape.label, shape.notes, shape.width) == ("Mine.", "tab:mine", False, "3.25in")
    assert report().reports[0].shape == type(shape)()


def test_the_resolved_spec_says_the_same():
    once = report(columns=["score"], digits=1, rows=["joint"])
    assert Study.parse(once.to_dict()) == once


def test_runs_are_rows_as_specs_once_said():
    assert report(runs=["joint"]) == report(rows=["joint"])


def test_in_yaml(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "runs: {uniform: {}, joint: {label: JEST}}\n"
        "reports: [table: {rows: [JEST, uniform], columns: [score], digits: {score: 2}, width: column}]\n"
    )
    [found] = load(str(path)).reports
    assert isinstance(found, TableReport) and found.shape.digits == {"score": 2}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"colums": ["score"]}, "reports.0.colums: table has no such option: did you mean 'columns'?"),
        ({"rows": ["jiont"]}, "reports.0.rows.0: no run 'jiont': did you mean 'joint'?"),
        ({"width": "wide"}, "reports.0.width: "),
        ({"digits": -1}, "reports.0.digits"),
        ({"digits": {"score": "two"}}, "reports.0.digits"),
        ({"columns": []}, "reports.0.columns"),
        ({"notes": "no"}, "reports.0.notes"),
    ],
)
def test_what_is_not_valid_is_an_error_with_its_place(options, said):
    with pytest.raises(SpecError) as raised:
        report(**options).members  # noqa: B018
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)
    print(raised.value)


def test_rows_of_the_papers_tables_may_be_published():
    assert report(name="comparison", rows=["SigLIP B", "joint"]).members
