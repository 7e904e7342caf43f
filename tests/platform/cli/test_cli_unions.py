"""Unions on the command line: launched at once, then each part an experiment like any other."""

from __future__ import annotations

import json
import os
import shutil

import labs_support as labs
import pytest
import yaml

SCORES = {
    "kind": "table",
}
FIRST = {
    "question": "First?",
    "base": {"steps": 4},
    "runs": {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 6}},
    "reports": [SCORES],
}
SECOND = {
    "question": "Second?",
    "base": {"steps": 6},
    "runs": {"baseline": {}, "longer": {"steps": 8, "needs": ["baseline"]}},
    "reports": [SCORES],
}


@pytest.fixture
def spec(tmp_path):
    parts = {"first": FIRST, "second": SECOND}
    studies = {name: {"program": "toy_programs:loop", **part} for name, part in parts.items()}
    union = {"name": "both", "question": "Both?", "studies": studies, "resources": {"retries": 0}}
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump(union, sort_keys=False))
    return path


def ok(*arguments, root):
    done = labs.jestlab(*arguments, root=root)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def page(root, name):
    return root / "reports" / name / "report.html"


def test_one_launch_runs_what_is_shared_once_and_leaves_every_part_an_experiment(root, spec):
    out = ok("launch", spec, root=root)
    assert len(labs.starts(root, "uniform")) == 1
    assert not list((root / "runs").glob("baseline-*"))
    lines = [line.split() for line in out.splitlines()]
    assert ["first", "3", "COMPLETED", str(page(root, "first"))] in lines
    assert ["second", "2", "COMPLETED", str(page(root, "second"))] in lines
    assert lines[-1] == ["page:", str(page(root, "both"))]
    for name in ("first", "second", "both"):
        assert page(root, name).is_file()
    counts = {row["experiment"]: row["counts"] for row in json.loads(ok("status", "--json", root=root))}
    done = "COMPLETED"
    assert counts == {"both": {done: 4}, "first": {done: 3}, "second": {done: 2}}
    runs = json.loads(ok("status", "second", "--json", root=root))
    assert [(run["run"], run["label"]) for run in runs] == [("baseline", "baseline"), ("longer", "longer")]
    assert "| baseline" in ok("table", "second", "--format", "markdown", root=root)
    assert "nothing to run: all 2 runs are COMPLETED" in ok("launch", *part(spec, "second"), root=root)


def part(spec, name):
    """A part as a spec of its own."""
    path = spec.with_name(f"{name}.yaml")
    path.write_text(yaml.safe_dump(yaml.safe_load(spec.read_text())["studies"][name], sort_keys=False))
    return [path]


def test_what_has_not_changed_is_not_written_again(root, spec):
    made = json.loads(ok("launch", spec, "--json", root=root))
    assert [study["experiment"] for study in made["studies"]] == ["first", "second"]
    files = {path: os.stat(path).st_mtime_ns for each in (made, *made["studies"]) for path in each["reports"]}
    assert {str(page(root, name)) for name in ("first", "second", "both")} <= set(files)

    def changed():
        """Which experiments' pages a launch writes again; the output names all files all the same."""
        again = json.loads(ok("launch", spec, "--json", root=root))
        assert {path for each in (again, *again["studies"]) for path in each["reports"]} == set(files)
        now = {path: os.stat(path).st_mtime_ns for path in files}
        pages = {name for name in ("first", "second", "both") if now[p := str(page(root, name))] != files[p]}
        files.update(now)
        return pages

    assert changed() == set()
    (root / "reports" / "first" / "table.csv").unlink()
    assert changed() == {"first"}
    ok("note", "first/joint", "odd", root=root)
    assert changed() == {"first", "second", "both"}
    text = spec.read_text()
    spec.write_text(text.replace("Second?", "Second, then?"))
    assert changed() == {"second", "both"}
    before = os.stat(page(root, "first")).st_mtime_ns
    ok("report", "first", root=root)
    assert os.stat(page(root, "first")).st_mtime_ns > before


def test_a_failure_in_one_part_leaves_the_other_and_is_tried_again(root, spec):
    written = yaml.safe_load(spec.read_text())
    written["studies"]["second"]["runs"]["longer"]["fail_at"] = 3
    spec.write_text(yaml.safe_dump(written, sort_keys=False))
    failed = labs.jestlab("launch", spec, root=root)
    assert failed.returncode == 1
    assert "second  1 COMPLETED, 1 FAILED" in failed.stdout
    assert f"then: jestlab retry both --root {root}" in failed.stdout
    assert "see: jestlab logs both second/longer --seed 0" in failed.stdout
    assert "step 3" in labs.jestlab("logs", "both", "second/longer", root=root).stdout
    again = json.loads(labs.jestlab("retry", "both", "second/longer", "--json", root=root).stdout)
    assert [run["label"] for run in again["runs"]] == ["second/longer"]
    assert [study["counts"] for study in again["studies"]] == [
        {"COMPLETED": 3},
        {"COMPLETED": 1, "FAILED": 1},
    ]


def test_a_part_whose_reports_cannot_be_written_leaves_the_others(root, spec):
    (root / "reports").mkdir(parents=True)
    (root / "reports" / "first").write_text("in the way")
    done = labs.jestlab("launch", spec, root=root)
    assert done.returncode == 1
    assert "first: its reports failed" in done.stdout
    assert page(root, "second").is_file()
    assert page(root, "both").is_file()
    (root / "reports" / "first").unlink()
    ok("launch", spec, root=root)
    assert page(root, "first").is_file()


def test_the_other_verbs_take_a_union_for_an_experiment(root, spec, tmp_path):
    ok("launch", spec, "--no-reports", root=root)
    assert "first/joint" in ok("watch", "both", "--once", root=root)
    assert "second/longer" in ok("query", "--experiment", "both", "--columns", "label,state", root=root)
    assert "steps" in ok("diff", "both/first/joint/0", "both/second/longer", root=root)
    assert ok("cancel", "both", root=root) == "nothing to cancel\n"
    assert "first/uniform" in ok("table", "both", root=root)
    ok("gc", root=root)
    ok("export", tmp_path / "both.tar", "both", root=root)
    shutil.rmtree(root)
    ok("import", tmp_path / "both.tar", root=root)
    counts = {row["experiment"]: row["counts"] for row in json.loads(ok("status", "--json", root=root))}
    assert counts["both"] == {"COMPLETED": 4}
