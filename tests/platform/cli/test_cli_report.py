"""`jestlab report`: the page that a launch writes, again only where something changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import plans_support as plans
import pytest
from sqlalchemy import text

from jestlab.platform import reports
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import Plan
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.annotations import Subject, add_note
from jestlab.platform.store.store import Store

STUDY = Study.parse(
    {
        "name": "toy",
        "program": "toy_programs:loop",
        "metrics": {"*": {"goal": "max", "unit": "percent"}},
        "runs": {"uniform": {}, "joint": {}},
        "reports": [{"kind": "table", "baseline": "joint"}, "curves"],
    }
)


@pytest.fixture
def store(root):
    """A lab in which the runs of the study are planned: their page has a ledger and no figures."""
    store = Store.open(Lab.find(root).store_url)
    runs = (plans.run("uniform", config={"steps": 2}), plans.run("joint", config={"steps": 3}))
    store.record(Plan(STUDY, runs))
    return store


def complete(store):
    for i, run in enumerate(store.runs("toy")):
        attempt = plans.begun(store, run)
        for step in (1, 2):
            attempt.evaluation(step, 64 * step, 1e6 * step, {"toy/score": (0.2 + 0.1 * i) * step})
        attempt.complete()


@pytest.fixture
def report(root, jestlab):
    """Calls it; says whether the page was written."""
    page = root / "reports" / "toy" / "report.html"

    def call(*options):
        before = page.stat().st_mtime_ns if page.is_file() else 0
        assert jestlab("report", "toy", *options) == f"{page}\n"
        return page.stat().st_mtime_ns != before

    return call


def launched(root, store):
    """Whether the end of a launch writes the reports."""
    stamp = root / "reports" / "toy" / reports.BUILD_FILE
    before = stamp.stat().st_mtime_ns if stamp.is_file() else 0
    made = reports.bring_up_to_date(Lab.find(root), store, STUDY, lambda _: None)
    assert made.files["toy"][0].is_file()
    return stamp.stat().st_mtime_ns != before


def test_what_a_launch_wrote_is_left_as_it_is(root, store, report, jestlab):
    assert launched(root, store)
    assert not report()
    assert not launched(root, store)
    folder = root / "reports" / "toy"
    files = [Path(path) for path in json.loads(jestlab("report", "toy", "--json"))]
    assert files[0] == folder / "report.html"
    assert set(files[1:]) == {*(folder / "report").iterdir()}


def test_by_itself_it_is_written_once_and_a_launch_still_writes_all(root, store, report, jestlab):
    assert report()
    written = jestlab("report", "toy", "--json")
    assert not report()
    assert jestlab("report", "toy", "--json") == written
    add_note(store, Subject(experiment="toy"), "odd", "me")
    assert report()
    assert launched(root, store)
    assert not report()


@pytest.mark.parametrize("lost", ["report.html", "report/costs.csv"])
def test_what_is_not_there_is_written(root, store, report, lost):
    launched(root, store)
    (root / "reports" / "toy" / lost).unlink()
    assert report()
    assert not report()
    assert (root / "reports" / "toy" / lost).is_file()


@pytest.mark.parametrize("option", ["--baseline", "--scope", "--output"])
def test_a_page_that_was_asked_for_in_another_way_is_written_and_not_taken_for_the_studys(
    root, store, report, option
):
    values = {"--baseline": "uniform", "--scope": "learner", "--output": root / "reports" / "toy"}
    options = (option, values[option])
    launched(root, store)
    assert report(*options)
    assert report(*options)
    assert report()
    assert not report()
    assert launched(root, store)


def test_a_page_elsewhere_leaves_the_labs_own(root, store, report, jestlab, tmp_path):
    launched(root, store)
    jestlab("report", "toy", "--output", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "report.html").is_file()
    assert not report()
    assert not launched(root, store)


def test_a_stamp_of_what_is_no_more_does_not_come_true_again(root, store, report):
    """A page of a store with a note; then the note is gone, and the stamp of before would hold again."""
    launched(root, store)
    add_note(store, Subject(experiment="toy"), "odd", "me")
    assert report()
    with store.writing() as connection:
        connection.execute(text("DELETE FROM note"))
    assert report()
    assert launched(root, store)


def test_it_compares_as_the_studys_reports_say_whoever_writes_it(root, store, jestlab):
    complete(store)
    launched(root, store)
    folder = root / "reports" / "toy"
    page = (folder / "report.html").read_bytes()
    assert b"No run scores above joint" in page
    shutil.rmtree(folder)
    jestlab("report", "toy")
    assert (folder / "report.html").read_bytes() == page
    jestlab("report", "toy", "--baseline", "uniform")
    assert b"20.0 points above uniform" in (folder / "report.html").read_bytes()


@pytest.mark.parametrize(
    "spec", ["{}", '{"name": "toy", "program": "gone:away", "runs": {"a": {}}, "later": 1}']
)
def test_a_study_that_this_build_does_not_understand_has_a_page_and_no_stamp(root, store, report, spec):
    with store.writing() as connection:
        connection.execute(text("UPDATE experiment SET spec = :spec"), {"spec": spec})
    assert report()
    assert report()
    assert [*(root / "reports" / "toy").glob(".*")] == []


def test_a_store_of_an_older_build_has_a_page(root, store, report):
    with store.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))
    assert report()
