"""Reports of a study: files from a store, rebuilt when inputs change, and removed when they are stale."""

import os
from pathlib import Path
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores

from jestlab.analysis.files import write_whole
from jestlab.analysis.tables.core import Table
from jestlab.platform import reports
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import Plan
from jestlab.platform.planning.plan import plan as planned
from jestlab.platform.reports import update
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.store import Store

WRITTEN: dict[str, Any] = {
    "name": "toy",
    "runs": {"uniform": {}, "joint": {}},
    "metrics": {"*": {"goal": "max", "unit": "percent"}},
    "reports": [
        {"kind": "table", "baseline": "uniform"},
        "curves",
        {"kind": "table", "baseline": "joint"},
        {"table": {"name": "comparison", "baseline": "uniform"}},
        {"table": {"rows": ["joint"], "baseline": "joint"}},
    ],
}
RUNS = (plans.run("uniform", config={"steps": 2}), plans.run("joint", config={"steps": 3}))
TABLE_FILES = (".md", ".tex", ".csv", ".html", ".json")


def study(**parts: Any) -> StudySpec:
    return StudySpec.parse(WRITTEN | parts)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = stores.empty_lab(tmp_path / "lab")
    plans.record(Store.open(lab.store_url), Plan(study(), RUNS))
    return lab


def complete(store: Store) -> None:
    for i, run in enumerate(store.runs("toy")):
        attempt = plans.begun(store, run)
        for step in (1, 2):
            attempt.evaluation(step, 64 * step, 1e6 * step, {"toy/score": (0.2 + 0.1 * i) * step})
        attempt.complete()


def test_every_report_is_written_in_every_format_as_soon_as_it_can_be_made(lab):
    """A note names each one that cannot be made yet, and the others are written."""
    folder = lab.reports / "toy"
    first = update.write_reports(lab, study())
    assert first.files[0] == folder / "report.html"
    expected = ["table", "curves", "table-2", "comparison", "table-3"]
    assert [note.partition(":")[0] for note in first.notes] == [f"no {name} yet" for name in expected]
    complete(Store.open(lab.store_url))
    written = update.write_reports(lab, study())
    assert written.notes == []
    names = {f"{name}{suffix}" for name in expected if name != "curves" for suffix in TABLE_FILES}
    names |= {"report.html", "curves.png", "curves.svg", "curves.pdf"}
    assert {path.name for path in written.files if path.parent == folder} == names
    assert sorted(written.files) == sorted(path for path in folder.rglob("*") if path.is_file())
    assert "| joint" in (folder / "table.md").read_text()
    assert "| uniform" in (folder / "table.md").read_text()
    assert "| uniform" not in (folder / "table-3.md").read_text()
    page = (folder / "report.html").read_text()
    assert "joint is better than uniform by 20.0 points (one seed)" in page


@pytest.mark.parametrize("published", [True, False])
def test_the_papers_results_are_there_where_a_table_shows_them(lab, blank_page, published):
    store = Store.open(lab.store_url)
    complete(store)
    shown = study(reports=[{"table": {"name": "comparison", "published": published}}])
    for _ in range(2):  # they are inserted once
        reports.bring_up_to_date(lab, store, shown, pytest.fail)
        text = (lab.reports / "toy" / "comparison.md").read_text()
        assert ("SigLIP" in text) == published
        assert "| joint" in text


def test_claims_are_a_table_whether_or_not_the_study_asks_for_it(lab, blank_page):
    claims = [{"statement": "More steps help", "of": "joint", "above": "uniform"}]
    claiming = study(reports=[], claims=claims)
    store = Store.open(lab.store_url)
    plans.record(store, Plan(claiming, RUNS))
    complete(store)
    written = reports.write_reports(lab, claiming).files
    assert {path.name for path in written} == {"report.html", *(f"claims{end}" for end in TABLE_FILES)}
    assert "| More steps help |" in (lab.reports / "toy" / "claims.md").read_text()
    asked = study(claims=claims, reports=[{"table": {"name": "claims"}}])
    assert sorted(reports.write_reports(lab, asked).files) == sorted(written)


def test_new_labels_are_shown_without_running_anything(lab, blank_page):
    store = Store.open(lab.store_url)
    for label in ("joint", "JEST (ours)"):
        runs = {"uniform": {}, "joint": {"optimizer.beta2": 0.9, "label": label}}
        labeled = planned(study(runs=runs, reports=[{"table": {"baseline": "uniform"}}]), placement="none")
        plans.record(store, labeled)
        if label == "joint":
            complete(store)
        assert {run.state for run in store.runs("toy")} == {"COMPLETED"}
        reports.bring_up_to_date(lab, store, labeled.study, print)
        shown = (lab.reports / "toy" / "table.md").read_text()
        assert f"| {label}" in shown and ("| joint" in shown) == (label == "joint")


# ---- stale files


@pytest.fixture
def write(lab, blank_page, monkeypatch):
    """Brings reports of these kinds up to date, and returns the names of all files except hidden ones."""

    def write_reports(lab: Lab, study: StudySpec) -> update.Written:
        folder = lab.reports / study.name
        files = [f"{report.kind}{suffix}" for report in study.reports for suffix in (".md", ".png")]
        return update.Written([write_whole(folder / name, name) for name in files])

    monkeypatch.setattr(update, "write_reports", write_reports)

    def written(*kinds: str) -> set[str]:
        store = Store.open(lab.store_url)
        reports.bring_up_to_date(lab, store, study(reports=kinds), print)
        files = (lab.reports / "toy").glob("[!.]*")
        return {path.name for path in files}

    return written


def test_files_that_a_spec_no_longer_asks_for_are_removed(lab, write):
    assert write("table", "curves") == {"table.md", "table.png", "curves.md", "curves.png"}
    assert write("table") == {"table.md", "table.png"}
    assert write() == set()
    assert not (lab.reports / "toy").exists()
    write("table", "curves")
    reports.write_page(lab, "toy", lab.reports / "toy")  # meanwhile, which keeps the list of files
    assert "curves.png" not in write("table")


def test_files_that_jestlab_did_not_write_stay(lab, write):
    write("table", "curves", "pareto")
    folder = lab.reports / "toy"
    (folder / "notes.txt").write_text("mine")
    later = (folder / reports.BUILD_FILE).stat().st_mtime_ns + 1_000_000_000
    (folder / "curves.png").write_bytes(b"drawn again by hand")
    os.utime(folder / "curves.png", ns=(later, later))
    (folder / "pareto.png").unlink()
    (folder / "pareto.png").symlink_to(folder / "notes.txt")
    assert write("table") == {"table.md", "table.png", "notes.txt", "curves.png", "pareto.png"}
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_list_of_files_outside_the_folder_removes_nothing(lab, write):
    write("table")
    precious = lab.reports / "precious.txt"
    precious.write_text("mine")
    update.Build(made_from="", files=("../precious.txt", str(precious))).write(lab.reports / "toy")
    write("curves")
    assert precious.exists()


def test_an_unexpected_exception_is_reported_as_a_bug(lab, blank_page, monkeypatch):
    def csv(self):
        raise ValueError("cannot reindex on an axis with duplicate labels")

    complete(Store.open(lab.store_url))
    monkeypatch.setattr(Table, "csv", csv)
    written = update.write_reports(lab, study())
    assert written.failed and lab.reports / "toy" / "curves.png" in written.files
    assert "table failed, which is a bug: ValueError: cannot reindex" in written.notes[0]
    assert "test_reports.py:" in written.notes[0]
