"""Unions on the command line: launched at once, then each part an experiment like any other."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import labs_support as labs
import plans_support as plans
import pytest
import yaml

from jestlab.platform import reports
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import load
from jestlab.platform.store.annotations import Subject, add_note
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
    """A union of two studies that share a run."""
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


@pytest.fixture
def completed(root, spec):
    """A lab in which all runs of the union have completed, and its store."""
    return complete(root, spec)


def complete(root, spec):
    store = Store.open(Lab.find(root).store_url)
    planned = plan(load(str(spec)))
    store.record(planned)
    for run in planned.runs:
        attempt = plans.begun(store, run, root / run.directory)
        attempt.evaluation(1, 64, 1e6, {"toy/score": 0.5})
        attempt.complete()
    return store


@pytest.fixture
def jestlab(jestlab, monkeypatch):
    """On one core, so that no others are started to write reports."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    return jestlab


def page(root, name):
    return root / "reports" / name / "report.html"


def test_one_launch_runs_what_is_shared_once_and_leaves_every_part_an_experiment(root, spec, jestlab):
    launched = labs.here("launch", spec, root=root)
    assert launched.returncode == 0, launched.stderr
    assert len(labs.starts(root, "uniform")) == 1
    assert not list((root / "runs").glob("baseline-*"))
    lines = [line.split() for line in launched.stdout.splitlines()]
    assert ["first", "3", "COMPLETED", str(page(root, "first"))] in lines
    assert ["second", "2", "COMPLETED", "–"] in lines
    assert lines[-1] == ["page:", str(page(root, "both"))]
    assert [page(root, name).is_file() for name in ("first", "second", "both")] == [True, False, True]
    counts = {row["experiment"]: row["counts"] for row in json.loads(jestlab("status", "--json"))}
    done = "COMPLETED"
    assert counts == {"both": {done: 4}, "first": {done: 3}, "second": {done: 2}}
    runs = json.loads(jestlab("status", "second", "--json"))
    assert [(run["run"], run["label"]) for run in runs] == [("baseline", "baseline"), ("longer", "longer")]
    assert "baseline" in jestlab("table", "second")
    assert json.loads(jestlab("plan", spec, "--json"))["totals"]["done"] == 4


def test_what_has_not_changed_is_not_written_again(root, spec, completed, jestlab):
    def launch():
        made = json.loads(jestlab("launch", spec, "--json"))
        assert [study["experiment"] for study in made["studies"]] == ["first", "second"]
        paths = [path for each in (made, *made["studies"]) for path in each["reports"]]
        return {path: Path(path).stat().st_mtime_ns for path in paths}

    first = launch()
    assert {str(page(root, "first")), str(page(root, "both"))} <= set(first)
    assert launch() == first
    (root / "reports" / "first" / "table.csv").unlink()
    again = launch()
    assert set(again) == set(first)
    changed = {path for path in first if first[path] != again[path]}
    assert str(page(root, "first")) in changed
    assert not any("reports/both" in path for path in changed)
    for name in ("first", "both"):
        assert jestlab("report", name) == f"{page(root, name)}\n"
    assert launch() == again
    jestlab("report", "first", "--scope", "scoring")
    assert page(root, "first").stat().st_mtime_ns > again[str(page(root, "first"))]
    assert str(page(root, "first")) in {path for path, when in launch().items() if when != again[path]}


def test_a_stamp_tells_whatever_reports_depend_on(root, spec, completed, monkeypatch):
    def made_from(path=spec, name="first"):
        return reports.build_key(completed, load(str(path)).studies[name])

    seen = [made_from()]
    planned = plan(load(str(spec)))
    completed.record(planned)
    assert made_from() == seen[0]  # a launch by itself changes nothing

    add_note(completed, Subject(experiment="first"), "odd", "me")
    seen.append(made_from())
    more = plans.run("more")
    completed.record(plans.plan(more, name="other"))  # might share what the first part needs
    seen.append(made_from())
    other = write(spec.with_name("other.yaml"), question="Why?")
    assert made_from(other) == seen[-1]
    assert made_from(other, "second") != made_from(spec, "second")
    completed.record(plan(load(str(write(spec.with_name("more.yaml"), seeds=2)))))
    seen.append(made_from())
    monkeypatch.setattr(reports, "version", lambda _: "another")
    seen.append(made_from())
    assert len(set(seen)) == len(seen)


def test_a_failure_in_one_part_leaves_the_other_and_is_tried_again(root, tmp_path):
    runs = {"baseline": {}, "longer": {"steps": 8, "needs": ["baseline"], "fail_at": 3}}
    failed = labs.here("launch", write(tmp_path / "both.yaml", runs=runs), "--no-reports", root=root)
    assert failed.returncode == 1
    assert "second  1 COMPLETED, 1 FAILED" in failed.stdout
    assert f"then: jestlab retry both --root {root}" in failed.stdout
    assert "see: jestlab logs both/second/longer/0" in failed.stdout
    retry = labs.here("retry", "both/second/longer", "--no-reports", "--json", root=root)
    again = json.loads(retry.stdout)
    assert [run["label"] for run in again["runs"]] == ["second/longer"]
    counts = [study["counts"] for study in again["studies"]]
    assert counts == [{"COMPLETED": 3}, {"COMPLETED": 1, "FAILED": 1}]
    assert "diverged at step 3" in labs.here("logs", "both/second/longer", root=root).stdout


def test_a_part_whose_reports_cannot_be_written_leaves_the_others(root, spec, completed, jestlab):
    (root / "reports").mkdir(parents=True)
    (root / "reports" / "first").write_text("in the way")
    assert "first: its reports failed" in jestlab("launch", spec, code=1)
    assert page(root, "both").is_file()
    (root / "reports" / "first").unlink()
    jestlab("launch", spec)
    assert page(root, "first").is_file()


@pytest.mark.parametrize("when", ["they import", "they write"])
def test_ctrl_c_ends_the_writing_of_reports(root, tmp_path, when):
    """All processes of the terminal get it, as they do here; none lives on, and no report is cut off."""
    spec = write(tmp_path / "both.yaml", reports=[{"kind": "table"}])
    complete(root, spec)
    with labs.started("launch", spec, root=root, ignoring_sigint=when == "they import") as launch:
        assert launch.stdout is not None
        said = ""
        while "writing the reports of 2 studies" not in said:
            said += (line := launch.stdout.readline())
            assert line, said
        labs.wait_until(
            lambda: len(labs.processes_of(root)) > 2 if when == "they import" else [*root.glob("reports/*/*")]
        )
        os.killpg(launch.pid, signal.SIGINT)
        said += launch.stdout.read()
        assert launch.wait(15) == 130, said
        labs.wait_until(lambda: not labs.processes_of(root))
    assert "Traceback" not in said
    assert [*(root / "reports").rglob(".*-*")] == []


def test_the_other_verbs_take_a_union_for_an_experiment(root, spec, completed, jestlab, tmp_path):
    assert "first/joint" in jestlab("watch", "both", "--once")
    assert "second/longer" in jestlab("query", "--experiment", "both", "--columns", "label,state")
    assert "steps" in jestlab("diff", "both/first/joint/0", "both/second/longer")
    assert jestlab("cancel", "both") == "nothing to cancel\n"
    assert "nothing to retry" in jestlab("retry", "both", "--no-reports")
    assert "first/uniform" in jestlab("table", "both")
    jestlab("gc")
    jestlab("export", tmp_path / "both.tar.gz", "both")
    completed.close()
    shutil.rmtree(root)
    jestlab("import", tmp_path / "both.tar.gz")
    counts = {row["experiment"]: row["counts"] for row in json.loads(jestlab("status", "--json"))}
    assert counts["both"] == {"COMPLETED": 4}


def test_the_verdicts_on_what_its_parts_claim_are_told_and_its_page_leads_to_theirs(
    root, spec, completed, jestlab
):
    written = yaml.safe_load(spec.read_text())
    claim = {"statement": "Joint learns more", "of": "joint", "above": "uniform"}
    written["studies"]["first"]["claims"] = [claim]
    spec.write_text(yaml.safe_dump(written, sort_keys=False))
    out = jestlab("launch", spec)
    assert out.splitlines()[-4:] == [
        "?  first  Joint learns more  +0.0",
        "1 claim: undecided.",
        f"claims:  jestlab table claims both --root {root}",
        f"page:    {page(root, 'both')}",
    ]
    assert "| undecided |" in jestlab("table", "claims", "both")
    text = page(root, "both").read_text()
    assert 'href="#study-first"' in text and "jestlab report first" in text
    assert "Joint learns more" in page(root, "first").read_text()
