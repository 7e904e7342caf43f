"""Connections to a store: SQLite in WAL mode, many processes at once, each write transaction atomic."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError

from jestlab.platform.errors import UserError

BUSY_SECONDS = 30.0
"""How long a writer waits for another."""

_WRITES = "jestlab_writes"


def sqlite_path(url: str) -> Path:
    """The database file behind a store's URL.

    Raises:
        UserError: The URL is none, or not of a SQLite file.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise UserError(
            f"store {url!r} is not a database URL: give one such as sqlite:///lab/results.db"
        ) from None
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        shown = parsed.render_as_string(hide_password=True)
        raise UserError(f"store {shown!r} is not a SQLite file: give one such as sqlite:///lab/results.db")
    return Path(parsed.database)


def writable(url: str) -> Engine:
    """An engine whose transactions are deferred (reads) unless opened by `writing`."""
    path = sqlite_path(url)
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, below
        cursor = connection.cursor()
        if cursor.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later would fail at once, without waiting, when another
        # wrote in between: so whoever is going to write says so at the beginning.
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def read_only(url: str) -> Engine:
    """An engine that cannot write: SQLite itself refuses, and refuses other databases too."""
    path = sqlite_path(url).absolute()

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_SECONDS, check_same_thread=False
        )
        connection.set_authorizer(_authorize_reads)
        return connection

    return create_engine(URL.create("sqlite", database=str(path)), creator=connect)


# Everything that a SELECT asks for. `mode=ro` alone would still let ATTACH make a new file.
_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
    | {sqlite3.SQLITE_TRANSACTION}
)


_READ_PRAGMAS = frozenset({"table_info", "table_xinfo", "table_list"})


def _authorize_reads(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    allowed = action in _READS
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = second != "load_extension"
    elif action == sqlite3.SQLITE_PRAGMA:
        allowed = first in _READ_PRAGMAS or (first == "read_uncommitted" and second is None)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the store."""
    with _plain_errors(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that holds the write lock from its beginning; all of it happens or nothing."""
    with (
        _plain_errors(engine),
        engine.connect().execution_options(**{_WRITES: True}) as connection,
        connection.begin(),
    ):
        yield connection


@contextmanager
def _plain_errors(engine: Engine) -> Iterator[None]:
    """Turn what a user can mend (disk full, no permission, damaged file) into a UserError."""
    try:
        yield
    except DatabaseError as error:
        if type(error) not in (DatabaseError, OperationalError):  # integrity and programming errors are ours
            raise
        raise UserError(f"store {engine.url.database}: {error.orig}") from error
