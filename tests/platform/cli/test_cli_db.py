"""`db`: upgrade, check, backup, restore, on both databases."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import plans_support as plans
import pytest
import rows_support as rows
import stores_support as stores
from click.testing import CliRunner
from sqlalchemy import Engine, text

from jestlab.platform.cli import cli, main
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import schema
from jestlab.platform.store.engine import writable
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import now

OLD = schema.HEAD
RUNS = [plans.run("uniform", seed=0), plans.run("uniform", seed=1), plans.run("joint", point={"ratio": 0.8})]


@pytest.fixture
def lab(tmp_path, store_url) -> Lab:
    (tmp_path / "lab").mkdir()
    return Lab.find(tmp_path / "lab", store_url)


@pytest.fixture
def lab_without_store(tmp_path, database_url) -> Lab:
    (tmp_path / "lab").mkdir()
    return Lab.find(tmp_path / "lab", database_url)


@pytest.fixture
def engine(lab: Lab) -> Iterator[Engine]:
    engine = writable(lab.store_url)
    yield engine
    engine.dispose()


@pytest.fixture
def old(engine: Engine, tmp_path, monkeypatch) -> Engine:
    """A store with rows in every table, while the code has a schema that follows."""
    rows.fill(engine, rows.ROWS)
    head, folders = rows.add_later_schema(tmp_path / "later")
    monkeypatch.setattr(schema, "HEAD", head)
    monkeypatch.setattr(schema, "MIGRATIONS", folders)
    return engine


@pytest.fixture
def sound(lab: Lab, engine: Engine) -> Engine:
    """A store of today, with two completed runs and one to come."""
    store = Store.open(lab.store_url)
    store.record(plans.plan(*RUNS))
    for run in RUNS[:2]:
        stores.attempt(store, run, scores={"toy/score": 0.5}, loss=(2.0, 1.0))
        (lab.root / run.directory).mkdir(parents=True)
    store.close()
    return engine


def db(lab: Lab, *arguments: object, code: int = 0) -> str:
    words = ["db", *map(str, arguments), "--root", str(lab.root), "--store", lab.store_url]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def change(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


# ---- upgrade


def test_an_old_store_is_upgraded_and_kept(lab, old, tmp_path):
    before = rows.everything(old)
    with pytest.raises(UserError, match="run jestlab db upgrade"):
        Store.open(lab.store_url)
    said = db(lab, "upgrade").splitlines()
    assert said[0] == f"schema {OLD} → {schema.HEAD}"
    store = Store.open(lab.store_url, create=False)
    assert len(store.runs("toy")) == 3
    store.close()
    if old.dialect.name == "sqlite":
        kept = writable(f"sqlite:///{said[1].removeprefix('copy of the old store: ')}")
        assert rows.everything(kept) == rows.copied(before)
        with kept.connect() as connection:
            assert schema.revision(connection) == OLD
    assert db(lab, "upgrade") == f"nothing to do: the schema is {schema.HEAD} already\n"
    assert json.loads(db(lab, "upgrade", "--json"))["from"] == schema.HEAD


def test_runs_at_work_are_not_upgraded_away(lab, old):
    with old.begin() as connection:
        statement = text(
            "UPDATE attempt SET state = 'RUNNING', ended_at = NULL, heartbeat_at = :now WHERE id = 5"
        )
        connection.execute(statement, {"now": str(now()) if old.dialect.name == "sqlite" else now()})
    with pytest.raises(UserError, match=r"1 run is at work \(h\): stop them"):
        db(lab, "upgrade")
    with old.begin() as connection:
        assert schema.revision(connection) == OLD
        past = now() - timedelta(minutes=5)
        connection.execute(text("UPDATE attempt SET heartbeat_at = :past WHERE id = 5"), {"past": str(past)})
    db(lab, "upgrade")


def test_a_store_that_is_not_there_cannot_be_upgraded(lab_without_store):
    with pytest.raises(UserError, match=r"no store at|is empty"):
        db(lab_without_store, "upgrade")


def test_a_store_of_an_unknown_schema_cannot_be_upgraded(lab, engine):
    for version, remedy in (("9999", "upgrade jestlab"), ("0002", "run jestlab export")):
        change(engine, f"UPDATE alembic_version SET version_num = '{version}'")
        with pytest.raises(UserError, match=remedy):
            db(lab, "upgrade")


def test_views_that_somebody_changed_are_made_anew(lab, sound):
    change(sound, "DROP VIEW v_costs", "CREATE VIEW v_costs AS SELECT 1 AS one", "DROP VIEW v_metrics")
    said = db(lab, "check", code=1)
    assert "the view v_costs is not the one of this code: run jestlab db upgrade" in said
    assert "v_metrics" in said
    assert db(lab, "upgrade") == f"schema {schema.HEAD}; views recreated: v_metrics, v_costs\n"
    assert db(lab, "check").startswith("sound: ")


# ---- check


def findings(lab: Lab) -> list[tuple[str, str]]:
    said = json.loads(db(lab, "check", "--json", code=1))
    assert not said["sound"]
    assert all(finding["remedy"] for finding in said["findings"])
    return [(finding["check"], finding["what"]) for finding in said["findings"]]


def test_a_sound_store(lab, sound):
    before = rows.everything(sound)
    assert "sesame" not in db(lab, "check")
    assert json.loads(db(lab, "check", "--json")) == {"sound": True, "findings": []}
    assert rows.everything(sound) == before


def test_an_old_store_is_one_finding(lab, old):
    [(kind, what)] = findings(lab)
    assert kind == "schema"
    assert f"older schema {OLD}" in what


def test_runs_that_vanished_and_folders_that_are_gone(lab, sound):
    store = Store.open(lab.store_url)
    stores.attempt(store, RUNS[2], RunState.RUNNING)
    (lab.root / RUNS[0].directory).rmdir()
    found = findings(lab)
    assert [kind for kind, _ in found] == ["runs", "folders"]
    assert (
        f"{RUNS[2].directory} is RUNNING, but no worker was heard of since 2026-11-20 12:00 UTC"
        in found[0][1]
    )
    assert f"{RUNS[0].directory} is COMPLETED, but there is no such folder" in found[1][1]
    with store.writing() as connection:
        connection.execute(
            text("UPDATE attempt SET heartbeat_at = :now WHERE state = 'RUNNING'"), {"now": str(now())}
        )
    assert [kind for kind, _ in findings(lab)] == ["folders"]
    store.close()


def test_many_findings_of_a_kind_are_counted(lab, sound):
    store = Store.open(lab.store_url)
    runs = [plans.run("more", config={"more": 1}, seed=seed) for seed in range(20)]
    store.record(plans.plan(*runs, name="more"))
    for run in runs:
        stores.attempt(store, run)
    store.close()
    found = findings(lab)
    assert len(found) == 5
    assert found[-1] == ("folders", "and 16 more")


def test_tables_changed_by_hand(lab, sound):
    cascade = "" if sound.dialect.name == "sqlite" else " CASCADE"
    change(sound, "ALTER TABLE cost ADD COLUMN dollars INTEGER", f"DROP TABLE note{cascade}")
    found = findings(lab)
    assert {kind for kind, _ in found} <= {"schema", "views"}
    differences = [what for kind, what in found if kind == "schema"]
    assert any("note" in what for what in differences)
    assert any("dollars" in what for what in differences)


def test_rows_without_what_they_refer_to(lab, sound):
    if sound.dialect.name == "sqlite":
        with sqlite3.connect(sound.url.database) as raw:  # foreign keys are off unless asked for
            raw.execute("DELETE FROM metric_name")
        raw.close()
    else:
        change(
            sound,
            "ALTER TABLE metric DROP CONSTRAINT fk_metric_name_id_metric_name",
            "DELETE FROM metric_name",
        )
    found = findings(lab)
    assert ("references", "4 of the rows of metric refer to no row of metric_name") in found


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_damaged_file(lab, sound):
    sound.dispose()
    path = Path(sound.url.database or "")
    data = bytearray(path.read_bytes())
    for start in range(4096 * 3, len(data), 4096):
        data[start : start + 64] = b"\xff" * 64
    path.write_bytes(data)
    found = findings(lab)
    assert {kind for kind, _ in found} == {"file"}
    with pytest.raises(UserError, match=r"damaged|malformed"):
        db(lab, "backup", path.with_name("copy.db"))
    assert not path.with_name("copy.db").exists()


# ---- backup and restore


def id_of(url: str) -> str:
    store = Store.open(url, create=False)
    try:
        found = store.id()
    finally:
        store.close()
    assert re.fullmatch("[0-9a-f]{32}", found)
    return found


def test_a_backup_is_a_store(lab, sound, tmp_path):
    path = tmp_path / "copy.db"
    assert json.loads(db(lab, "backup", path, "--json"))["path"] == str(path)
    assert [file.name for file in tmp_path.glob("*copy.db*")] == ["copy.db"]  # and nothing beside it
    copy = writable(f"sqlite:///{path}")
    assert rows.everything(copy) == rows.copied(rows.everything(sound))
    copy.dispose()
    assert len({id_of(lab.store_url), id_of(f"sqlite:///{path}")}) == 2
    assert db(Lab(lab.root, f"sqlite:///{path}"), "check").startswith("sound")
    with pytest.raises(UserError, match="there already"):
        db(lab, "backup", path)
    with pytest.raises(UserError, match="no folder"):
        db(lab, "backup", tmp_path / "nowhere" / "copy.db")


def test_a_backup_of_an_old_store_is_old(lab, old, tmp_path):
    db(lab, "backup", tmp_path / "copy.db")
    copy = writable(f"sqlite:///{tmp_path / 'copy.db'}")
    assert rows.everything(copy) == rows.copied(rows.everything(old))
    schema.migrate(copy, schema.HEAD)
    copy.dispose()


def test_a_backup_of_nothing(lab_without_store, tmp_path):
    with pytest.raises(UserError, match=r"no store|is empty"):
        db(lab_without_store, "backup", tmp_path / "copy.db")
    assert not list(tmp_path.glob("*copy.db*"))


def test_a_backup_while_others_write_is_of_one_moment(lab, sound, tmp_path):
    """The writer adds an experiment and a launcher of the same name, always both at once."""
    code = (
        "import sys; from sqlalchemy import text; from jestlab.platform.store.store import Store\n"
        f"store = Store.open({lab.store_url!r})\n"
        "for number in range(100_000):\n"
        "    with store.writing() as connection:\n"
        "        name = {'name': f'n{number}', 'time': '2024-01-01'}\n"
        "        launcher = 'INSERT INTO launcher (name, heartbeat_at) VALUES (:name, :time)'\n"
        "        connection.execute(text(launcher), name)\n"
        "        connection.execute(text('INSERT INTO metric_name (name) VALUES (:name)'), name)\n"
        "    if number == 20: print('writing', flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        for number in range(3):
            db(lab, "backup", tmp_path / f"{number}.db")
    finally:
        writer.kill()
        writer.communicate()
    counts = []
    for number in range(3):
        copy = writable(f"sqlite:///{tmp_path / f'{number}.db'}")
        tables = rows.everything(copy)
        names = {row["name"] for row in tables["launcher"]}
        assert names == {row["name"] for row in tables["metric_name"]} - {"loss"}
        counts.append(len(names))
        copy.dispose()
    assert 20 < counts[0] < counts[-1]


def test_a_store_moves_to_another_database(lab_without_store, tmp_path):
    lab = lab_without_store
    source = Store.open(f"sqlite:///{tmp_path / 'old.db'}")
    source.record(plans.plan(*RUNS))
    for run in RUNS[:2]:
        stores.attempt(source, run, scores={"toy/score": 0.5}, loss=(2.0, 1.0))
    before = rows.everything(source.engine)
    source.close()
    db(lab, "restore", tmp_path / "old.db")
    ids = [id_of(lab.store_url), id_of(f"sqlite:///{tmp_path / 'old.db'}")]
    assert ids == [id_of(lab.store_url), id_of(f"sqlite:///{tmp_path / 'old.db'}")]
    assert len(set(ids)) == 2  # two stores, whose jobs are not each other's
    target = Store.open(lab.store_url, create=False)
    assert rows.everything(target.engine) == before
    target.record(plans.plan(plans.run("new"), name="another"))  # numbers go on where they were
    stores.attempt(target, RUNS[2])
    target.close()
    with pytest.raises(UserError, match=r"not empty|there already"):
        db(lab, "restore", tmp_path / "old.db")
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(UserError, match="not a database"):
        db(lab, "restore", tmp_path / "diary.txt")


def test_what_was_at_work_is_not_in_a_restored_store(lab_without_store, tmp_path):
    """A launch on it would take the original's workers for its own, hear nothing of them, and stop them."""
    lab = lab_without_store
    source = Store.open(f"sqlite:///{tmp_path / 'old.db'}")
    source.record(plans.plan(*RUNS))
    stores.attempt(source, RUNS[0], scores={"toy/score": 0.5}, loss=(2.0, 1.0))
    stores.attempt(source, RUNS[1], RunState.RUNNING, handle="machine:1:2:log")
    number = plans.claimed(source, RUNS[2])
    before = rows.everything(source.engine)
    source.close()
    db(lab, "restore", tmp_path / "old.db")
    assert list(tmp_path.glob(".*")) == []
    store = Store.open(lab.store_url, create=False)
    assert store.states(run.fingerprint for run in RUNS) == {
        RUNS[0].fingerprint: RunState.COMPLETED,
        RUNS[1].fingerprint: RunState.PREEMPTED,
        RUNS[2].fingerprint: RunState.PENDING,
    }
    assert store.reasons([RUNS[1].fingerprint]) == {RUNS[1].fingerprint: "restored from a backup"}
    attempts = {row["run_id"]: row for row in rows.everything(store.engine)["attempt"]}
    states = [attempts[stores.run_id(store, run)]["state"] for run in RUNS]
    assert states == ["COMPLETED", "PREEMPTED", "PREEMPTED"]
    assert all(row["ended_at"] is not None for row in attempts.values())
    assert plans.claimed(store, RUNS[2]) == number + 1
    store.close()
    original = writable(f"sqlite:///{tmp_path / 'old.db'}")
    assert rows.everything(original) == before
    original.dispose()


def test_every_verb_has_help_with_an_example(capsys):
    for verb in ("upgrade", "check", "backup", "restore"):
        shown = CliRunner().invoke(cli, ["db", verb, "--help"]).output
        assert "Examples:" in shown
        assert "--json" in shown
    with pytest.raises(SystemExit) as stop:
        main(["db", "backup"])
    assert stop.value.code == 2
