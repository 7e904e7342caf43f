"""A reader can't write, whatever SQL it executes: the database itself refuses."""

from collections.abc import Iterator
from contextlib import closing

import plans_support as plans
import psycopg
import pytest
import rows_support as rows
from sqlalchemy import text
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


ON_POSTGRESQL = pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)

# Statements that write, and statements that try to let a later one write.
STATEMENTS = {
    "sqlite": [
        "DELETE FROM run",
        "INSERT INTO metric_name (name) VALUES ('x')",
        "CREATE TEMP TABLE t (x)",
        "ATTACH DATABASE 'other.db' AS other",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA query_only = OFF",
        "VACUUM INTO 'copy.db'",
        "SELECT load_extension('evil')",
        "DROP VIEW v_runs",
    ],
    "postgresql": [
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
    ],
}
_REFUSALS = (
    "authoriz|VACUUM from within|syntax error|read-only|permission denied|multiple commands|not allowed"
    "|must not contain|must be set before any query|could show secrets"
)


@pytest.mark.both_databases
def test_the_database_refuses_to_write(store, reader, store_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, accepted = rows.everything(store.engine), []
    for sql in STATEMENTS[store.engine.dialect.name]:
        try:
            with pytest.raises((UserError, DBAPIError), match=_REFUSALS), reader.reading() as connection:
                connection.exec_driver_sql(sql).fetchall()
            with pytest.raises(ValueError, match=f"^query: .*({_REFUSALS})"):
                query.frame(store_url, sql=sql)
        except (pytest.fail.Exception, AssertionError) as failure:
            accepted.append(f"{sql}: {failure}")
    assert accepted == []
    assert rows.everything(store.engine) == before
    assert reader.experiments()[0].name == "toy"  # the reader still works
    expected = {"results.db", "results.db-shm", "results.db-wal", "results.shared"}
    assert {path.name for path in tmp_path.iterdir()} <= expected


@pytest.mark.both_databases
@ON_POSTGRESQL
def test_a_reader_rolls_back(store, reader, store_url, postgres_server):
    """A transaction that only reads sends a notification when it commits."""
    sql = "SELECT pg_notify('channel', 'committed')"
    with psycopg.connect(store_url, autocommit=True) as listener:
        listener.execute("LISTEN channel")
        query.frame(store_url, sql=sql)
        for each in (reader, store):
            with each.reading() as connection:
                connection.exec_driver_sql(sql).fetchall()
        postgres_server.execute("SELECT pg_notify('channel', 'last')", store_url.rpartition("/")[2])
        assert [note.payload for note in listener.notifies(timeout=60, stop_after=1)] == ["last"]


@pytest.mark.both_databases
@ON_POSTGRESQL
def test_a_superuser_reads_with_a_role_that_cannot_write_files(store, postgres_server, tmp_path):
    tmp_path.chmod(0o777)
    database, file = store.engine.url.database or "", tmp_path / "written"
    postgres_server.execute("SELECT lo_from_bytea(4711, 'something')", database)
    url = postgres_server.url(database, role="postgres")
    for sql in (f"SELECT lo_export(4711, '{file}')", "SELECT pg_read_file('/etc/passwd')"):
        with pytest.raises(ValueError, match="permission denied"):
            query.frame(url, sql=sql)
    assert not file.exists()
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


@pytest.mark.both_databases
@ON_POSTGRESQL
def test_long_queries_are_canceled(store, store_url, monkeypatch):
    monkeypatch.setattr(engines, "QUERY_SECONDS", 0.2)
    reader = Store.open_readonly(store_url)
    assert reader is not None
    with closing(reader), pytest.raises(UserError, match="statement timeout"):
        reader.rows(text("SELECT pg_sleep(600)"))
