"""A new store has the tables of the models, and a schema that follows keeps all rows or changes none."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import rows_support as rows
from sqlalchemy import Engine, inspect, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateIndex, CreateTable

from jestlab.platform.errors import UserError
from jestlab.platform.store import schema
from jestlab.platform.store.engine import writable
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Base
from jestlab.platform.store.views import VIEWS


@pytest.fixture
def filled(store_url: str) -> Iterator[Engine]:
    """A store with rows in all tables."""
    engine = writable(store_url)
    rows.fill(engine, rows.ROWS)
    yield engine
    engine.dispose()


@pytest.fixture
def later(tmp_path, monkeypatch) -> str:
    """The revision of a schema that follows the current one."""
    head, folders = rows.add_later_schema(tmp_path / "later")
    monkeypatch.setattr(schema, "HEAD", head)
    monkeypatch.setattr(schema, "MIGRATIONS", folders)
    return head


@pytest.mark.both_databases
def test_a_new_store_has_the_schema_of_the_models(store_url, postgres_server, tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = writable(store_url)
    on_sqlite = engine.dialect.name == "sqlite"
    other = f"sqlite:///{tmp_path / 'modelled.db'}" if on_sqlite else postgres_server.new_database()
    modelled = rows.opened(other)
    Base.metadata.create_all(modelled)
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []
    found, wanted = inspect(engine), inspect(modelled)
    for table in Base.metadata.tables:  # compare_metadata ignores some of it
        assert _columns(found, table) == _columns(wanted, table)
        for get in ("get_check_constraints", "get_foreign_keys", "get_indexes", "get_unique_constraints"):
            assert _by_name(getattr(found, get)(table)) == _by_name(getattr(wanted, get)(table))
        assert found.get_pk_constraint(table) == wanted.get_pk_constraint(table)
    assert sorted(found.get_view_names()) == sorted(VIEWS)
    if on_sqlite:
        with engine.connect() as connection:
            [made] = connection.scalars(text("SELECT sql FROM sqlite_master WHERE name = 'metric'"))
        assert "WITHOUT ROWID" in made
    for each in (engine, modelled):
        each.dispose()
    if not on_sqlite:
        postgres_server.drop(other)


def test_the_models_have_not_changed_since_the_newest_migration():
    """Fails when `tables.py` changes, because that needs a migration to a new schema."""
    made = ""
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        for table in Base.metadata.sorted_tables:
            made += str(CreateTable(table).compile(dialect=dialect))
            for index in sorted(table.indexes, key=str):
                made += str(CreateIndex(index).compile(dialect=dialect))
    assert schema.HEAD == "0010"
    assert hashlib.sha256(made.encode()).hexdigest()[:16] == "87e0dd26949e49a2"


def _columns(inspector, table):
    kept = ("name", "nullable", "default", "autoincrement")
    return [
        ({key: column[key] for key in kept if key in column}, str(column["type"]))
        for column in _by_name(inspector.get_columns(table))
    ]


def _by_name(items):
    return sorted(items, key=lambda item: str(item["name"]))


def _check_constraints(engine: Engine) -> None:
    for statement in (
        "UPDATE run SET state = 'ASLEEP'",
        "UPDATE attempt SET state = 'ASLEEP'",
        "UPDATE run SET failures = NULL",
        "UPDATE run SET directory = 'runs/1'",
        "UPDATE attempt SET claimed_at = NULL",
        "UPDATE attempt SET run_id = 99",
        "UPDATE attempt SET launcher_id = 99",
        "UPDATE evaluation SET attempt_id = 99",
        "UPDATE metric SET name_id = 99",
        "INSERT INTO note (text, author, created_at) VALUES ('of nothing', 'me', '2024-05-01')",
        "UPDATE published SET position = 1",
        "UPDATE published SET printed = NULL",
        "UPDATE published SET value = NULL",
    ):
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(text(statement))
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM run WHERE id = 1"))  # deletes everything that refers to it
    left = rows.everything(engine)
    assert {row["run_id"] for table in ("metric", "attempt", "cost", "tag") for row in left[table]} == {2}
    assert left["evaluation"] == left["need"] == left["artifact"] == left["budget"] == []


@pytest.mark.both_databases
def test_a_migration_keeps_rows_and_constraints(filled, later):
    before = rows.everything(filled)
    assert all(before.values()), "a table has no rows"
    schema.migrate(filled, later)
    after = rows.everything(filled)
    assert {row.pop("mood") for row in after["run"]} == {"calm"}
    assert after == before | {"later": []}
    assert sorted(inspect(filled).get_view_names()) == sorted(VIEWS)
    _check_constraints(filled)


@pytest.mark.both_databases
def test_a_failed_migration_changes_nothing(filled, later, monkeypatch):
    before = rows.everything(filled)
    broken = {**VIEWS, "v_broken": type(VIEWS["v_runs"])({}, "SELECT FROM WHERE")}
    monkeypatch.setattr(schema, "VIEWS", broken)
    with pytest.raises(Exception, match="syntax error"):
        schema.migrate(filled, later)
    assert rows.everything(filled) == before
    with filled.connect() as connection:
        assert schema.revision(connection) != later


@pytest.mark.both_databases
@pytest.mark.parametrize(
    "revision", ["0003", *(pytest.param(older, marks=pytest.mark.full) for older in ("0004", "0005", "0009"))]
)
def test_upgrades_a_store_of_an_older_release(database_url, revision):
    engine = rows.opened(database_url)
    schema.migrate(engine, revision)
    rows.fill(engine, rows.rows_of(revision))
    before = rows.everything(engine)
    schema.migrate(engine, schema.HEAD)
    after = rows.everything(engine)
    engine.dispose()
    assert {row.pop("attempt_id") for row in before["metric"]} == {2, 5}
    for table, names in rows.added_after(revision).items():
        if names:
            assert {row.pop(name) for row in after[table] for name in names} == {None}
        else:
            assert after.pop(table) == []
    assert after == before
    store = Store.open(database_url, create=False)
    assert len(store.runs("toy")) == 3
    store.close()


def test_rows_that_refer_to_missing_rows_stop_a_migration(sqlite_url, later):
    """Another program deleted rows without checking foreign keys."""
    engine = writable(sqlite_url)
    rows.fill(engine, rows.ROWS)
    with engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("DELETE FROM metric_name")
        raw.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(UserError, match="table metric refer to rows of metric_name"):
        schema.migrate(engine, later)
    with engine.connect() as connection:
        assert schema.revision(connection) != later
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
