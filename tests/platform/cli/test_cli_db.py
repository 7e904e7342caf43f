"""`jestlab db`: upgrade, check, backup, and restore, on both databases."""

import itertools
import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import plans_support as plans
import pytest
import rows_support as rows
import stores_support as stores
from click.testing import CliRunner
from sqlalchemy import Engine, insert, text
from tests.waiting import wait_until

from jestlab.analysis.connection import SCHEMA
from jestlab.platform.cli import cli
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import tables
from jestlab.platform.store.engine import writable
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store

RUNS = [plans.run("uniform", seed=0), plans.run("uniform", seed=1), plans.run("joint", point={"ratio": 0.8})]


@pytest.fixture
def lab(tmp_path, database_url) -> Lab:
    """A lab without a store."""
    (tmp_path / "lab").mkdir()
    return Lab.find(tmp_path / "lab", database_url)


@pytest.fixture
def sound(lab: Lab) -> Iterator[Engine]:
    """The lab's store with the current schema, two completed runs, and a pending one."""
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(*RUNS))
        for run in RUNS[:2]:
            stores.attempt(store, run, scores={"toy/score": 0.5}, loss=(2.0, 1.0))
            (lab.root / run.directory).mkdir(parents=True)
    engine = writable(lab.store_url)
    yield engine
    engine.dispose()


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


@pytest.mark.both_databases
def test_a_missing_store_is_an_error(lab, tmp_path):
    for arguments in (["upgrade"], ["backup", tmp_path / "copy.db"]):
        with pytest.raises(UserError, match=r"no store at|is empty"):
            db(lab, *arguments)
    assert not list(tmp_path.glob("*copy.db*"))


@pytest.mark.both_databases
def test_upgrade_recreates_changed_views(lab, sound):
    change(sound, "DROP VIEW v_costs", "CREATE VIEW v_costs AS SELECT 1 AS one", "DROP VIEW v_metrics")
    printed = db(lab, "check", code=1)
    assert "the view v_costs differs" in printed and "run jestlab db upgrade" in printed
    change(sound, "UPDATE alembic_version SET version_num = '0009'")
    [(kind, what)] = findings(lab)
    assert kind == "schema" and "has schema 0009, older than" in what
    change(sound, f"UPDATE alembic_version SET version_num = '{SCHEMA}'")
    assert "v_costs" in json.loads(db(lab, "upgrade", "--json"))["views"]
    assert db(lab, "check").startswith("sound: ")


# ---- check


def findings(lab: Lab) -> list[tuple[str, str]]:
    checked = json.loads(db(lab, "check", "--json", code=1))
    assert not checked["sound"]
    assert all(finding["remedy"] for finding in checked["findings"])
    return [(finding["check"], finding["what"]) for finding in checked["findings"]]


def test_a_sound_store(lab, sound):
    before = rows.everything(sound)
    assert "sesame" not in db(lab, "check")
    assert json.loads(db(lab, "check", "--json")) == {"sound": True, "findings": []}
    assert rows.everything(sound) == before


def test_finds_lost_runs_missing_folders_and_changed_tables(lab, sound):
    with closing(Store.open(lab.store_url)) as store:
        stores.attempt(store, RUNS[2], RunState.RUNNING)
    (lab.root / RUNS[0].directory).rmdir()
    (first, lost), (second, missing) = findings(lab)
    assert (first, second) == ("runs", "folders")
    assert f"{RUNS[2].directory} is RUNNING, but its worker sent no heartbeat since 2026" in lost
    assert f"{RUNS[0].directory} is COMPLETED, but this folder is missing" in missing
    change(sound, f"UPDATE attempt SET heartbeat_at = '{now()}' WHERE state = 'RUNNING'")
    assert [kind for kind, _ in findings(lab)] == ["folders"]
    cascade = "" if sound.dialect.name == "sqlite" else " CASCADE"
    change(sound, "ALTER TABLE cost ADD COLUMN dollars INTEGER", f"DROP TABLE note{cascade}")
    differences = " ".join(what for kind, what in findings(lab) if kind == "schema")
    assert "add_table note" in differences and "remove_column cost dollars" in differences


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_finds_rows_without_the_rows_that_they_reference(lab, sound):
    with sqlite3.connect(sound.url.database) as raw:  # foreign keys are off unless asked for
        raw.execute("DELETE FROM metric_name")
    raw.close()
    assert ("references", "4 rows of metric refer to missing rows of metric_name") in findings(lab)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_finds_a_damaged_file(lab, sound):
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
    with closing(Store.open(url, create=False)) as store:
        found = store.id()
    assert re.fullmatch("[0-9a-f]{32}", found)
    return found


def test_a_backup_is_a_store(lab, sound, tmp_path):
    change(sound, "UPDATE attempt SET handle = 'a job', token = 'its secret'")
    path = tmp_path / "copy.db"
    assert json.loads(db(lab, "backup", path, "--json"))["path"] == str(path)
    assert [file.name for file in tmp_path.glob("*copy.db*")] == ["copy.db"]  # and no temporary file
    copy = writable(f"sqlite:///{path}")
    assert rows.everything(copy) == rows.copied(rows.everything(sound))
    copy.dispose()
    assert len({id_of(lab.store_url), id_of(f"sqlite:///{path}")}) == 2
    assert db(Lab(lab.root, f"sqlite:///{path}"), "check").startswith("sound")
    for other, problem in ((path, "already exists"), (tmp_path / "nowhere" / "copy.db", "no folder")):
        with pytest.raises(UserError, match=problem):
            db(lab, "backup", other)


def test_a_backup_during_writes_is_consistent(lab, sound, tmp_path):
    """Each transaction of the writer adds a row to two tables."""
    stopped, counts = threading.Event(), [0]

    def write() -> None:
        with closing(Store.open(lab.store_url)) as store:
            for number in itertools.takewhile(lambda _: not stopped.is_set(), itertools.count()):
                name = {"name": f"n{number}"}
                with store.writing() as connection:
                    connection.execute(insert(tables.LauncherRow).values(name | {"heartbeat_at": now()}))
                    connection.execute(insert(tables.MetricNameRow).values(name))

    def written() -> int:
        with sound.connect() as connection:
            return int(connection.execute(text("SELECT COUNT(*) FROM launcher")).scalar_one())

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            for number in range(3):
                wait_until(lambda: writer.done() or written() > counts[-1])
                db(lab, "backup", tmp_path / f"{number}.db")
                copy = writable(f"sqlite:///{tmp_path / f'{number}.db'}")
                content = rows.everything(copy)
                copy.dispose()
                names = {row["name"] for row in content["launcher"]}
                assert names == {row["name"] for row in content["metric_name"]} - {"loss"}
                counts.append(len(names))
        finally:
            stopped.set()
        writer.result()
    assert 0 < counts[1] < counts[2] < counts[3]


@pytest.mark.both_databases
def test_restores_into_another_database_without_active_runs(lab, tmp_path):
    """A launch would adopt the workers of the original, get no heartbeats from them, and stop them."""
    file = tmp_path / "old.db"
    with closing(Store.open(f"sqlite:///{file}")) as source:
        plans.record(source, plans.plan(*RUNS))
        stores.attempt(source, RUNS[0], scores={"toy/score": 0.5}, loss=(2.0, 1.0))
        stores.attempt(source, RUNS[1], RunState.RUNNING, handle="machine:1:2:log")
        number = plans.claimed(source, RUNS[2])
        before = rows.everything(source.engine)
    db(lab, "restore", file)
    assert list(tmp_path.glob(".*")) == []
    assert id_of(lab.store_url) != id_of(f"sqlite:///{file}")  # two stores with different jobs
    store = Store.open(lab.store_url, create=False)
    after = rows.everything(store.engine)
    same = before.keys() - {"attempt", "launcher", "run"}
    assert {table: after[table] for table in same} == {table: before[table] for table in same}
    assert after["launcher"] == []
    states = [store.states([run.fingerprint])[run.fingerprint] for run in RUNS]
    assert states == [RunState.COMPLETED, RunState.PREEMPTED, RunState.PENDING]
    assert "was running when" in store.reasons([RUNS[1].fingerprint])[RUNS[1].fingerprint]
    attempts = {row["run_id"]: row for row in after["attempt"]}
    states = [attempts[stores.run_id(store, run)]["state"] for run in RUNS]
    assert states == ["COMPLETED", "PREEMPTED", "PREEMPTED"]
    assert plans.claimed(store, RUNS[2]) == number + 1
    plans.record(store, plans.plan(plans.run("new"), name="another"))  # sequences continue
    store.close()
    with closing(Store.open(f"sqlite:///{file}", create=False)) as source:
        assert rows.everything(source.engine) == before

    with pytest.raises(UserError, match=r"not empty|already exists"):
        db(lab, "restore", file)
    (tmp_path / "notes.txt").write_text("no database")
    with pytest.raises(UserError, match=r"not a database|already exists"):
        db(lab, "restore", tmp_path / "notes.txt")
