"""A reader cannot write, whatever SQL it is given: the database itself refuses."""

from __future__ import annotations

import time
from collections.abc import Iterator

import plans_support as plans
import psycopg
import pytest
import rows_support as rows
from postgres_support import PostgresServer
from sqlalchemy.exc import DBAPIError

from jestlab.analysis import query
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.store import engine as engines
from jestlab.platform.store.store import Store


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store with a plan, opened for writing."""
    store = Store.open(store_url)
    store.record(plans.reference_and_two())
    yield store
    store.close()


@pytest.fixture
def reader(store: Store, store_url: str) -> Iterator[Store]:
    reader = Store.open_readonly(store_url)
    assert reader is not None
    yield reader
    reader.close()


ON_SQLITE = [
    "DELETE FROM run",
    "INSERT INTO metric_name (name) VALUES ('x')",
    "CREATE TEMP TABLE t (x)",
    "ATTACH DATABASE 'other.db' AS other",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA query_only = OFF",
    "VACUUM INTO 'copy.db'",
    "SELECT load_extension('evil')",
    "DROP VIEW v_runs",
]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("sql", ON_SQLITE)
def test_sqlite_refuses(store, reader, sql, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files, before = sorted(path.name for path in tmp_path.iterdir()), rows.everything(store.engine)
    with pytest.raises(UserError, match=r"authoriz|VACUUM from within"), reader.reading() as connection:
        connection.exec_driver_sql(sql)
    assert {path.name for path in tmp_path.iterdir()} <= {*files, "results.db-shm", "results.db-wal"}
    assert rows.everything(store.engine) == before


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("sql", ON_SQLITE)
def test_frames_are_guarded_as_the_command_line_is(store, store_url, sql, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files, before = sorted(path.name for path in tmp_path.iterdir()), rows.everything(store.engine)
    with pytest.raises(ValueError, match=r"^query: .*(read-only|VACUUM from within)"):
        query.frame(store_url, sql=sql)
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    assert rows.everything(store.engine) == before


# What tries to write at once, and what tries to make a later statement able to.
ON_POSTGRESQL = [
    "DELETE FROM run",
    "INSERT INTO metric_name (name) VALUES ('x')",
    "WITH gone AS (DELETE FROM run RETURNING id) SELECT * FROM gone",
    "SELECT * INTO copy FROM run",
    "SELECT * FROM run FOR UPDATE",
    "CREATE TEMP TABLE t (x int)",
    "DROP VIEW v_runs",
    "TRUNCATE run CASCADE",
    "DO $$ BEGIN DELETE FROM run; END $$",
    "COPY run TO STDOUT",
    "LOCK TABLE run",
    "NOTIFY someone",
    "LISTEN someone",
    "VACUUM",
    "COMMIT",
    "ROLLBACK",
    "COMMIT AND CHAIN",
    "BEGIN READ WRITE",
    "SET TRANSACTION READ WRITE",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "SET default_transaction_read_only = off",
    "SET ROLE postgres",
    "RESET ALL",
    "DISCARD ALL",
    "PREPARE p AS DELETE FROM run",
    "EXPLAIN ANALYZE DELETE FROM run",
    "COMMIT; DELETE FROM run",
    "SELECT 1; DELETE FROM run",
    "SELECT 1; COMMIT; DELETE FROM run; BEGIN",
    "SET default_transaction_read_only = off; COMMIT; DELETE FROM run",
    "SELECT set_config('transaction_read_only', 'off', true)",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT nextval('metric_name_id_seq')",
    "SELECT setval('metric_name_id_seq', 77)",
    "SELECT lo_create(4711)",
    "SELECT query_to_xml('DELETE FROM run RETURNING 1', true, true, '')",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_create_physical_replication_slot('s')",
]


_REFUSALS = (
    "syntax error|read-only transaction|permission denied|multiple commands|not allowed|must not contain"
    "|must be set before any query"
)


@pytest.fixture(scope="module")
def on_postgresql(postgres_server: PostgresServer) -> Iterator[tuple[Store, Store]]:
    """A store, opened for writing and for reading; nothing may change in it, so tests share it."""
    url = postgres_server.new_database()
    store = Store.open(url)
    store.record(plans.reference_and_two())
    reader = Store.open_readonly(url)
    assert reader is not None
    yield store, reader
    reader.close()
    store.close()
    postgres_server.drop(url)


@pytest.mark.parametrize("sql", ON_POSTGRESQL)
def test_postgresql_refuses(on_postgresql, sql):
    store, reader = on_postgresql
    before = rows.everything(store.engine)
    with pytest.raises((UserError, DBAPIError), match=_REFUSALS), reader.reading() as connection:
        connection.exec_driver_sql(sql).fetchall()
    assert rows.everything(store.engine) == before
    assert reader.experiments()[0].name == "toy"  # it can still be read with


@pytest.mark.parametrize("sql", ON_POSTGRESQL)
def test_frames_on_postgresql_are_guarded_as_the_command_line_is(on_postgresql, postgres_server, sql):
    store, _ = on_postgresql
    before = rows.everything(store.engine)
    url = postgres_server.url(store.engine.url.database or "")
    with pytest.raises(ValueError, match=f"^query: .*(read-only|{_REFUSALS})"):
        query.frame(url, sql=sql)
    assert rows.everything(store.engine) == before


@pytest.mark.parametrize("way", ["reading", "frame"])
def test_a_reader_rolls_back(on_postgresql, postgres_server, way):
    """A notification is sent by a transaction that only reads, once it commits."""
    store, reader = on_postgresql
    url = postgres_server.url(store.engine.url.database or "")
    sql = f"SELECT pg_notify('told', '{way}')"
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN told")
        if way == "frame":
            query.frame(url, sql=sql)
        else:
            for each in (reader, store):
                with each.reading() as connection:
                    connection.exec_driver_sql(sql).fetchall()
        postgres_server.execute("SELECT pg_notify('told', 'in the end')", url.rpartition("/")[2])
        assert [told.payload for told in listener.notifies(timeout=30, stop_after=1)] == ["in the end"]


def test_a_superuser_reads_as_one_who_writes_no_files(on_postgresql, postgres_server, tmp_path):
    store, _ = on_postgresql
    tmp_path.chmod(0o777)
    database, file = store.engine.url.database or "", tmp_path / "written"
    postgres_server.execute("SELECT lo_from_bytea(4711, 'something')", database)
    url = postgres_server.url(database, role="postgres")
    for sql in (f"SELECT lo_export(4711, '{file}')", "SELECT pg_read_file('/etc/passwd')"):
        with pytest.raises(ValueError, match="permission denied"):
            query.frame(url, sql=sql)
    assert not file.exists()
    postgres_server.execute("SELECT lo_unlink(4711)", database)
    assert len(query.frame(url)) == 3
    reader = Store.open_readonly(url)
    assert reader is not None
    assert len(reader.runs("toy")) == 3
    reader.close()


@pytest.mark.parametrize("setting", ["default_transaction_read_only", "session_replication_role"])
def test_no_statement_before_helps_to_write(on_postgresql, setting):
    store, reader = on_postgresql
    before = rows.everything(store.engine)
    value = "off" if setting.startswith("default") else "replica"
    for keep in ("false", "true"):
        try:
            with reader.reading() as connection:
                connection.exec_driver_sql(f"SELECT set_config('{setting}', '{value}', {keep})").fetchall()
        except UserError as error:
            assert "permission denied" in str(error)
        for sql in ("DELETE FROM run", "SELECT nextval('metric_name_id_seq')"):
            with pytest.raises((UserError, DBAPIError), match=_REFUSALS), reader.reading() as connection:
                connection.exec_driver_sql(sql).fetchall()
    assert rows.everything(store.engine) == before


def test_other_roles_sessions_cannot_be_ended(on_postgresql, postgres_server):
    """Those of one's own role can: PostgreSQL has no permission that forbids it."""
    _, reader = on_postgresql
    theirs = psycopg.connect(postgres_server.url("postgres", role="postgres"))
    sql = f"SELECT pg_terminate_backend({theirs.info.backend_pid})"
    with pytest.raises(UserError, match="permission denied"), reader.reading() as connection:
        connection.exec_driver_sql(sql).fetchall()
    assert theirs.execute("SELECT 1").fetchone() == (1,)
    theirs.close()


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_role_that_may_only_select_is_enough_to_read(store, store_url, postgres_server):
    database = store_url.rpartition("/")[2]
    postgres_server.execute("DROP ROLE IF EXISTS guest")
    postgres_server.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    postgres_server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest", database)
    url = postgres_server.url(database, role="guest", password="guest")
    reader = Store.open_readonly(url)
    assert reader is not None
    assert len(reader.runs("toy")) == 3
    reader.close()
    writer = Store.open(url)
    with pytest.raises(UserError, match="permission denied for table") as error:
        writer.record(plans.reference_and_two())
    assert not isinstance(error.value, StoreUnreachable)
    writer.close()


def test_a_transaction_sees_one_state(store, reader):
    with reader.reading() as connection:
        before = connection.exec_driver_sql("SELECT COUNT(*) FROM run").scalar()
        store.record(plans.plan(plans.run("more"), name="other"))
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM run").scalar() == before
    with store.reading() as connection:
        before = connection.exec_driver_sql("SELECT COUNT(*) FROM run").scalar()
        reader_sees = len(reader.experiments())
        assert (before, reader_sees) == (4, 2)


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_query_has_its_time(store, store_url, monkeypatch):
    monkeypatch.setattr(engines, "QUERY_SECONDS", 0.2)
    reader = Store.open_readonly(store_url)
    assert reader is not None
    started = time.monotonic()
    with pytest.raises(UserError, match="statement timeout"), reader.reading() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(30)").fetchall()
    assert time.monotonic() - started < 20
    reader.close()
