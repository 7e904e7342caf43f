"""What may pass by itself is told apart from what somebody has to mend; a restarted server is survived."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import plans_support as plans
import psycopg
import pytest
from postgres_support import PASSWORD, PostgresServer
from sqlalchemy import text

from jestlab.platform.errors import StoreError, StoreUnreachable, UserError
from jestlab.platform.store import engine as engines
from jestlab.platform.store.store import Store


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that may be broken."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()


def failure(url: str) -> UserError:
    """How opening fails, for writing and for reading alike."""
    errors = []
    for open_ in (Store.open, Store.open_readonly):
        with pytest.raises(UserError) as raised:
            open_(url)
        errors.append(raised.value)
    for error in errors:
        assert PASSWORD not in str(error)
        assert "sesame" not in str(error)
        assert "\n" not in str(error)
        assert type(error) is type(errors[0])
    return errors[0]


def test_what_has_to_be_mended_is_no_outage(postgres_server, postgres):
    database = postgres.rpartition("/")[2]
    for url, words in {
        postgres_server.url("nowhere"): "no such database: create it with createdb nowhere",
        postgres_server.url(database, password="wrong"): "password authentication failed",
        postgres_server.url(database, role="stranger"): "password authentication failed",
        f"{postgres}?sslmode=require": "SSL",
        f"{postgres}?sslmode=nonsense": "sslmode",
        f"{postgres}?colour=red": "colour",
    }.items():
        error = failure(url)
        assert type(error) is StoreError
        assert words in str(error)
    postgres_server.execute(f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC, lab")
    assert "permission denied for database" in str(failure(postgres))
    assert type(failure(postgres)) is StoreError


def test_a_server_that_is_not_there_may_come(tmp_path):
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        port = nobody_listens.getsockname()[1]
        assert type(failure(f"postgresql://lab:open%20sesame%3F@127.0.0.1:{port}/db")) is StoreUnreachable
    assert type(failure(f"postgresql://lab:x@/db?host={tmp_path}")) is StoreUnreachable
    assert type(failure("postgresql://lab:x@no-such-host.invalid/db")) is StoreUnreachable


def test_a_server_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(engines, "CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://lab:x@127.0.0.1:{silent.getsockname()[1]}/db"
        with pytest.raises(StoreUnreachable, match="timeout"):
            Store.open(url)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restarted_server_is_survived(own_server, mode):
    url = own_server.new_database()
    store, reader = Store.open(url), Store.open_readonly(url)
    assert reader is not None
    store.record(plans.reference_and_two())
    with pytest.raises(StoreUnreachable), store.writing() as connection:
        connection.execute(text("DELETE FROM member"))
        own_server.stop(mode)
        connection.execute(text("SELECT 1"))
    for use in (lambda: store.states([]), lambda: store.runs("toy"), lambda: reader.runs("toy")):
        with pytest.raises(StoreUnreachable):
            use() or store.runs("toy")
    own_server.start()
    assert len(store.runs("toy")) == len(reader.runs("toy")) == 3
    store.record(plans.reference_and_two())


def test_a_session_that_was_ended_is_replaced(postgres_server, postgres):
    store = Store.open(postgres)
    with pytest.raises(StoreUnreachable), store.writing() as connection:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        postgres_server.execute(f"SELECT pg_terminate_backend({pid})")
        connection.execute(text("SELECT 1"))
    store.record(plans.reference_and_two())
    store.close()


def test_too_many_connections_may_become_fewer(postgres_server, postgres):
    postgres_server.execute("CREATE ROLE few LOGIN CONNECTION LIMIT 1 PASSWORD 'few'")
    url = postgres_server.url(postgres.rpartition("/")[2], role="few", password="few")
    with psycopg.connect(url):
        assert type(failure(url)) is StoreUnreachable
    postgres_server.execute("DROP ROLE few")


def test_a_lock_that_is_held_too_long(store_url, monkeypatch):
    first = Store.open(store_url)
    first.record(plans.reference_and_two())
    # Of the second one alone: recording, too, may wait for a moment on a busy machine.
    monkeypatch.setattr(engines, "BUSY_SECONDS", 0.1)
    second = Store.open(store_url)
    with first.writing() as connection:
        connection.execute(text("UPDATE run SET state = 'RUNNING'"))
        with pytest.raises(StoreUnreachable, match="lock"), second.writing() as other:
            other.execute(text("UPDATE run SET state = 'FAILED'"))
    first.close()
    second.close()


def test_a_deadlock_undoes_one_of_the_two(postgres):
    store = Store.open(postgres)
    store.record(plans.reference_and_two())
    both, failures = threading.Barrier(2), []

    def lock(first: int, second: int) -> None:
        try:
            with store.writing() as connection:
                for wait, run in ((True, first), (False, second)):
                    connection.execute(text("UPDATE run SET step = step + 1 WHERE id = :id"), {"id": run})
                    if wait:
                        both.wait(30)
        except StoreUnreachable as error:
            failures.append(str(error))

    threads = [threading.Thread(target=lock, args=ids) for ids in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [failure] = failures
    assert "deadlock detected" in failure
    assert sorted(run.step for run in store.runs("toy")) == [0, 1, 1]
    store.close()


def test_a_full_disk_may_be_cleared(tmp_path):
    url = f"sqlite:///{tmp_path / 'results.db'}"
    code = (
        "import resource, signal; from sqlalchemy import text\n"
        "from jestlab.platform.errors import StoreUnreachable\n"
        "from jestlab.platform.store.store import Store\n"
        f"store = Store.open({url!r})\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))\n"
        "try:\n"
        "    with store.writing() as connection:\n"
        "        insert = text('INSERT INTO metric_name (name) VALUES (:name)')\n"
        "        connection.execute(insert, {'name': 'x' * 3_000_000})\n"
        "except StoreUnreachable as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "disk" in done.stdout, done.stdout + done.stderr


def test_a_damaged_file_has_to_be_mended(tmp_path):
    path = tmp_path / "results.db"
    Store.open(f"sqlite:///{path}").close()
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    error = failure(f"sqlite:///{path}")
    assert type(error) is StoreError
    assert "malformed" in str(error)


def test_bugs_are_no_outage(store_url):
    store = Store.open(store_url)
    for sql in ("SELECT nothing_such FROM run", "INSERT INTO experiment (id) VALUES (1)"):
        with pytest.raises(Exception) as error, store.writing() as connection:
            connection.execute(text(sql))
        assert not isinstance(error.value, StoreUnreachable)
    store.close()
