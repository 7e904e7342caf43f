"""Faults of databases: those that may pass are `StoreUnreachable`; a restarted server is survived."""

import socket
import sqlite3
from contextlib import closing
from typing import Any

import plans_support as plans
import psycopg
import pytest
from postgres_support import PASSWORD
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from jestlab.platform.errors import StoreError, StoreUnreachable, UserError
from jestlab.platform.store import engine as engines
from jestlab.platform.store.address import parse_url
from jestlab.platform.store.store import Store


def failure(url: str) -> UserError:
    """Open a store for writing and for reading, and return the error, which is the same."""
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


def classified(error: Exception, url: str) -> type[StoreError] | None:
    found = engines.user_error(DBAPIError("SELECT 1", {}, error), parse_url(url))
    return None if found is None else type(found)


def test_classifies_errors_of_sqlite():
    def error(name: str, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
        made = kind(name)
        made.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}")
        return made

    passing = ("BUSY", "BUSY_SNAPSHOT", "LOCKED", "PROTOCOL", "FULL", "IOERR", "IOERR_WRITE", "NOMEM")
    expected: dict[Any, Any] = {error(name): StoreUnreachable for name in (*passing, "CANTOPEN")}
    expected |= {
        error("CORRUPT", sqlite3.DatabaseError): StoreError,
        error("READONLY"): StoreError,
        error("ERROR"): StoreError,
        error("CONSTRAINT", sqlite3.IntegrityError): None,
        error("MISUSE", sqlite3.ProgrammingError): None,
    }
    url = "sqlite:////nowhere/results.db"
    assert {e: classified(e, url) for e in expected} == expected


def test_classifies_errors_of_postgresql():
    passing = ("08006", "40001", "40P01", "53100", "53300", "57P01", "57P02", "57P03", "55P03", "25P03")
    to_fix = ("28P01", "3D000", "42501", "25006", "57014", "XX001", "XX002")
    expected: dict[str, Any] = dict.fromkeys((*passing, "58030"), StoreUnreachable)
    expected |= dict.fromkeys(to_fix, StoreError)
    expected |= dict.fromkeys(("42P01", "23505", "22003", "54000"))  # bugs, or values
    url = "postgresql://lab@host/db"
    found = {state: classified(psycopg.errors.lookup(state)("error"), url) for state in expected}
    assert found == expected
    assert classified(psycopg.OperationalError("the server closed the connection"), url) == StoreUnreachable


def test_refused_connections_are_errors_to_fix(postgres_server, postgres):
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
    error = failure(postgres)
    assert type(error) is StoreError
    assert "permission denied for database" in str(error)


def test_a_missing_server_may_come_back(tmp_path):
    with socket.socket() as not_listening:
        not_listening.bind(("127.0.0.1", 0))
        port = not_listening.getsockname()[1]
        assert type(failure(f"postgresql://lab:open%20sesame%3F@127.0.0.1:{port}/db")) is StoreUnreachable
    assert type(failure(f"postgresql://lab:x@/db?host={tmp_path}")) is StoreUnreachable
    assert type(failure("postgresql://lab:x@no-such-host.invalid/db")) is StoreUnreachable


def test_survives_restarts_of_the_server(postgres_server, postgres):
    store, reader = Store.open(postgres), Store.open_readonly(postgres)
    assert reader is not None
    plans.record(store, plans.reference_and_two())
    for mode in ("fast", "immediate"):
        with pytest.raises(StoreUnreachable), store.writing() as connection:
            connection.execute(text("DELETE FROM member"))
            postgres_server.stop(mode)
            connection.execute(text("SELECT 1"))
        for each in (store, reader):
            with pytest.raises(StoreUnreachable):
                each.runs("toy")
        postgres_server.start()
        assert len(store.runs("toy")) == len(reader.runs("toy")) == 3
        plans.record(store, plans.reference_and_two())
    for each in (store, reader):
        each.close()


@pytest.mark.both_databases
def test_waiting_for_a_lock_ends(store, store_url, monkeypatch):
    plans.record(store, plans.reference_and_two())
    # Only of the second store: on a busy machine, recording may also wait for a moment.
    monkeypatch.setattr(engines, "BUSY_SECONDS", 0.1)
    with closing(Store.open(store_url)) as second, store.writing() as connection:
        connection.execute(text("UPDATE run SET state = 'RUNNING'"))
        with pytest.raises(StoreUnreachable, match="lock"), second.writing() as other:
            other.execute(text("UPDATE run SET state = 'FAILED'"))
