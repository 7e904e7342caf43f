"""The files of a report and their provenance."""

import hashlib
import json
from pathlib import Path

import pytest
from tests.analysis.report.conftest import CLAIMS, REPORTS, by_class, by_id, words

from jestlab.analysis import figures, report, tables
from jestlab.analysis.results import read as read_frames
from jestlab.platform.cli import main
from jestlab.platform.spec.load import load


def run_verb(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["report", *arguments])
    return stop.value.code, *capsys.readouterr()


def test_each_table_and_figure_with_its_provenance(study, page):
    beside = page.parent / "report"
    names = {path.name for path in beside.iterdir()}
    for table in ("summary", "speedups", "costs", "failures", "claims"):
        assert {f"{table}.tex", f"{table}.csv", f"{table}.provenance.json"} <= names
    for figure in ("curves", "curves_flops", "pareto"):
        assert {f"{figure}.png", f"{figure}.pdf", f"{figure}.provenance.json"} <= names
    assert not [name for name in names if name.startswith(".")]
    summary = tables.summary(tables.finals(read_frames(study.url, "study"), "uniform"))
    assert (beside / "summary.csv").read_text() == summary.csv()
    assert (beside / "summary.tex").read_text() == summary.latex()
    for path in beside.glob("*.provenance.json"):
        told = json.loads(path.read_text())
        assert (told["store"], told["experiment"]) == (study.url, "study")
        assert list(told["runs"].values()) == ["COMPLETED"] * 12
        assert told["jestlab"]["version"] and told["newest_result"]
        for name, file in told["files"].items():
            assert hashlib.sha256((beside / name).read_bytes()).hexdigest() == file["sha256"]
    told = json.loads((beside / "summary.provenance.json").read_text())
    assert told["data_sha256"] == hashlib.sha256((beside / "summary.csv").read_bytes()).hexdigest()


def test_a_page_of_very_many_labels_shows_the_best(study, monkeypatch, figure_stubs, tmp_path):
    monkeypatch.setattr(report.page, "MOST_ROWS", 3)
    monkeypatch.setattr(figures.charts, "MOST_SERIES", 2)
    page = report.gather(study.url, "study", "uniform")
    parts = {part.name: part for part in page.tables}
    assert parts["summary"].shown.rows == ["reference", "uniform", "joint"]
    assert parts["costs"].shown.rows == ["reference", "uniform", "all runs of study"]
    for figure in page.figures[:2]:
        assert figure.name in ("curves", "pareto")
        for variant in figure.variants.values():
            assert [one["label"] for one in variant["series"]] == ["reference", "uniform", "joint"]
            assert variant["about"].endswith("2 of 3 labels, the baseline and those with the best score.")
    html = report.build(report.gather(study.url, "study"), tmp_path)[0].read_text()
    assert "3 of 4 rows, those with the best score; the table's files have all." in html
    assert (tmp_path / "report" / "summary.csv").read_text().count("\n") == 5
    assert (tmp_path / "report" / "summary.md").read_text().count("\n| ") == 4


def test_the_report_command(capsys, study, tmp_path, figure_stubs):
    """Equal results give equal bytes, and stale files are deleted."""
    root = ["--store", study.url, "--root", str(tmp_path / "lab")]
    code, out, err = run_verb(capsys, "study", *root)
    assert code == 0 and err.startswith("◐ Partly: 2 of 5 claims hold. joint beats ")
    page = tmp_path / "lab" / "reports" / "study" / "report.html"
    assert out == f"{page}\n"
    assert page.stat().st_mode & 0o777 == 0o644
    contents = {path: path.read_bytes() for path in page.parent.rglob("[!.]*.*")}
    stale = page.parent / "report" / "old.csv"
    stale.write_text("x")
    told: dict[str, dict[str, object]] = {"files": {"old.csv": {}, "../../results.db": {}}}
    stale.with_name("old.provenance.json").write_text(json.dumps(told))
    mine = stale.with_name("notes.txt")
    mine.write_text("mine")
    not_ours = page.parent.parent / "results.db"  # outside of the folder
    not_ours.write_text("not ours")
    code, out, _ = run_verb(capsys, "study", "--output", str(page.parent), "--json", *root)
    again = [Path(name) for name in json.loads(out)]
    assert (again[0], code) == (page, 0)
    assert {path: path.read_bytes() for path in again} == contents
    assert not_ours.exists()
    files = {path for path in page.parent.rglob("*") if path.is_file()}
    assert files == {*again, mine}


def test_a_caption_outside_of_the_figure_is_on_the_page(study, parsed_page):
    (caption,) = by_class(by_id(parsed_page, "speedup"), "caption")
    assert words(caption) == figures.speedup(read_frames(study.url, "study")).texts.caption


def test_the_spec_file_is_the_study(study, page):
    assert load(str(page.parent / "report" / "study.yaml")).to_dict() == {
        "name": "study", "question": "Is it faster?", "scale": "smoke",
        "runs": {name: {} for name in ("reference", "uniform", "independent", "joint", "greedy")},
        "reports": REPORTS, "claims": CLAIMS, "family": {"adjust": "none"},
        "metrics": {"*": {"goal": "max", "unit": "percent"}},
    }  # fmt: skip


def test_errors_are_one_line(capsys, study):
    for arguments, said in (
        (["stody"], "no experiment 'stody' in the results store: did you mean 'study'"),
        (["study", "--output", f"{study.folder}/lab/results.db/below"], "cannot write"),
    ):
        code, out, err = run_verb(capsys, *arguments, "--store", study.url)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert said in err
