"""Opening a store: what is created, its constraints, and what is refused."""

import hashlib
from datetime import datetime
from typing import Any

import pytest
import rows_support as rows
from sqlalchemy import inspect, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateIndex, CreateTable

from jestlab.analysis import query
from jestlab.analysis.connection import SCHEMA
from jestlab.platform.errors import UserError
from jestlab.platform.store.backup import back_up
from jestlab.platform.store.engine import closing_engine, reading, writable
from jestlab.platform.store.schema import upgrade
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Base
from jestlab.platform.store.views import VIEWS


def execute(url: str, *statements: str) -> None:
    engine = rows.opened(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.both_databases
def test_a_new_store_has_the_tables_of_the_models_and_an_alembic_revision(store_url):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with closing_engine(writable(store_url)) as engine, engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == SCHEMA
        assert sorted(inspect(connection).get_view_names()) == sorted(VIEWS)
        for name, view in VIEWS.items():
            assert list(connection.execute(text(f"SELECT * FROM {name}")).keys()) == list(view.columns)
        if engine.dialect.name == "sqlite":
            [made] = connection.scalars(text("SELECT sql FROM sqlite_master WHERE name = 'metric'"))
            assert "WITHOUT ROWID" in made


def test_the_tables_have_not_changed_since_the_version_was_raised():
    """Fails when `tables.py` changes, because that needs a new version."""
    made = ""
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        for table in Base.metadata.sorted_tables:
            made += str(CreateTable(table).compile(dialect=dialect))
            for index in sorted(table.indexes, key=str):
                made += str(CreateIndex(index).compile(dialect=dialect))
    assert SCHEMA == "0013"
    assert hashlib.sha256(made.encode()).hexdigest()[:16] == "8418c5e555946e88"


@pytest.mark.both_databases
def test_constraints(store_url):
    engine = writable(store_url)
    rows.fill(engine, rows.ROWS)
    assert all(rows.everything(engine).values()), "a table has no rows"
    for statement in (
        "UPDATE run SET state = 'ASLEEP'",
        "UPDATE attempt SET state = 'ASLEEP'",
        "UPDATE run SET failures = NULL",
        "UPDATE run SET directory = 'runs/1'",
        "UPDATE attempt SET claimed_at = NULL",
        "UPDATE attempt SET run_id = 99",
        "UPDATE attempt SET launcher = 'nobody'",
        "UPDATE evaluation SET attempt = 99",
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
    engine.dispose()


@pytest.mark.both_databases
def test_refuses_the_store_of_another_version_and_changes_nothing(store_url, tmp_path):
    engine = writable(store_url)
    rows.fill(engine, rows.ROWS)
    before = rows.everything(engine)
    for version, age, remedy in (
        ("0011", "older", "read it with the version that made it, or give another --root or --store"),
        ("9999", "newer", "upgrade jestlab"),
    ):
        execute(store_url, f"UPDATE alembic_version SET version_num = '{version}'")
        for open_ in (
            Store.open,
            Store.open_readonly,
            upgrade,
            lambda url: back_up(url, tmp_path / "backup.db"),
            query.frame,
        ):
            with pytest.raises((UserError, ValueError), match=f"schema {version}, {age} than .*: {remedy}$"):
                open_(store_url)
        assert rows.everything(engine) == before
    assert not (tmp_path / "backup.db").exists()
    engine.dispose()


@pytest.mark.both_databases
def test_refuses_the_database_of_another_application(database_url):
    execute(database_url, "CREATE TABLE theirs (x INTEGER)")
    for open_ in (Store.open, Store.open_readonly):
        with pytest.raises(UserError, match="holds other tables"):
            open_(database_url)
    engine = writable(database_url)
    assert inspect(engine).get_table_names() == ["theirs"]
    engine.dispose()


def test_refuses_urls_of_other_databases():
    for url in (
        "sqlite://",
        "results.db",
        "sqlite:///:memory:",
        "mysql://u:secret@host/db",
        "postgresql+psycopg2://u:secret@host/db",
        "postgresql://u:secret@host",
        "postgresql://u:secret@host:port/db",
        "postgresql//u:secret@host/db",
        "postgresql+asyncpg://host/db?password=secret",
        "://:sec@ret@secret@host",
    ):
        with pytest.raises(UserError, match=r"sqlite:///lab/results\.db") as error:
            Store.open(url)
        assert "secret" not in str(error.value)


@pytest.mark.both_databases
def test_reading_creates_nothing(database_url, tmp_path):
    assert Store.open_readonly(database_url) is None
    with pytest.raises(UserError, match="launch a study first"):
        Store.open(database_url, create=False)
    if database_url.startswith("sqlite"):
        assert list(tmp_path.iterdir()) == []
    if database_url.endswith(".db"):
        (tmp_path / "results.db").write_text("this is not a database, but as long as one" * 50)
        with pytest.raises(UserError, match="file is not a database"):
            Store.open(database_url)
    elif database_url.startswith("postgres"):
        with closing_engine(writable(database_url)) as engine:
            assert inspect(engine).get_table_names() == []


def test_views_have_the_same_rows_on_both_databases(sqlite_url, postgresql_url):
    def shown(row: Any) -> list[tuple[str, Any]]:
        """SQLite has no times: views have their text."""
        times = {key: value for key, value in row.items() if isinstance(value, datetime)}
        return sorted(
            {**row, **{key: time.isoformat(" ", "microseconds") for key, time in times.items()}}.items()
        )

    found = []
    for url in (sqlite_url, postgresql_url):
        with closing_engine(writable(url)) as engine:
            rows.fill(engine, rows.ROWS)
            with reading(engine) as connection:
                views = {name: connection.execute(text(f"SELECT * FROM {name}")).mappings() for name in VIEWS}
                found.append({name: sorted(map(shown, view), key=repr) for name, view in views.items()})
    on_sqlite, on_postgresql = found
    assert on_sqlite == on_postgresql
    assert all(on_sqlite.values())
    assert [dict(point)["step"] for point in on_sqlite["v_latest"]] == [3] * 4  # the last ones
