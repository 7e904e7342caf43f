"""Code has an identity: what was made by other code is said, shown, accepted, or run again."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import labs_support as labs
import own_code
import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from rows_support import added_after
from sqlalchemy import create_engine

from jestlab.analysis import query
from jestlab.platform.lab.lab import Lab

pytestmark = pytest.mark.usefixtures("forking")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return own_code.write(tmp_path / "study")


def launched(root: Path, spec: Path, *arguments: str) -> str:
    done = labs.here("launch", spec, "--no-reports", *arguments, root=root)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def said(root: Path, *arguments: object) -> str:
    done = labs.here(*arguments, root=root)
    assert done.returncode == 0, done.stderr
    return done.stdout


def scores(root: Path) -> list[tuple[str, int, float]]:
    found = query.frame(Lab.find(root).store_url, view="evaluations")
    return sorted(zip(found["label"], found["seed"], found["value"], strict=True))


def test_other_code_is_said_shown_and_run_again(root, spec):
    first = launched(root, spec)
    assert "digests of your own scripts" in first
    assert "other code" not in said(root, "plan", spec) + said(root, "status", "ridge")
    own_code.change(spec.parent, 1.0)
    told = (
        "6 of 6 runs were made by other code: noise.py changed (jestlab diff ridge/plain/0; --rerun-changed "
        'runs them again; jestlab accept ridge --reason "…")'
    )
    assert told in said(root, "plan", spec)
    assert told in said(root, "status", "ridge")
    assert told in launched(root, spec)
    assert scores(root)[1] == ("plain", 1, 0.51)
    shown = said(root, "diff", "ridge/plain/0")
    assert "-NOISE = 0.1\n+NOISE = 1.0" in shown and "ridge.py" not in shown
    again = launched(root, spec, "--rerun-changed", "plain")
    assert "3 runs to run again: what they measured is replaced" in again
    assert scores(root) == [
        ("plain", 0, 0.5), ("plain", 1, 0.6), ("plain", 2, 0.7),
        ("wide", 0, 0.5), ("wide", 1, 0.51), ("wide", 2, 0.52),
    ]  # fmt: skip
    assert "3 of 6 runs were made by other code" in said(root, "status", "ridge")
    both = said(root, "diff", "ridge/wide/1", "ridge/plain/1")
    assert "-NOISE = 0.1\n+NOISE = 1.0" in both
    statuses = json.loads(said(root, "status", "ridge", "--json"))
    assert {(row["label"], *row["changed"], row["attempts"]) for row in statuses} == {
        ("plain", 2),
        ("wide", "code noise.py", 1),
    }
    assert "made by another noise.py than other rows" in said(root, "table", "ridge")
    explained = said(root, "table", "ridge", "--explain", "plain", "toy/score")
    assert "code noise.py " in explained and "ridge.py " in explained and "jestlab " in explained
    assert "the code of its runs differs" not in explained
    launched(root, spec, "--set", "seeds=4")
    assert "‡ wide mixes 2 states of noise.py" in said(root, "table", "ridge")
    explained = said(root, "table", "ridge", "--explain", "wide", "toy/score")
    assert "the code of its runs differs" in explained and "-NOISE = 0.1\n+NOISE = 1.0" in explained
    launched(root, spec, "--rerun-changed", "--set", "seeds=4")
    assert "other code" not in said(root, "status", "ridge") and "‡" not in said(root, "table", "ridge")


def test_a_difference_that_was_accepted_is_not_said_again_and_the_next_one_is(root, spec):
    launched(root, spec, "--set", "seeds=1")
    (spec.parent / "noise.py").write_text("NOISE = 0.1  # a comment\n")
    assert "2 of 2 runs were made by other code" in launched(root, spec)
    refused = labs.here("accept", "ridge", "--reason", " ", root=root)
    assert (refused.returncode, "say why" in refused.stderr) == (1, True)
    assert "noise.py" in said(root, "accept", "ridge", "--reason", "a comment alone", "--author", "Ada")
    for verb in (["plan", spec], ["status", "ridge"]):
        assert "other code" not in said(root, *verb)
    assert "nothing to accept" in said(root, "accept", "ridge", "--reason", "again")
    [row] = json.loads(said(root, "accept", "ridge", "--json"))
    assert (row["author"], row["reason"], list(row["accepted"])) == (
        "Ada", "a comment alone", ["code noise.py"],
    )  # fmt: skip
    own_code.change(spec.parent, 2.0)
    assert "noise.py changed" in said(root, "plan", spec)
    explained = said(root, "table", "ridge", "--explain", "plain", "toy/score")
    assert "Ada accepted on " in explained and "that noise.py differs: a comment alone" in explained


def test_data_and_packages_that_the_spec_names_count_as_code_does(root, tmp_path):
    data = tmp_path / "study" / "data"
    spec = own_code.write(tmp_path / "study", record={"packages": ["click"], "files": ["data/"]}, seeds=1)
    data.mkdir()
    (data / "train.csv").write_text("1\n")
    launched(root, spec)
    [(versions, inputs)] = set(
        query.select(Lab.find(root).store_url, "attempts", columns=["versions", "inputs"]).rows
    )
    assert "click" in json.loads(versions) and list(json.loads(inputs)) == ["data"]
    (data / "train.csv").write_text("2\n")
    assert "2 of 2 runs were made by other data: data changed" in said(root, "plan", spec)
    assert "DATA" in said(root, "diff", "ridge/plain/0")


def test_rerun_names_are_checked_and_need_the_option(root, spec):
    launched(root, spec, "--set", "seeds=1")
    wrong = labs.here("launch", spec, "--rerun-changed", "plane", root=root)
    assert "no run 'plane' in ridge: did you mean 'plain'?" in wrong.stderr
    alone = labs.here("launch", spec, "plain", root=root)
    assert (alone.returncode, "--rerun-changed" in alone.stderr) == (2, True)


def as_of_0004(path: Path) -> None:
    """Make of a store one of the schema before code had an identity."""
    with sqlite3.connect(path) as store:
        views = store.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
        for [view] in views:
            store.execute(f"DROP VIEW {view}")
        store.execute("UPDATE alembic_version SET version_num = '0004'")
        store.execute("DROP INDEX ix_run_state_updated_at_step")  # of 0009
    added = added_after("0004")
    with create_engine(f"sqlite:///{path}").begin() as connection:
        # SQLite cannot drop a column that refers to another table: Alembic makes the table anew.
        operations = Operations(MigrationContext.configure(connection))
        for name, columns in added.items():
            if columns:
                with operations.batch_alter_table(name, reflect_kwargs={"resolve_fks": False}) as table:
                    if "lab_id" in columns:
                        table.drop_constraint(f"fk_{name}_lab_id_lab", type_="foreignkey")
                    for column in columns:
                        table.drop_column(column)
        for name in (name for name, columns in added.items() if not columns):
            operations.drop_table(name)


def test_the_code_of_an_older_lab_is_unknown_and_no_warning(root, spec):
    launched(root, spec, "--set", "seeds=1")
    as_of_0004(root / "results.db")
    assert "run jestlab db upgrade" in labs.here("status", "ridge", root=root).stderr
    said(root, "db", "upgrade")
    own_code.change(spec.parent, 1.0)
    assert "nothing to run" in (told := launched(root, spec, "--set", "seeds=1"))
    assert "other code" not in told + said(root, "plan", spec) + said(root, "status", "ridge")
    for runs in (["ridge/plain/0"], ["ridge/plain/0", "ridge/wide/0"]):
        assert "CODE  unknown" in said(root, "diff", *runs)
    assert "‡" not in said(root, "table", "ridge")
    assert "; code not recorded; jestlab " in said(root, "table", "ridge", "--explain", "plain", "score")
    launched(root, spec, "--set", "seeds=2")  # the new seeds are known, the old ones are not
    assert "other code" not in said(root, "status", "ridge") and "‡" not in said(root, "table", "ridge")


def test_status_of_an_imported_study_executes_nothing(root, tmp_path):
    """What it would run next is named by its config, which may be anybody's."""
    trap, sprung = tmp_path / "study" / "python", tmp_path / "sprung"
    spec = own_code.write(tmp_path / "study", seeds=1, runs={"plain": {}, "trap": {"width": 2}})
    launched(root, spec)
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    with sqlite3.connect(root / "results.db") as store:
        config = json.dumps({"command": [str(trap), "ridge.py"], "cwd": str(trap.parent)})
        store.execute("UPDATE run SET config = ?, state = 'FAILED' WHERE id = 2", [config])
        store.execute("UPDATE member SET label = 'plain'")
    said(root, "status", "ridge")
    assert not sprung.exists()


def test_versions_that_differ_within_one_cell_are_said(root, spec):
    launched(root, spec, "--set", "seeds=2")
    with sqlite3.connect(root / "results.db") as store:
        version = "json_set(versions, '$.numpy', CASE run_id WHEN 1 THEN '1.0' ELSE '2.0' END)"
        store.execute(f"UPDATE attempt SET versions = {version}")
    told = "results mix 2 versions of numpy: plain (--rerun-changed runs the older ones again; jestlab accept"
    assert told in said(root, "status", "ridge") and told in said(root, "plan", spec, "--set", "seeds=2")
    assert "1 run to run again" in launched(root, spec, "--rerun-changed", "--set", "seeds=2")


def test_what_needs_a_run_that_runs_again_runs_again(root, tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "other.py").write_text("")
    third = {"command": ["python", "other.py"]}
    runs = {"first": {"width": 1}, "second": {"needs": ["first"], **third}, "third": third}
    spec = own_code.write(tmp_path / "study", seeds=1, runs=runs)
    launched(root, spec)
    own_code.change(tmp_path / "study", 1.0)
    assert "1 of 3 runs was made by other code" in said(root, "plan", spec)
    assert "2 runs to run again" in launched(root, spec, "--rerun-changed")
    assert {(row["run"], row["attempts"]) for row in json.loads(said(root, "status", "ridge", "--json"))} == {
        ("first", 2), ("second", 2), ("third", 1),
    }  # fmt: skip
    store = query.frame(Lab.find(root).store_url, view="runs").set_index("run")["directory"]
    assert store["first"].startswith("runs/first.again2-") and ".again" not in store["third"]
    assert labs.here("db", "check", root=root).returncode == 0
