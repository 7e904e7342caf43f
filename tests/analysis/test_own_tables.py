"""Tables of one's own: a pandas frame, or a `Table`, in all formats, with provenance."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from jestlab.analysis.own import OwnCode
from jestlab.analysis.report import build
from jestlab.analysis.tables import summary as built_in
from jestlab.analysis.tables import table
from jestlab.analysis.tables.core import Table
from jestlab.analysis.tables.summary import finals
from jestlab.platform.cli import cli

BESIDES = {"goal": "min", "digits": 2, "name": "wasted"}


def per_label(results, top=None):
    ends = results.final.groupby("label", sort=False)
    frame = ends[["shapes/zero_shot", "score"]].mean()
    frame["steps"], frame["waste"] = ends["step"].max(), ends["score"].std()
    frame["when"] = "today"
    frame.attrs = {"caption": "Means.", "notes": "one note", "columns": {"waste": BESIDES}}
    return frame.head(top) if top else frame


def made(store, function, digest="0123456789ab", **options):
    def own(experiment, kind, name):
        assert (experiment, kind) == ("study", "table")
        return OwnCode(name, function, digest)

    return table(store.url, "mine.py:per_label", ["study"], options=options, own=own)


def test_a_frame_is_a_table_in_all_formats(study):
    found = made(study, per_label)
    lines = found.markdown().splitlines()
    headings = [heading.strip() for heading in lines[0].strip("|").split("|")]
    assert headings == ["label", "zero-shot", "score", "steps", "wasted ↓", "when"]
    assert "| *reference*" in found.markdown() and "**65.0**" in found.markdown(), (
        "a reference does not compete"
    )
    assert "**0.00**" not in found.markdown().splitlines()[2]
    assert "Means." in found.markdown() and "one note" in found.markdown()
    raw = pd.read_csv(__import__("io").StringIO(found.csv()))
    assert list(raw["label"]) == ["reference", "uniform", "independent", "joint"]
    assert raw["shapes/zero_shot"].iloc[-1] == pytest.approx(0.65)
    assert json.loads(found.json())["rows"][0]["label"] == "reference"
    assert (
        r"\caption{Means.}" in found.latex()
        and "one note." in found.latex()
        and r"$\downarrow$" in found.latex()
    )
    assert "<table" in found.html()
    assert len(made(study, per_label, top=2).frame) == 2


def test_cells_rest_on_the_runs_of_their_label(study):
    found = made(study, per_label)
    assert found.experiments == ["study"] and found.parts is not None
    assert list(found.parts.query("row == 'joint'")["fingerprint"]) == ["joint-0", "joint-1"]
    assert found.column_named("waste").formula == "computed by mine.py:per_label, code 01234567"


def test_retracted_results_are_struck_through(study):
    import sqlite3

    with sqlite3.connect(study.path) as connection:
        connection.execute(
            "INSERT INTO v_retractions (experiment, run, label, seed, fingerprint, reason) "
            "VALUES ('study', 'joint', 'joint', 0, 'joint-0', 'wrong shards')"
        )
    connection.close()
    found = made(study, per_label)
    assert found.struck == {"joint": "wrong shards"}
    assert "joint is retracted: wrong shards" in found.markdown()


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        (pd.DataFrame({"class": ["cat", "dog"], "n": [1234, 5]}), [["cat", "1,234"], ["dog", "5"]]),
        (pd.DataFrame({"n": [1.0, math.nan]}, index=["cat", "dog"]), [["cat", "1.000"], ["dog", "—"]]),
        (pd.DataFrame({"yes": [True, None]}, index=["a", "b"]), [["a", "True"], ["b", "—"]]),
        (pd.DataFrame({"row": ["a"], "x": [-2]}), [["a", "−2"]]),
        (pd.DataFrame({2020: [0.5]}, index=pd.Index([7], name="year")), [["7", "0.5000"]]),
        (pd.DataFrame({"on": [pd.Timestamp("2026-01-02")]}, index=["a"]), [["a", "2026-01-02 00:00:00"]]),
    ],
)
def test_rows_are_named_by_the_index_or_the_first_column(study, frame, shown):
    found = made(study, lambda results: frame)
    assert [[cell.text for cell in line.cells] for line in found.lines] == shown
    for format in ("md", "latex", "csv", "html", "json"):
        assert found.render(format)


def with_attrs(**attrs: Any) -> pd.DataFrame:
    frame = pd.DataFrame({"n": [1]}, index=["a"])
    frame.attrs.update(attrs)
    return frame


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (None, "mine.py:per_label returned NoneType: expected a pandas DataFrame, or a Table"),
        (pd.DataFrame({"n": []}), "the frame that mine.py:per_label returned has no rows"),
        (pd.DataFrame({"n": [1, 2]}, index=["a", "a"]), "has two rows called 'a'"),
        (pd.DataFrame({("a", "b"): [1]}), "has several levels: expected one"),
        (pd.DataFrame([[1, 2]], columns=["n", "n"], index=["a"]), "has several columns of one name"),
        (with_attrs(captoin="x"), "has attrs\\['captoin'\\]: did you mean 'caption'"),
        (with_attrs(columns={"m": {}}), "has no column 'm', which its attrs name"),
        (
            with_attrs(columns={"n": {"digit": 1}}),
            "says of column 'n', digit: unknown key: did you mean 'digits'",
        ),
        (with_attrs(columns={"n": {"goal": "more"}}), "says of column 'n', goal: must be max or min"),
        (with_attrs(columns={"n": {"digits": 1.5}}), "says of column 'n', digits: must be a whole number"),
        (with_attrs(columns=["n"]), "attrs\\['columns'\\] of list: expected a mapping"),
    ],
)
def test_what_is_no_table_is_told_in_one_line(study, frame, message):
    with pytest.raises(ValueError, match=message) as caught:
        made(study, lambda results: frame)
    assert "\n" not in str(caught.value)


def test_a_table_is_taken_as_it_is(study):
    found = made(study, lambda results: built_in(finals(results.frames, results.baseline)))
    assert isinstance(found, Table) and found.name == "study per_label" and "Δ uniform" in found.markdown()


def test_the_page_shows_it_and_its_cells_open(new_store, stored_run, tmp_path):
    report = {"kind": "table", "name": "/x/mine.py:per_label", "options": {"top": 1}}
    store = new_store().add(stored_run("a", [0.1, 0.2]), stored_run("b", [0.3]), spec={"reports": [report]})
    page, *beside = build(
        store.url, "study", tmp_path / "page", own=lambda e, k, name: OwnCode(name, per_label, "d")
    )
    assert {"per_label.tex", "per_label.csv", "per_label.provenance.json"} <= {path.name for path in beside}
    html = page.read_text()
    assert "Per label" in html and re.search(r'data-row="a"[^>]*data-column="score"', html)


def test_the_verb_prints_what_a_file_defines(study, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "def per_label(results, top=None):\n"
        "    return results.final.groupby('label')[['score']].mean().head(top)\n"
    )
    monkeypatch.chdir(tmp_path)

    def called(*words):
        return CliRunner().invoke(cli, ["table", *words, "--store", study.url])

    done = called("mine.py:per_label", "study", "--option", "top=1", "--format", "csv")
    assert done.output.splitlines()[1].startswith("independent,"), done.output
    assert "shows one experiment: name one of study" in str(called("mine.py:per_label").exception)
    assert "did you mean 'top'" in str(called("mine.py:per_label", "study", "--option", "tap=1").exception)
    assert "and summary is built in" in str(called("summary", "study", "--option", "x=1").exception)
    told = called("mine.py:per_label", "study", "--explain", "joint", "score").output
    assert "study/joint/1" in told and "computed by" in told
