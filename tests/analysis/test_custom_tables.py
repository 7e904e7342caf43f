"""Custom tables: a pandas frame, in all formats, with provenance."""

import io
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from jestlab.analysis.custom import CustomCode
from jestlab.analysis.report import gather
from jestlab.analysis.tables import table
from jestlab.platform.cli import cli

BESIDES = {"goal": "min", "digits": 2, "name": "wasted"}


def per_label(results, top=None):
    ends = results.final.groupby("label", sort=False)
    frame = ends[["shapes/zero_shot", "score"]].mean()
    frame["steps"], frame["waste"] = ends["step"].max(), ends["score"].std()
    frame["when"] = "today"
    frame.attrs = {"caption": "Means.", "notes": ["one note"], "columns": {"waste": BESIDES}}
    return frame.head(top) if top else frame


def made(store, function, digest="0123456789ab", **options):
    def own(experiment, kind, name):
        assert (experiment, kind) == ("study", "table")
        return CustomCode(name, function, digest)

    return table(store.url, "mine.py:per_label", ["study"], options=options, own=own)


def test_a_frame_is_a_table_in_all_formats(study):
    import pandas as pd

    found = made(study, per_label)
    headings = [column.header for column in found.columns]
    assert headings == ["label", "zero-shot", "score", "steps", "wasted ↓", "when"]
    assert "| *reference*" in found.markdown() and "**65.0**" in found.markdown()  # it is not ranked
    assert "**0.00**" not in found.markdown().splitlines()[2]
    assert "Means." in found.markdown() and "one note" in found.markdown()
    raw = pd.read_csv(io.StringIO(found.csv()))
    assert list(raw["label"]) == ["reference", "uniform", "independent", "joint"]
    assert raw["shapes/zero_shot"].iloc[-1] == pytest.approx(0.65)
    assert json.loads(found.json())["rows"][0]["label"] == "reference"
    assert r"\caption{Means.}" in found.latex() and "one note." in found.latex()
    assert "<table" in found.html()
    assert len(made(study, per_label, top=2).frame) == 2


def test_cells_depend_on_the_runs_of_their_label(study):
    """Retracted results are struck through."""
    study.retract("joint", "wrong shards")
    found = made(study, per_label)
    assert found.experiments == ["study"] and found.parts is not None
    assert list(found.parts.query("row == 'joint'")["fingerprint"]) == ["joint-0", "joint-1"]
    assert found.column_named("waste").formula == "computed by mine.py:per_label, code 01234567"
    assert found.struck == {"joint": "wrong shards"}
    assert "joint is retracted: wrong shards" in found.markdown()


def test_rows_are_named_by_the_index_or_the_first_column(study):
    import pandas as pd

    for frame, shown in (
        (pd.DataFrame({"class": ["cat", "dog"], "n": [1234, 5]}), [["cat", "1,234"], ["dog", "5"]]),
        (pd.DataFrame({"n": [1.0, math.nan]}, index=["cat", "dog"]), [["cat", "1.000"], ["dog", "—"]]),
        (pd.DataFrame({"yes": [True, None]}, index=["a", "b"]), [["a", "True"], ["b", "—"]]),
        (pd.DataFrame({"row": ["a"], "x": [-2]}), [["a", "−2"]]),
        (pd.DataFrame({2020: [0.5]}, index=pd.Index([7], name="year")), [["7", "0.5000"]]),
        (pd.DataFrame({"on": [pd.Timestamp("2026-01-02")]}, index=["a"]), [["a", "2026-01-02 00:00:00"]]),
        (pd.DataFrame({"z": [1 + 2j], "third": [Fraction(1, 3)]}, index=["a"]), [["a", "(1+2j)", "0.3333"]]),
        (pd.DataFrame({"n": np.array([1.5], np.longdouble)}, index=["a"]), [["a", "1.500"]]),
        (
            pd.DataFrame({"n": pd.array([2**40], "Int64"), "m": [2**64 - 1]}),
            [["1099511627776", f"{2**64 - 1:,}"]],
        ),
    ):
        found = made(study, lambda results, frame=frame: frame)
        assert [[cell.text for cell in line.cells] for line in found.lines] == shown
        assert json.loads(found.json())["rows"] and found.csv()


def test_an_invalid_table_is_an_error_of_one_line(study):
    import pandas as pd

    def with_attrs(**attrs: Any) -> pd.DataFrame:
        frame = pd.DataFrame({"n": [1]}, index=["a"])
        frame.attrs.update(attrs)
        return frame

    for frame, message in (
        (None, "mine.py:per_label returned NoneType: expected a pandas DataFrame"),
        (pd.DataFrame({"n": []}), "the frame that mine.py:per_label returned has no rows"),
        (pd.DataFrame({"n": [1, 2]}, index=["a", "a"]), "has two rows called 'a'"),
        (pd.DataFrame({("a", "b"): [1]}), "has several levels: expected one"),
        (pd.DataFrame([[1, 2]], columns=["n", "n"], index=["a"]), "has two columns called 'n'"),
        (with_attrs(captoin="x"), "returned has attrs captoin: Extra inputs"),
        (with_attrs(columns={"m": {}}), "has no column 'm', which its attrs name"),
        (with_attrs(columns={"n": {"digit": 1}}), "has attrs columns.n.digit: "),
        (with_attrs(columns={"n": {"goal": "more"}}), "has attrs columns.n.goal: .*'max' or 'min'"),
        (with_attrs(columns=["n"]), "has attrs columns: Input should be a valid dict"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            made(study, lambda results, frame=frame: frame)
        assert "\n" not in str(caught.value)


def test_a_report_includes_the_table(new_store, stored_run):
    report = {"kind": "table", "name": "/x/mine.py:per_label", "options": {"top": 1}}
    store = new_store().add(stored_run("a", [0.1, 0.2]), stored_run("b", [0.3]), spec={"reports": [report]})
    found = gather(store.url, "study", own=lambda e, k, name: CustomCode(name, per_label, "d"))
    part = next(part for part in found.tables if part.name == "per_label")
    assert part.title.startswith("Per label")
    assert [line.key for line in part.table.lines] == ["a"]
    assert part.table.column_named("score").formula.startswith("computed by")  # so its cells open


def test_the_command_prints_the_table_of_a_file(study, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "def per_label(results, top=None):\n"
        "    return results.final.groupby('label')[['score']].mean().head(top)\n"
    )
    monkeypatch.chdir(tmp_path)

    def called(*words):
        return CliRunner().invoke(cli, ["table", *words, "--store", study.url])

    done = called("mine.py:per_label", "study", "--option", "top=1", "--format", "csv")
    assert done.output.splitlines()[1].startswith("independent,"), done.output
    assert "shows an experiment: name one of study" in str(called("mine.py:per_label").exception)
    assert "did you mean 'top'" in str(called("mine.py:per_label", "study", "--option", "tap=1").exception)
    assert "summary is built in" in str(called("summary", "study", "--option", "x=1").exception)
    told = called("mine.py:per_label", "study", "--explain", "joint", "score").output
    assert "study/joint/1" in told and "computed by" in told
