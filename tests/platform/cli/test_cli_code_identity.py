"""Results of changed code and retracted results are reported, accepted, or computed again."""

import functools
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import labs_support as labs
import own_code
import pytest

from jestlab.analysis import query
from jestlab.platform.lab.lab import Lab

pytestmark = pytest.mark.usefixtures("in_process", "store")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return own_code.write(tmp_path / "study", seeds=2)


def scores(root: Path) -> list[tuple[str, int, float]]:
    found = query.frame(Lab.find(root).store_url, view="evaluations")
    return sorted(zip(found["label"], found["seed"], found["value"], strict=True))


@pytest.fixture
def launch(jestlab: Callable[..., str]) -> Callable[..., str]:
    return functools.partial(jestlab, "launch", "--no-reports")


EXPLAIN = ("table", "ridge", "--explain", "plain", "toy/score")


def test_changed_code_is_reported_shown_and_run_again(root, spec, jestlab, launch):
    assert "and custom code. To record less" in launch(spec)
    assert "different code" not in jestlab("plan", spec) + jestlab("status", "ridge")
    own_code.change(spec.parent, 1.0)
    reported = (
        "4 of 4 runs were made with different code (noise.py) than the current files "
        '(jestlab diff ridge/plain/0; --rerun-changed runs them again; jestlab accept ridge --reason "…")'
    )
    assert all(reported in text for text in (jestlab("plan", spec), jestlab("status", "ridge"), launch(spec)))
    assert scores(root)[1] == ("plain", 1, 0.51)
    change = "-NOISE = 0.1\n+NOISE = 1.0"
    difference = jestlab("diff", "ridge/plain/0")
    assert change in difference and "ridge.py" not in difference

    assert "did you mean 'plain'?" in launch(spec, "--rerun-changed", "plane", code=1)
    assert "--rerun-changed" in launch(spec, "plain", code=1)
    assert "2 runs to run again" in launch(spec, "--rerun-changed", "plain")
    assert scores(root) == [("plain", 0, 0.5), ("plain", 1, 0.6), ("wide", 0, 0.5), ("wide", 1, 0.51)]
    assert "2 of 4 runs were made with different code" in jestlab("status", "ridge")
    assert change in jestlab("diff", "ridge/wide/1", "ridge/plain/1")
    statuses = json.loads(jestlab("status", "ridge", "--json"))
    found = {(row["label"], *row["changed"], row["attempts"]) for row in statuses}
    assert found == {("plain", 2), ("wide", "code noise.py", 1)}
    launch(spec, "--set", "seeds=3")
    assert "‡ wide: seeds were made with different code (noise.py)" in jestlab("table", "ridge")
    assert change in jestlab("diff", "ridge/wide/1", "ridge/wide/2")
    launch(spec, "--rerun-changed", "--set", "seeds=3")
    assert "different code" not in jestlab("status", "ridge")


def test_an_accepted_change_is_not_reported_again(root, spec, jestlab, launch):
    launch(spec, "--set", "seeds=1")
    (spec.parent / "noise.py").write_text("NOISE = 0.1  # a comment\n")
    assert "2 of 2 runs were made with different code" in launch(spec)
    assert "reason" in jestlab("accept", "ridge", "--reason", " ", code=1)
    assert "noise.py" in jestlab("accept", "ridge", "--reason", "a comment alone", "--author", "Ada")
    assert "different code" not in jestlab("plan", spec) + jestlab("status", "ridge")
    [row] = json.loads(jestlab("accept", "ridge", "--json"))
    assert (row["author"], row["reason"]) == ("Ada", "a comment alone")
    assert list(row["accepted"]) == ["code noise.py"]
    explained = jestlab(*EXPLAIN)
    assert "Ada accepted on " in explained and "that noise.py differs: a comment alone" in explained
    own_code.change(spec.parent, 2.0)
    assert "code (noise.py)" in jestlab("plan", spec)


def test_where_nothing_was_recorded_nothing_is_known(root, spec, jestlab, launch):
    launch(spec, "--set", "seeds=1")
    own_code.change(spec.parent, 2.0)
    with sqlite3.connect(root / "results.db") as store:
        columns = ("code_commit", "code_patch", "sources", "inputs", "training_seconds")
        store.execute(f"UPDATE attempt SET {', '.join(f'{column} = NULL' for column in columns)}")
    assert "nothing to run" in (again := launch(spec, "--set", "seeds=1"))
    status = jestlab("status", "ridge")
    assert "different code" not in again + jestlab("plan", spec) + status
    assert "goodput unknown: the attempts did not measure it" in status
    for runs in (["ridge/plain/0"], ["ridge/plain/0", "ridge/wide/0"]):
        assert "code: unknown" in jestlab("diff", *runs)
    assert "‡" not in jestlab("table", "ridge")
    assert "; code not recorded; jestlab " in jestlab(*EXPLAIN)


def test_status_of_an_imported_study_executes_nothing(root, tmp_path, jestlab, launch):
    """Its config names the interpreter, and may come from anyone."""
    trap, sprung = tmp_path / "study" / "python", tmp_path / "sprung"
    spec = own_code.write(tmp_path / "study", seeds=1, runs={"plain": {}, "trap": {"width": 2}})
    launch(spec)
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    with sqlite3.connect(root / "results.db") as store:
        config = json.dumps({"command": [str(trap), "ridge.py"], "cwd": str(trap.parent)})
        failed = "UPDATE run SET config = ?, state = 'FAILED' WHERE directory LIKE 'runs/trap%'"
        assert store.execute(failed, [config]).rowcount == 1
        store.execute("UPDATE member SET label = 'plain'")
    jestlab("status", "ridge")
    assert not sprung.exists()


def test_retracts_a_run_with_its_dependents_and_runs_them_again(tmp_path, jestlab, launch):
    def column(name):
        return {row["run"]: row[name] for row in json.loads(jestlab("status", "toy", "--json"))}

    toy = labs.write_study(tmp_path)  # `joint` needs `reference`
    launch(toy)
    jestlab("retract", "toy/joint", code=2)
    jestlab("retract", "--undo", code=2)
    assert "reason" in jestlab("retract", "toy/joint", " ", code=1)
    assert jestlab("retract") == "no results are retracted\n"
    retraction = jestlab("retract", "toy/reference", "wrong shards", "--author", "Ada")
    assert "wrong shards" in retraction and "depends on" in retraction and "uniform" not in retraction
    retracted = {"reference": "wrong shards", "joint": "wrong shards", "uniform": None}
    assert column("retracted") == retracted
    line = "2 of 3 runs are retracted: wrong shards (--rerun-retracted runs them again"
    assert line in jestlab("plan", toy) and line in launch(toy)
    assert "retracted: wrong shards" in jestlab("status", "toy")
    assert "COMPLETED, retracted: wrong shards" in jestlab("diff", "toy/reference", "toy/uniform")
    assert "~~" in (table := jestlab("table", "toy")) and "joint is retracted: wrong shards" in table
    assert "depends on run" in jestlab("retract", "toy/joint", "--undo", code=1)
    again = launch(toy, "--rerun-retracted")
    assert "2 runs to run again" in again and line not in again
    assert set(column("retracted").values()) == {None}
    assert column("attempts") == {"reference": 2, "joint": 2, "uniform": 1}

    [row] = json.loads(jestlab("retract", "toy/uniform", "no", "--author", "Bo", "--json"))
    assert (row["label"], row["reason"], row["author"]) == ("uniform", "no", "Bo")
    jestlab("retract", "toy/uniform", "--undo")
    assert set(column("retracted").values()) == {None}
