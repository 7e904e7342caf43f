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

FIRST = {
    "question": "First?",
    "base": {"steps": 4},
    "runs": {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 6}},
    "reports": [{"kind": "table"}],
}
SECOND = {
    "question": "Second?",
    "base": {"steps": 6},
    "runs": {"baseline": {}, "longer": {"steps": 8, "needs": ["baseline"]}},
}


def write(path, **changes):
    """Write a union of two studies that share a run."""
    parts = {"first": FIRST, "second": {**SECOND, **changes}}
    studies = {
        name: {"program": "toy_programs:loop", "metrics": {"*": {"goal": "max", "unit": "percent"}}, **part}
        for name, part in parts.items()
    }
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


def page(root, name):
    return root / "reports" / name / "report.html"


@pytest.mark.usefixtures("in_process")
def test_a_launch_runs_shared_runs_once_and_leaves_an_experiment_per_part(root, spec, jestlab):
    launched = jestlab("launch", spec, "--no-reports")
    assert len(labs.starts(root, "uniform")) == 1
    assert not list((root / "runs").glob("baseline-*"))
    lines = [line.split() for line in launched.splitlines()]
    assert ["first", "3", "COMPLETED", "–"] in lines
    assert ["second", "2", "COMPLETED", "–"] in lines
    counts = {row["experiment"]: row["counts"] for row in json.loads(jestlab("status", "--json"))}
    assert counts == {"both": {"COMPLETED": 4}, "first": {"COMPLETED": 3}, "second": {"COMPLETED": 2}}
    runs = json.loads(jestlab("status", "second", "--json"))
    assert [(run["run"], run["label"]) for run in runs] == [("baseline", "baseline"), ("longer", "longer")]
    assert "baseline" in jestlab("table", "second")
    assert json.loads(jestlab("plan", spec, "--json"))["totals"]["done"] == 4


def test_writes_the_verdicts_and_pages_of_parts_and_again_only_what_is_missing(
    root, spec, jestlab, blank_page
):
    written = yaml.safe_load(spec.read_text())
    claim = {"statement": "Joint learns more", "of": "joint", "above": "uniform"}
    written["studies"]["first"]["claims"] = [claim]
    spec.write_text(yaml.safe_dump(written, sort_keys=False))
    complete(root, spec)
    (root / "reports").mkdir()
    (root / "reports" / "first").write_text("in the way")
    assert "first: its reports failed" in jestlab("launch", spec, code=1)
    assert page(root, "both").is_file()

    (root / "reports" / "first").unlink()
    launched = jestlab("launch", spec)
    assert launched.splitlines()[-4:] == [
        "?  first  Joint learns more  +0.0",
        "1 claim: undecided.",
        f"claims:  jestlab table claims both --root {root}",
        f"page:    {page(root, 'both')}",
    ]
    assert ["first", "3", "COMPLETED", str(page(root, "first"))] in map(str.split, launched.splitlines())
    assert [page(root, name).is_file() for name in ("first", "second", "both")] == [True, False, True]
    assert "| undecided |" in jestlab("table", "claims", "both")

    def rewritten(*arguments):
        """Return the reports that a command writes again, of those that exist."""
        reports = [path for path in (root / "reports").rglob("*") if path.is_file()]
        for path in reports:
            os.utime(path, (0, 0))
        jestlab(*arguments)
        return {path for path in reports if path.is_file() and path.stat().st_mtime != 0}

    made = json.loads(jestlab("launch", spec, "--json"))
    first, second = made["studies"]
    assert (first["experiment"], second["experiment"]) == ("first", "second")
    assert str(page(root, "first")) in first["reports"] and str(page(root, "both")) in made["reports"]
    assert rewritten("launch", spec) == set()
    (root / "reports" / "first" / "table.csv").unlink()
    changed = rewritten("launch", spec)
    assert (root / "reports" / "first" / "table.csv").is_file()
    assert page(root, "first") in changed
    assert not any(path.is_relative_to(root / "reports" / "both") for path in changed)


@pytest.mark.usefixtures("in_process")
def test_a_failure_in_one_part_leaves_the_other_and_is_retried(root, tmp_path, jestlab):
    runs = {"baseline": {}, "longer": {"steps": 8, "needs": ["baseline"], "fail_at": 3}}
    failed = jestlab("launch", write(tmp_path / "both.yaml", runs=runs), "--no-reports", code=1)
    assert "second  1 COMPLETED, 1 FAILED" in failed
    assert f"then: jestlab retry both --root {root}" in failed
    assert "see: jestlab logs both/second/longer/0" in failed
    again = json.loads(jestlab("retry", "both/second/longer", "--no-reports", "--json", code=1))
    assert [run["label"] for run in again["runs"]] == ["second/longer"]
    counts = [study["counts"] for study in again["studies"]]
    assert counts == [{"COMPLETED": 3}, {"COMPLETED": 1, "FAILED": 1}]
    assert "diverged at step 3" in labs.here("logs", "both/second/longer", root=root).stdout


@pytest.mark.full
def test_ctrl_c_ends_the_writing_of_reports(root, tmp_path):
    """No report is left partially written."""
    spec = write(tmp_path / "both.yaml", reports=[{"kind": "table"}])
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
