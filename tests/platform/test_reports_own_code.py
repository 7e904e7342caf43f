"""Custom reports: written again when their code changes, and a failure doesn't harm the others."""

import os
from pathlib import Path

import plans_support as plans
import pytest
import stores_support as stores
import yaml

from jestlab.platform import reports
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import Plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

SOURCE = '''
from pathlib import Path

def scatter(results, size=1):
    """Draw nothing."""
    from matplotlib.figure import Figure
    return Figure(figsize=(size, 1))

def counts(results):
    Path(__file__).with_name("needed").read_text()
    return results.final.groupby("label")[["step"]].count()
'''
SPEC = """
name: toy
program: command
base: {command: ["true"]}
runs: {a: {}, b: {x: 1}}
metrics: {"toy/score": {goal: max}}
reports:
- mine.py:scatter
- {"mine.py:scatter": {options: {size: 2}}}
- table: {name: mine.py:counts, rows: [a]}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "needed").touch()
    (tmp_path / "toy.yaml").write_text(SPEC)
    return tmp_path / "toy.yaml"


@pytest.fixture
def lab(tmp_path: Path, spec: Path, blank_page: None) -> Lab:
    lab = stores.empty_lab(tmp_path / "lab")
    store = Store.open(lab.store_url)
    runs = (plans.run("a"), plans.run("b", config={"x": 1}))
    plans.record(store, Plan(load(str(spec)), runs))
    for run in runs:
        stores.attempt(store, run, RunState.COMPLETED, scores={"toy/score": 0.5}, loss=(1.0,))
    return lab


def write(lab: Lab, spec: Path) -> tuple[set[str], set[str], list[str], list[str]]:
    """Bring reports up to date.

    Returns:
        Names of all files, and of those that were written now; notes; and studies of which some failed.
    """
    folder = lab.reports / "toy"
    for path in folder.glob("*"):
        os.utime(path, ns=(0, 0))
    notes: list[str] = []
    done = reports.bring_up_to_date(lab, Store.open(lab.store_url), load(str(spec)), notes.append)
    files = {path.name for path in done.files["toy"] if path.parent == folder}
    return files, {name for name in files if (folder / name).stat().st_mtime_ns}, notes, done.failed


def test_custom_reports_are_written_once(lab, spec):
    files, written, notes, failed = write(lab, spec)
    assert (written, notes, failed) == (files, [], [])
    expected = {f"{stem}{suffix}" for stem in ("scatter", "scatter-2") for suffix in (".png", ".svg", ".pdf")}
    expected |= {f"counts{suffix}" for suffix in (".md", ".tex", ".csv", ".html", ".json")}
    assert files == expected | {"report.html"}
    assert (lab.reports / "toy" / "counts.csv").read_text().splitlines()[1:] == ["a,1,False"]
    assert write(lab, spec)[1] == set(), "nothing has changed"
    (spec.parent / "mine.py").write_text(SOURCE.replace("Draw nothing", "Draw nothing yet"))
    assert write(lab, spec)[1] == set(), "docstrings don't count"
    (spec.parent / "mine.py").write_text(SOURCE.replace("(size, 1)", "(size, 2)"))
    assert "scatter.png" in write(lab, spec)[1]


def test_a_failure_names_file_and_line_and_is_tried_again(lab, spec):
    (spec.parent / "needed").unlink()
    files, _, notes, failed = write(lab, spec)
    assert failed == ["toy"] and {"scatter.png", "report.html"} <= files
    [note] = notes
    assert note.startswith(f"counts failed: {spec.parent}/mine.py:10: FileNotFoundError: ")
    assert write(lab, spec)[3] == ["toy"]
    (spec.parent / "needed").touch()  # now it works, and its code has not changed
    assert "counts.md" in write(lab, spec)[0]


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("mine.py:scater", "reports.0.kind: no 'scater' in .*mine.py: did you mean 'scatter'"),
        ("dots", "reports.0.kind: no report 'dots': known: .*; a custom figure is file.py:function"),
        ({"mine.py:scatter": {"size": 2}}, "reports.0.size: unknown key: .*options"),
        ({"mine.py:scatter": {"options": {"sise": 2}}}, "has no option 'sise', given in options: .*'size'"),
        ({"table": {"name": "mine.py:count"}}, "reports.0.name: no 'count' in .*: did you mean 'counts'"),
        ({"table": {"options": {"x": 1}}}, "the table summary is built in: leave out `options`"),
    ],
)
def test_wrong_custom_reports_are_errors_of_the_spec(spec, report, message):
    spec.write_text(yaml.safe_dump({"runs": {"a": {}}, "reports": [report]}))
    with pytest.raises(UserError, match=message):
        load(str(spec))
