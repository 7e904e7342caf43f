"""`jestlab report`: writes the page that a launch writes."""

import json
import os
from pathlib import Path

import plans_support as plans
import pytest
import stores_support as stores

from jestlab.analysis.files import write_whole
from jestlab.platform import reports
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import Plan
from jestlab.platform.reports import update
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.annotations import Subject, add_note, retract
from jestlab.platform.store.store import Store

SPEC = {
    "name": "toy",
    "program": "toy_programs:loop",
    "metrics": {"*": {"goal": "max", "unit": "percent"}},
    "runs": {"uniform": {}, "joint": {}},
    "reports": [{"kind": "table", "baseline": "joint"}, "curves"],
}
STUDY = StudySpec.parse(SPEC)
RUNS = (plans.run("uniform", config={"steps": 2}), plans.run("joint", config={"steps": 3}))


@pytest.fixture
def store(root):
    """A lab in which the runs of the study are planned: their page has a table of costs and no figures."""
    store = Store.open(stores.empty_lab(root).store_url)
    plans.record(store, Plan(STUDY, RUNS))
    return store


def is_written(path, write):
    """Return whether a call writes a file; the time of the file is set back, as clocks are too coarse."""
    if path.is_file():
        os.utime(path, (0, 0))
    write()
    return path.stat().st_mtime != 0


@pytest.fixture
def report(root, jestlab, monkeypatch):
    """Call `jestlab report`, and return whether it writes the page, which shows only its options."""

    def build(url, experiment, folder, baseline=None, scope=None, *_, **__):
        costs = write_whole(folder / "report" / "costs.csv", "")
        return [write_whole(folder / "report.html", f"{baseline} {scope}"), costs]

    monkeypatch.setattr("jestlab.analysis.report.build", build)
    page = root / "reports" / "toy" / "report.html"

    def call(*options):
        return is_written(page, lambda: jestlab("report", "toy", *options))

    return call


def launched(root, store):
    """Return whether the end of a launch writes the reports."""
    stamp = root / "reports" / "toy" / reports.BUILD_FILE
    return is_written(stamp, lambda: reports.bring_up_to_date(Lab.find(root), store, STUDY, lambda _: None))


def test_prints_the_files(root, store, jestlab):
    folder = root / "reports" / "toy"
    assert jestlab("report", "toy") == f"{folder / 'report.html'}\n"
    files = [Path(path) for path in json.loads(jestlab("report", "toy", "--json"))]
    assert files[0] == folder / "report.html"
    assert set(files[1:]) == {*(folder / "report").iterdir()}


def test_a_page_with_options_is_replaced_by_the_next_launch(root, store, report, jestlab, tmp_path):
    assert report() and launched(root, store)
    jestlab("report", "toy", "--output", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "report.html").is_file()
    assert report() and not launched(root, store)  # the page is that of a launch
    page = root / "reports" / "toy" / "report.html"
    for options, shown in (
        (("--baseline", "uniform"), "uniform None"),
        (("--scope", "learner"), "None learner"),
        (("--output", page.parent), "None None"),
    ):
        report(*options)
        assert page.read_text() == shown
        assert launched(root, store)
    (page.parent / "report/costs.csv").unlink()
    assert launched(root, store) and not launched(root, store)


def test_the_build_key_depends_on_everything_that_reports_show(store, monkeypatch):
    def key(**parts):
        return reports.build_key(store, StudySpec.parse(SPEC | parts))

    keys = [key()]
    plans.record(store, Plan(STUDY, RUNS))
    assert key() == keys[0]  # launching again changes nothing

    def changed():
        keys.append(key())
        assert len(set(keys)) == len(keys)

    add_note(store, Subject(experiment="toy"), "odd", "me")
    changed()
    plans.record(
        store, plans.plan(plans.run("more"), name="other")
    )  # it could share the runs that a run needs
    changed()
    assert key(name="second") != keys[-1]
    assert key(question="Why?") != keys[-1]
    plans.record(store, Plan(STUDY, (*RUNS, plans.run("third", config={"steps": 4}))))
    changed()
    stores.attempt(store, RUNS[0], scores={"toy/score": 0.5})
    changed()
    retract(store, RUNS[0].fingerprint, "wrong shards", "me")
    changed()
    monkeypatch.setattr(update, "version", lambda _: "another")
    changed()
