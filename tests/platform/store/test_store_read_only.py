"""A reader can't write, whatever SQL it executes: the database itself refuses."""

from collections.abc import Iterator
from contextlib import closing

import plans_support as plans
import psycopg
import pytest
import rows_support as rows
from postgres_support import PostgresServer
from sqlalchemy.exc import DBAPIError

from jestlab.analysis import query
from jestlab.platform.errors import UserError
from jestlab.platform.store import engine as engines
from jestlab.platform.store.store import Store


@pytest.fixture
def store(store: Store) -> Store:
    """A store with a plan, opened for writing."""
    plans.record(store, plans.reference_and_two())
    return store


@pytest.fixture
def reader(store: Store, store_url: str) -> Iterator[Store]:
    reader = Store.open_readonly(store_url)
    assert reader is not None
    with closing(reader):
        yield reader


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


@plans.ON_SQLITE
def test_sqlite_refuses_to_write(store, reader, store_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = rows.everything(store.engine)
    for sql in ON_SQLITE:
        with pytest.raises(UserError, match=r"authoriz|VACUUM from within"), reader.reading() as connection:
            connection.exec_driver_sql(sql)
        with pytest.raises(ValueError, match=r"^query: .*(read-only|VACUUM from within)"):
            query.frame(store_url, sql=sql)
    assert rows.everything(store.engine) == before
    assert {path.name for path in tmp_path.iterdir()} <= {"results.db", "results.db-shm", "results.db-wal"}


# Statements that write, and statements that try to let a later one write.
ON_POSTGRESQL = [
    "DELETE FROM run",
    "INSERT INTO metric_name (name) VALUES ('x')",
    "WITH gone AS (DELETE FROM run RETURNING id) SELECT * FROM gone",
    "SELECT * INTO copy FROM run",
    "SELECT * FROM run FOR UPDATE",
    "CREATE TEMP TABLE t (x int)",
    "DROP VIEW v_runs",
    "DO $$ BEGIN DELETE FROM run; END $$",
    "COPY run TO STDOUT",
    "VACUUM",
    "COMMIT",
    "SET TRANSACTION READ WRITE",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "SET default_transaction_read_only = off",
    "DISCARD ALL",
    "EXPLAIN ANALYZE DELETE FROM run",
    "COMMIT; DELETE FROM run",
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
    "|must be set before any query|could show secrets"
)


@pytest.fixture(scope="module")
def on_postgresql(postgres_server: PostgresServer) -> Iterator[tuple[Store, Store, str]]:
    """A store, opened for writing and for reading, and its URL; no test changes it."""
    url = postgres_server.new_store()
    reader = Store.open_readonly(url)
    assert reader is not None
    with closing(Store.open(url)) as store, closing(reader):
        plans.record(store, plans.reference_and_two())
        yield store, reader, url
    postgres_server.drop(url)


def test_postgresql_refuses_to_write(on_postgresql):
    store, reader, url = on_postgresql
    before = rows.everything(store.engine)
    accepted = []
    for sql in ON_POSTGRESQL:
        try:
            with pytest.raises((UserError, DBAPIError), match=_REFUSALS), reader.reading() as connection:
                connection.exec_driver_sql(sql).fetchall()
            with pytest.raises(ValueError, match=f"^query: .*(read-only|{_REFUSALS})"):
                query.frame(url, sql=sql)
        except (pytest.fail.Exception, AssertionError) as failure:
            accepted.append(f"{sql}: {failure}")
    assert accepted == []
    assert rows.everything(store.engine) == before
    assert reader.experiments()[0].name == "toy"  # the reader still works


def test_a_reader_rolls_back(on_postgresql, postgres_server):
    """A transaction that only reads sends a notification when it commits."""
    store, reader, url = on_postgresql
    sql = "SELECT pg_notify('channel', 'committed')"
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN channel")
        query.frame(url, sql=sql)
        for each in (reader, store):
            with each.reading() as connection:
                connection.exec_driver_sql(sql).fetchall()
        postgres_server.execute("SELECT pg_notify('channel', 'last')", url.rpartition("/")[2])
        assert [note.payload for note in listener.notifies(timeout=60, stop_after=1)] == ["last"]


def test_a_superuser_reads_with_a_role_that_cannot_write_files(on_postgresql, postgres_server, tmp_path):
    store, _, _ = on_postgresql
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


@pytest.mark.both_databases
def test_a_transaction_sees_one_state(store, reader):
    with reader.reading() as connection:
        before = connection.exec_driver_sql("SELECT COUNT(*) FROM run").scalar()
        plans.record(store, plans.plan(plans.run("more"), name="other"))
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM run").scalar() == before == 3
    assert len(reader.experiments()) == 2


def test_long_queries_are_canceled(on_postgresql, monkeypatch):
    monkeypatch.setattr(engines, "QUERY_SECONDS", 0.2)
    reader = Store.open_readonly(on_postgresql[2])
    assert reader is not None
    with pytest.raises(UserError, match="statement timeout"), reader.reading() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(600)").fetchall()
    reader.close()
