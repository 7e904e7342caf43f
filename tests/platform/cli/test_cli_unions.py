"""Unions on the command line: launched as one study, after which each part is an experiment."""

import json
import os
import signal

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
import yaml

from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import load
from jestlab.platform.store.store import Store

STUDY = {"program": "toy_programs:loop", "metrics": {"*": {"goal": "max", "unit": "percent"}}}
FIRST = STUDY | {
    "question": "First?",
    "base": {"steps": 4},
    "runs": {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 6}},
    "reports": [{"kind": "table"}],
}
SECOND = STUDY | {
    "question": "Second?",
    "base": {"steps": 6},
    "runs": {"baseline": {}, "longer": {"steps": 8, "needs": ["baseline"]}},
}


def write(path, first=None, second=None):
    """Write a union of two studies that share a run, with changes."""
    studies = {"first": FIRST | (first or {}), "second": SECOND | (second or {})}
    union = {"name": "both", "question": "Both?", "studies": studies, "resources": {"retries": 0}}
    path.write_text(yaml.safe_dump(union, sort_keys=False))
    return path


@pytest.fixture
def spec(tmp_path):
    return write(tmp_path / "both.yaml")


def complete(root, spec):
    """Create a lab in which all runs of a spec have completed."""
    store = Store.open(stores.empty_lab(root).store_url)
    planned = plan(load(str(spec)))
    plans.record(store, planned)
    for run in planned.runs:
        attempt = plans.begun(store, run, root / run.directory)
        attempt.evaluation(1, 64, 1e6, {"toy/score": 0.5})
        attempt.complete()
    store.close()


@pytest.fixture
def jestlab(jestlab, monkeypatch):
    """Call a command on one core, so that it starts no processes to write reports."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    return jestlab


@pytest.mark.usefixtures("in_process")
def test_a_launch_runs_shared_runs_once_and_leaves_an_experiment_per_part(root, spec, jestlab):
    lines = [line.split() for line in jestlab("launch", spec, "--no-reports").splitlines()]
    assert ["first", "3", "COMPLETED", "–"] in lines and ["second", "2", "COMPLETED", "–"] in lines
    assert len(labs.starts(root, "uniform")) == 1 and not list((root / "runs").glob("baseline-*"))
    counts = {row["experiment"]: row["counts"] for row in json.loads(jestlab("status", "--json"))}
    assert counts == {"both": {"COMPLETED": 4}, "first": {"COMPLETED": 3}, "second": {"COMPLETED": 2}}
    runs = json.loads(jestlab("status", "second", "--json"))
    assert [(run["run"], run["label"]) for run in runs] == [("baseline", "baseline"), ("longer", "longer")]
    assert json.loads(jestlab("plan", spec, "--json"))["totals"]["done"] == 4


def test_writes_the_verdicts_and_pages_of_parts_and_again_only_what_is_missing(
    root, tmp_path, jestlab, blank_page
):
    claim = {"statement": "Joint learns more", "of": "joint", "above": "uniform"}
    spec = write(tmp_path / "both.yaml", first={"claims": [claim]})
    complete(root, spec)
    reports = root / "reports"
    reports.mkdir()
    (reports / "first").write_text("in the way")
    assert "first: its reports failed" in jestlab("launch", spec, code=1)
    (reports / "first").unlink()
    launched = jestlab("launch", spec)
    page = str(reports / "first" / "report.html")
    assert ["first", "3", "COMPLETED", page] in map(str.split, launched.splitlines())
    assert "?  first  Joint learns more  +0.0\n1 claim: undecided.\n" in launched
    assert [path.parent.name for path in sorted(reports.rglob("report.html"))] == ["both", "first"]
    assert "| undecided |" in jestlab("table", "claims", "both")

    made = json.loads(jestlab("launch", spec, "--json"))
    assert [part["experiment"] for part in made["studies"]] == ["first", "second"]
    assert page in made["studies"][0]["reports"]
    assert str(reports / "both" / "report.html") in made["reports"]
    (reports / "first" / "table.csv").unlink()
    before = {path: path.stat().st_mtime_ns for path in (reports / "both").rglob("*")}
    jestlab("launch", spec)
    assert (reports / "first" / "table.csv").is_file()
    assert {path: path.stat().st_mtime_ns for path in (reports / "both").rglob("*")} == before


@pytest.mark.usefixtures("in_process")
def test_a_failure_in_one_part_leaves_the_other_and_is_retried(root, tmp_path, jestlab):
    runs = {"baseline": {}, "longer": {"steps": 8, "needs": ["baseline"], "fail_at": 3}}
    failed = jestlab("launch", write(tmp_path / "both.yaml", second={"runs": runs}), "--no-reports", code=1)
    assert "second  1 COMPLETED, 1 FAILED" in failed
    assert "then:    fix the cause, and launch again" in failed and "jestlab retry" not in failed
    assert "see:     jestlab logs both/second/longer/0" in failed
    again = json.loads(jestlab("retry", "both/second/longer", "--no-reports", "--json", code=1))
    assert [run["label"] for run in again["runs"]] == ["second/longer"]
    counts = [study["counts"] for study in again["studies"]]
    assert counts == [{"COMPLETED": 3}, {"COMPLETED": 1, "FAILED": 1}]
    assert "diverged at step 3" in labs.here("logs", "both/second/longer", root=root).stdout


@pytest.mark.full
def test_ctrl_c_ends_the_writing_of_reports(root, tmp_path):
    """No report is left partially written."""
    spec = write(tmp_path / "both.yaml", second={"reports": [{"kind": "table"}]})
    complete(root, spec)
    with labs.started("launch", spec, root=root) as launch:
        labs.wait_until(lambda: [*root.glob("reports/*/*")])
        os.killpg(launch.pid, signal.SIGINT)
        printed = launch.communicate()[0]
        assert launch.wait() == 130, printed
    assert "Traceback" not in printed
    assert [*(root / "reports").rglob(".*-*")] == []


def test_other_verbs_take_a_union_like_an_experiment(root, spec, jestlab):
    complete(root, spec)
    assert "first/joint" in jestlab("watch", "both", "--once")
    assert "second/longer" in jestlab("query", "--experiment", "both", "--columns", "label,state")
    assert "steps" in jestlab("diff", "both/first/joint/0", "both/second/longer")
    assert jestlab("cancel", "both") == "nothing to cancel\n"
    assert "nothing to retry" in jestlab("retry", "both", "--no-reports")
    assert "first/uniform" in jestlab("table", "both")
    jestlab("gc")
