"""Migrations with rows in every table: nothing lost, nothing half done, and the models' tables in the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import rows_support as rows
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import IntegrityError

from jestlab.platform.errors import UserError
from jestlab.platform.store import schema
from jestlab.platform.store.engine import writable
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Base
from jestlab.platform.store.views import VIEWS


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    engine = writable(store_url)
    yield engine
    engine.dispose()


@pytest.fixture
def first(engine: Engine) -> Engine:
    """A store of the first schema, with data."""
    schema.migrate(engine, "0001")
    rows.fill(engine, rows.FIRST)
    return engine


def test_rows_stay_up_and_down(first):
    before = rows.everything(first)
    assert all(before.values()), "a table without rows proves nothing"
    schema.migrate(first, "0002")
    after = rows.everything(first)
    for table, its_rows in before.items():
        kept = [{column: row[column] for column in its_rows[0]} for row in after[table]]
        assert sorted(kept, key=repr) == its_rows
    assert {row["failures"] for row in after["run"]} == {0}
    assert {
        (row["executor"], row["chips"], row["lease_seconds"], row["launcher_id"]) for row in after["attempt"]
    } == {("local", 0, 90, None)}
    assert all(row["claimed_at"] == row["started_at"] for row in after["attempt"])
    assert [after[table] for table in ("launcher", "budget", "note", "tag")] == [[], [], [], []]
    schema.migrate(first, "0001")
    assert rows.everything(first) == before


def test_what_the_old_schema_cannot_say_is_left_out_on_the_way_down(first):
    schema.migrate(first, "0002")
    with first.begin() as connection:
        for statement in (
            "INSERT INTO launcher (id, name, heartbeat_at) VALUES (1, 'h', '2024-05-01')",
            "UPDATE attempt SET launcher_id = 1, handle = 'job-1' WHERE id = 5",
            # A claim that no worker took up, and one that began without saying where.
            "INSERT INTO attempt (id, run_id, number, state, executor, chips, lease_seconds, first_step, "
            "claimed_at, heartbeat_at, log) "
            "VALUES (8, 7, 1, 'PENDING', 'vertex', 4, 90, 0, '2024-05-01', '2024-05-01', 'l')",
            "INSERT INTO attempt (id, run_id, number, state, executor, chips, lease_seconds, first_step, "
            "claimed_at, started_at, heartbeat_at, log) VALUES "
            "(9, 7, 2, 'RUNNING', 'vertex', 4, 90, 0, '2024-05-01', '2024-05-01', '2024-05-01', 'l')",
            "INSERT INTO note (id, run_id, text, author, created_at) VALUES (1, 1, 'n', 'me', '2024-05-01')",
        ):
            connection.execute(text(statement))
    schema.migrate(first, "0001")
    left = rows.everything(first)
    assert [row["id"] for row in left["attempt"]] == [1, 2, 5, 9]
    assert left["metric"] == sorted(rows.FIRST["metric"], key=repr)


def test_published_results_come_and_go_and_all_else_stays(first):
    schema.migrate(first, "0002")
    before = rows.everything(first)
    schema.migrate(first, "0003")
    assert rows.everything(first) == before | {"published": []}
    rows.fill(first, rows.PUBLISHED)
    assert rows.everything(first)["published"] == rows.PUBLISHED["published"]
    for statement in (
        "UPDATE published SET position = 1",
        "UPDATE published SET printed = NULL",
        "UPDATE published SET value = NULL",
    ):
        with pytest.raises(IntegrityError), first.begin() as connection:
            connection.execute(text(statement))
    schema.migrate(first, "0002")
    assert rows.everything(first) == before


def test_the_steps_of_the_new_schema_are_64_bits_wide(first):
    schema.migrate(first, "0002")
    with first.begin() as connection:
        connection.execute(text("UPDATE metric SET step = 30000000000 + step"))
        connection.execute(text("UPDATE run SET step = 30000000000"))


def test_constraints_hold_after_the_migration(first):
    schema.migrate(first, "0002")
    for statement in (
        "UPDATE run SET state = 'ASLEEP'",
        "UPDATE attempt SET state = 'ASLEEP'",
        "UPDATE run SET failures = NULL",
        "UPDATE attempt SET claimed_at = NULL",
        "UPDATE attempt SET run_id = 99",
        "UPDATE attempt SET launcher_id = 99",
        "UPDATE metric SET attempt_id = 99",
        "INSERT INTO note (text, author, created_at) VALUES ('of nothing', 'me', '2024-05-01')",
    ):
        with pytest.raises(IntegrityError), first.begin() as connection:
            connection.execute(text(statement))
    with first.begin() as connection:
        connection.execute(text("DELETE FROM run WHERE id = 1"))  # takes along all that is of it
    left = rows.everything(first)
    assert {row["run_id"] for table in ("metric", "attempt", "cost") for row in left[table]} == {2}
    assert left["evaluation"] == left["need"] == left["artifact"] == []


@pytest.mark.parametrize("start", ["0001", "base"])
def test_migrations_make_what_the_models_say(engine, start, postgres_server, tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    if start != "base":
        schema.migrate(engine, start)
        rows.fill(engine, rows.FIRST)
    schema.migrate(engine, schema.HEAD)
    sqlite = engine.dialect.name == "sqlite"
    other = f"sqlite:///{tmp_path / 'modelled.db'}" if sqlite else postgres_server.new_database()
    modelled = writable(other)
    Base.metadata.create_all(modelled)
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []
    found, wanted = inspect(engine), inspect(modelled)

    def sorted_(items):
        return sorted(items, key=lambda item: str(item["name"]))

    for table in Base.metadata.tables:  # what compare_metadata does not look at
        columns = {column["name"]: _column(column) for column in found.get_columns(table)}
        assert columns == {column["name"]: _column(column) for column in wanted.get_columns(table)}
        assert found.get_pk_constraint(table) == wanted.get_pk_constraint(table)
        assert sorted_(found.get_check_constraints(table)) == sorted_(wanted.get_check_constraints(table))
        assert sorted_(found.get_foreign_keys(table)) == sorted_(wanted.get_foreign_keys(table))
        assert sorted_(found.get_unique_constraints(table)) == sorted_(wanted.get_unique_constraints(table))
        assert sorted_(found.get_indexes(table)) == sorted_(wanted.get_indexes(table))
    if sqlite:
        with engine.connect() as connection:
            [made] = connection.scalars(text("SELECT sql FROM sqlite_master WHERE name = 'metric'"))
        assert "WITHOUT ROWID" in made
    modelled.dispose()
    if not sqlite:
        postgres_server.drop(other)


def _column(column):
    kept = {key: column[key] for key in ("nullable", "default", "autoincrement") if key in column}
    return {**kept, "type": str(column["type"])}


def test_down_to_nothing_and_up_again(engine):
    schema.migrate(engine, schema.HEAD)
    schema.migrate(engine, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    assert inspect(engine).get_view_names() == []
    schema.migrate(engine, schema.HEAD)
    assert sorted(inspect(engine).get_view_names()) == sorted(VIEWS)


def test_a_migration_that_fails_changes_nothing(first, monkeypatch):
    before = rows.everything(first)
    broken = {**VIEWS, "v_broken": type(VIEWS["v_runs"])("", {}, "SELECT FROM WHERE")}
    monkeypatch.setattr(schema, "VIEWS", broken)
    with pytest.raises(Exception, match="syntax error"):
        schema.migrate(first, schema.HEAD)
    assert rows.everything(first) == before
    with first.connect() as connection:
        assert schema.revision(connection) == "0001"


def test_a_process_killed_in_the_middle_of_a_migration_leaves_the_old_store(first, store_url):
    before = rows.everything(first)
    code = (
        "import os\n"
        "from jestlab.platform.store import schema\n"
        "from jestlab.platform.store.engine import writable\n"
        "schema.make_views = lambda connection: os.kill(os.getpid(), 9)\n"
        f"schema.migrate(writable({store_url!r}), schema.HEAD)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert rows.everything(first) == before
    schema.migrate(first, schema.HEAD)
    Store.open(store_url).close()


def test_rows_that_refer_to_nothing_are_not_carried_along(tmp_path):
    """Made by another program that opened the file without foreign keys."""
    engine = writable(f"sqlite:///{tmp_path / 'results.db'}")
    schema.migrate(engine, "0001")
    rows.fill(engine, rows.FIRST)
    with engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("DELETE FROM metric_name")
        raw.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(UserError, match="table metric refer to rows of metric_name"):
        schema.migrate(engine, "0002")
    with engine.connect() as connection:
        assert schema.revision(connection) == "0001"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
