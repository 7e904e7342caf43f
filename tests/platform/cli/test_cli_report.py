"""`jestlab report`: writes the page that a launch writes."""

import json
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


def test_prints_the_files(root, store, jestlab):
    folder = root / "reports" / "toy"
    assert jestlab("report", "toy") == f"{folder / 'report.html'}\n"
    files = [Path(path) for path in json.loads(jestlab("report", "toy", "--json"))]
    assert files[0] == folder / "report.html"
    assert set(files[1:]) == {*(folder / "report").iterdir()}


def test_a_page_with_options_is_replaced_by_the_next_launch(root, store, jestlab, monkeypatch, tmp_path):
    folder = root / "reports" / "toy"
    page, costs = folder / "report.html", folder / "report" / "costs.csv"

    def gather(url, experiment, baseline=None, scope=None, *_, **__):
        return f"{baseline} {scope}"

    def build(page, folder):
        """Write a page that shows only its options."""
        files = {"report.html": page, "report/costs.csv": ""}
        return [write_whole(folder / name, text) for name, text in files.items()]

    def is_replaced():
        """Whether the end of a launch replaces the page."""
        page.write_text("kept")
        reports.bring_up_to_date(Lab.find(root), store, STUDY, lambda _: None)
        return page.read_text() == "None None"

    monkeypatch.setattr("jestlab.analysis.report.gather", gather)
    monkeypatch.setattr("jestlab.analysis.report.build", build)
    jestlab("report", "toy")
    assert is_replaced()
    jestlab("report", "toy", "--output", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "report.html").is_file()
    jestlab("report", "toy")
    assert not is_replaced()  # the page is that of a launch
    for options, shown in (
        (("--baseline", "uniform"), "uniform None"),
        (("--scope", "learner"), "None learner"),
        (("--output", folder), "None None"),
    ):
        jestlab("report", "toy", *options)
        assert page.read_text() == shown and is_replaced()
    costs.unlink()
    assert is_replaced() and not is_replaced()


def test_the_build_key_depends_on_everything_that_reports_show(store, monkeypatch):
    def key(**parts):
        return reports.build_key(store, StudySpec.parse(SPEC | parts))

    def record_another_run():
        plans.record(store, Plan(STUDY, (*RUNS, plans.run("third", config={"steps": 4}))))

    keys = [key(), key(name="second"), key(question="Why?")]
    plans.record(store, Plan(STUDY, RUNS))
    assert key() == keys[0]  # launching again changes nothing
    for change in (
        lambda: add_note(store, Subject(experiment="toy"), "odd", "me"),
        # It could share the runs that a run needs.
        lambda: plans.record(store, plans.plan(plans.run("more"), name="other")),
        record_another_run,
        lambda: stores.attempt(store, RUNS[0], scores={"toy/score": 0.5}),
        lambda: retract(store, RUNS[0].fingerprint, "wrong shards", "me"),
        lambda: monkeypatch.setattr(update, "version", lambda _: "another"),
    ):
        change()
        keys.append(key())
    assert len(set(keys)) == len(keys)
