"""Files of reports leave when what they show is gone, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import plans_support as plans
import pytest

from jestlab.platform import reports
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import Plan
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.store import Store

WRITTEN: dict[str, Any] = {
    "name": "toy",
    "runs": {"a": {}},
    "metrics": {"*": {"goal": "max", "unit": "percent"}},
}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A lab with a completed run."""
    lab = Lab.find(tmp_path / "lab")
    run = plans.run("a", config={"steps": 2})
    store = Store.open(lab.store_url)
    store.record(plans.plan(run))
    [row] = store.runs("toy")
    attempt = plans.begun(store, row)
    for step in (1, 2):
        attempt.evaluation(step, 64 * step, 1e6 * step, {"toy/score": 0.2 * step})
    attempt.complete()
    store.close()
    return lab


def made(lab: Lab, *asked: Any) -> set[str]:
    """Write the reports of a launch; the names of all files that are there then, but for hidden ones."""
    study = Study.parse(WRITTEN | {"reports": list(asked)})
    store = Store.open(lab.store_url)
    store.record(Plan(study, (plans.run("a", config={"steps": 2}),)))
    reports.bring_up_to_date(lab, store, study, lambda _: None)
    store.close()
    folder = lab.reports / "toy"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in files if not name.startswith(".")}


def test_what_a_spec_no_longer_asks_for_leaves(lab):
    both = made(lab, "table", "curves")
    assert {"table.md", "curves.png", "curves.svg"} <= both
    assert {name for name in made(lab, "table") if name.startswith("curves")} == set()
    assert "table.md" in made(lab, "table")
    assert made(lab) == set()
    assert not (lab.reports / "toy").exists()


def test_what_jestlab_did_not_write_stays(lab):
    made(lab, "table", "curves")
    folder = lab.reports / "toy"
    (folder / "notes.txt").write_text("mine")
    later = (folder / reports.BUILD_FILE).stat().st_mtime_ns + 1_000_000_000
    (folder / "curves.png").write_bytes(b"drawn anew by hand")
    os.utime(folder / "curves.png", ns=(later, later))
    (folder / "curves.pdf").unlink()
    (folder / "curves.pdf").symlink_to(folder / "notes.txt")
    assert {"notes.txt", "curves.png", "curves.pdf", "table.md"} <= made(lab, "table")
    assert "curves.svg" not in made(lab, "table")
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_list_of_files_that_leads_elsewhere_removes_nothing(lab, tmp_path):
    made(lab, "table")
    precious = lab.reports / "precious.txt"
    precious.write_text("mine")
    folder = lab.reports / "toy"
    reports.Build("", ("../precious.txt", str(precious))).write(folder)
    made(lab, "curves")
    assert precious.exists()


def test_a_page_written_in_between_does_not_forget_the_rest(lab):
    made(lab, "table", "curves")
    reports.write_page(lab, "toy", lab.reports / "toy")
    assert "curves.png" not in made(lab, "table")
