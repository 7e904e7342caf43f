"""The files of a report, and the provenance that they state."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess

import pytest

from jestlab.analysis import frames, tables
from jestlab.analysis.report import build
from jestlab.analysis.report.contents import gather
from jestlab.platform.cli import main
from jestlab.platform.spec.load import load


def test_each_table_and_figure_with_its_provenance(study, page):
    beside = page.parent / "report"
    names = {path.name for path in beside.iterdir()}
    for table in ("summary", "speedups", "costs", "goodput", "failures"):
        assert {f"{table}.tex", f"{table}.csv", f"{table}.provenance.json"} <= names
    for figure in ("curves", "curves_flops", "pareto"):
        assert {f"{figure}.png", f"{figure}.pdf", f"{figure}.provenance.json"} <= names
    assert not [name for name in names if name.startswith(".")]
    summary = tables.summary(tables.finals(frames.read(study.url, "study"), "uniform"))
    assert (beside / "summary.csv").read_text() == summary.csv()
    assert (beside / "summary.tex").read_text() == summary.latex()
    for path in beside.glob("*.provenance.json"):
        told = json.loads(path.read_text())
        assert told["store"] == study.url
        assert told["experiment"] == "study"
        assert len(told["runs"]) == 12
        assert set(told["runs"].values()) == {"COMPLETED"}
        assert told["jestlab"]["version"]
        assert told["newest_result"] is not None
        for name, file in told["files"].items():
            assert hashlib.sha256((beside / name).read_bytes()).hexdigest() == file["sha256"]
    told = json.loads((beside / "summary.provenance.json").read_text())
    assert told["data_sha256"] == hashlib.sha256((beside / "summary.csv").read_bytes()).hexdigest()


def test_links_work(page):
    """All are within the page, so none is dead where it was mailed."""
    text = page.read_text().partition("<script")[0]
    links, ids = re.findall(r'<a [^>]*href="([^"]+)"', text), re.findall(r'<\w+ id="([^"]+)"', text)
    assert len(links) > 5
    assert {link[0] for link in links} == {"#"}
    assert {link[1:] for link in links} <= set(ids)


def test_the_same_results_give_the_same_bytes_and_stale_files_are_deleted(new_lab, a_run, tmp_path):
    lab = new_lab(a_run("uniform", [0.1, 0.2]), a_run("joint", [0.3, 0.4]), a_run("late", ends="fail"))
    first = build(lab.url, "study", tmp_path / "out")
    contents = {path: path.read_bytes() for path in first}
    stale = tmp_path / "out" / "report" / "old.csv"
    stale.write_text("x")
    told: dict[str, dict[str, object]] = {"files": {"old.csv": {}, "../../results.db": {}}}
    stale.with_name("old.provenance.json").write_text(json.dumps(told))
    mine = stale.with_name("notes.txt")
    mine.write_text("mine")
    (tmp_path / "results.db").write_text("not ours")
    again = build(lab.url, "study", tmp_path / "out")
    assert {path: path.read_bytes() for path in again} == contents
    assert not stale.exists()
    assert not stale.with_name("old.provenance.json").exists()
    assert mine.exists()
    assert (tmp_path / "results.db").exists()
    files = {path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert files == {*again, mine}


def test_the_spec_file_is_the_study(study, page):
    assert load(str(page.parent / "report" / "study.yaml")).to_dict() == {
        "name": "study", "question": "Is it faster?", "scale": "smoke", "runs": {"uniform": {}},
        "reports": [{"kind": "table", "name": "comparison"}, {"kind": "speedup"}, {"kind": "batch_size"}],
        "metrics": {"*": {"goal": "max", "unit": "percent"}},
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here: make tools")
def test_the_tables_compile(new_lab, a_run, tmp_path):
    lab = new_lab(
        a_run("uniform", [0.1, 0.2]),
        a_run("joint", [0.3, 0.4], label='a_b & 50% $x$ #1 {y} <b>|"~^\\ λ é 🦄'),
        a_run("broken", [0.1], ends="fail"),
    )
    parts = gather(lab.url, "study", None, "scoring").tables
    assert [part.name for part in parts] == ["summary", "speedups", "costs", "goodput", "failures"]
    inputs = "\n".join(part.table.latex() for part in parts)
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\n\\usepackage{booktabs}\n\\usepackage[table]{xcolor}\n"
        f"\\usepackage{{graphicx}}\n\\begin{{document}}\n{inputs}\\end{{document}}\n"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert b"Missing character" not in done.stdout
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000


def run_verb(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["report", *arguments])
    streams = capsys.readouterr()
    return stop.value.code, streams.out, streams.err


def test_the_report_verb(capsys, study, tmp_path, figure_stubs):
    root = ["--store", study.url, "--root", str(tmp_path / "lab")]
    code, out, err = run_verb(capsys, "study", *root)
    assert (code, err) == (0, "")
    page = tmp_path / "lab" / "reports" / "study" / "report.html"
    assert out == f"{page}\n"
    assert page.stat().st_mode & 0o777 == 0o644
    code, out, _ = run_verb(capsys, "study", "--output", str(page.parent), "--json", *root)
    assert [json.loads(out)[0], code] == [str(page), 0]


def test_errors_are_one_line(capsys, study, tmp_path, new_lab):
    empty = new_lab(name="nothing")
    for arguments, said in (
        (
            ["stody", "--store", study.url],
            "no experiment 'stody' in the results store: did you mean 'study'?",
        ),
        (["study", "--store", study.url, "--baseline", "unifrm"], "did you mean 'uniform'?"),
        (["study", "--store", f"sqlite:///{tmp_path}/none.db"], "no store at"),
        (["any", "--store", empty.url], "the results store is empty"),
        (["study", "--store", study.url, "--output", f"{study.folder}/results.db/below"], "cannot write"),
    ):
        code, out, err = run_verb(capsys, *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert said in err
    assert not (tmp_path / "none.db").exists()


def test_passwords_are_not_shown():
    from jestlab.analysis.connection import shown

    for url in (
        "postgresql://me:secret@host/lab",
        "postgres://me@host/lab?password=secret",
        "postgresql://me@host/lab?sslpassword=secret&sslkey=a",
    ):
        assert "secret" not in shown(url)
        assert "me" in shown(url)
