"""Connections to a store: many processes at once, each transaction all or nothing.

SQLite is in WAL mode, with one writer at a time; on PostgreSQL a writer locks the rows that it reads by
`with_for_update`. In a transaction, errors of the database become `StoreUnreachable` (try again later) or
another `StoreError` (something has to be fixed first), unless they are bugs of ours.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DBAPIError, DisconnectionError

from jestlab.analysis import guards
from jestlab.platform.errors import StoreError, StoreMissing, StoreUnreachable, sentence
from jestlab.platform.store.address import parse_url, refuse_remnants, shown_url, sqlite_file

# ---- transactions

BUSY_SECONDS = 30.0
"""How long a writer waits for another."""

CONNECT_SECONDS = 10
"""How long a server may take to answer."""

QUERY_SECONDS = 600.0
"""How long a server works at one query of a reader."""

_LEAST_BYTES = 1 << 16  # of room on a disk that isn't full

_WRITES = "jestlab_writes"

DEFINING, RECORDING, CLAIMING = 0x6A657374, 0x6A657375, 0x6A657376
"""Names of locks: for creating tables and views, for recording a plan, and for claiming runs."""


def writable(url: str) -> Engine:
    """Create an engine whose transactions read, unless they are opened by `writing`.

    It makes no SQLite file: see `create_file`.
    """
    store = parse_url(url)
    path = sqlite_file(store)
    return _postgresql(store, writes=True) if path is None else _sqlite(path, writes=True)


def read_only(url: str) -> Engine:
    """Create an engine that cannot write: the database itself refuses.

    How, and what is left to permissions, is in `jestlab.analysis.guards`. Its transactions are `reading`'s,
    which end in a rollback.
    """
    store = parse_url(url)
    path = sqlite_file(store)
    return _postgresql(store, writes=False) if path is None else _sqlite(path.absolute(), writes=False)


@contextmanager
def closing_engine(engine: Engine) -> Iterator[Engine]:
    """Close an engine's connections in the end."""
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that sees one state of the store. In the end it is rolled back."""
    options: dict[str, Any] = {}
    if engine.dialect.name == "postgresql":
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with (
        plain_errors(engine),
        engine.connect() as connection,
        connection.execution_options(**options),
        connection.begin() as transaction,
    ):
        try:
            yield connection
        finally:
            transaction.rollback()


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes all or nothing.

    On SQLite it holds the write lock from its beginning. On PostgreSQL it is READ COMMITTED: what is read to
    decide what is written has to be locked by `with_for_update`.
    """
    with (
        plain_errors(engine),
        engine.connect().execution_options(**{_WRITES: True}) as connection,
        connection.begin(),
    ):
        yield connection


def one_at_a_time(connection: Connection, what: int) -> None:
    """Wait until no other write transaction is past this point for the same purpose.

    For transactions that write many rows which others write too: without an order among them, PostgreSQL
    would detect a deadlock and undo one. SQLite has only one writer anyway. Call it before the first write.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(what)))


@contextmanager
def plain_errors(engine: Engine) -> Iterator[None]:
    """Turn a database's error that is not our bug (no connection, disk full, …) into a UserError."""
    try:
        yield
    except DBAPIError as error:
        found = user_error(error, engine.url)
        if found is None:
            raise
        raise found from error


# ---- SQLite

CHECKPOINT_SECONDS = 2.0
"""How long `checkpoint` waits for others to finish reading."""


def create_file(path: Path) -> None:
    """Make an empty SQLite file and its folder where there is none; the only place where one is made.

    Raises:
        StoreMissing: Files that belong to an earlier one lie there: it was moved away.
        StoreError: It cannot be made there.
    """
    try:
        if os.path.lexists(path):
            return
        refuse_remnants(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # somebody else was faster
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise StoreError(f"the store {path} cannot be made: {error.strerror}") from error


def checkpoint(engine: Engine) -> None:
    """Move what SQLite's log holds into the file itself, unless somebody reads; does nothing on a server."""
    if engine.dialect.name != "sqlite":
        return
    with suppress(StoreError, sqlite3.Error), plain_errors(engine), engine.connect() as connection:
        raw: Any = connection.connection.dbapi_connection
        try:
            raw.execute(f"PRAGMA busy_timeout = {_milliseconds(CHECKPOINT_SECONDS)}")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            raw.execute(f"PRAGMA busy_timeout = {_milliseconds(BUSY_SECONDS)}")


def _sqlite(path: Path, *, writes: bool) -> Engine:
    def connect() -> sqlite3.Connection:
        try:
            guards.check_not_emptied(path)
            if not writes:
                connection = guards.open_readonly(path, timeout=BUSY_SECONDS)
                guards.only_selects(connection)
                return connection
        except FileNotFoundError as error:
            raise StoreMissing(f"store {sentence(error)}") from error
        except OSError as error:
            kind = StoreError if isinstance(error, PermissionError) else StoreUnreachable
            raise kind(f"store {path}: {error.strerror or error}") from error
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw",
            uri=True,
            timeout=BUSY_SECONDS,
            check_same_thread=False,
            isolation_level=None,  # BEGIN is ours, below: Python's sqlite3 would begin none for a SELECT
        )
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    engine = create_engine(URL.create("sqlite", database=str(path)), creator=connect)

    @event.listens_for(engine, "connect")
    def _remember_file(_: Any, record: Any) -> None:
        record.info["file"] = _identity(path)

    @event.listens_for(engine, "checkout")
    def _check_place(connection: Any, record: Any, _: Any) -> None:
        # An open file can be written to wherever it is moved, or when it is deleted and a copy has taken its
        # place: what is written then is lost. A connection to such a file is replaced by a new one.
        if record.info.get("file") != _identity(path) or guards.is_stale(connection, path):
            raise DisconnectionError

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later would fail at once, without waiting, if another one
        # wrote in between: so a transaction says at its beginning that it will write.
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _identity(path: Path) -> tuple[int, ...]:
    """Tell a file from others that may take its place; empty where there is none."""
    return (guards.version(path) or ())[:2]


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log; SQLite itself does not wait for others who do the same."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


# ---- PostgreSQL


def _postgresql(store: URL, *, writes: bool) -> Engine:
    """Create an engine that survives a restart of its server, and notices when it is gone."""
    arguments: dict[str, Any] = {
        "application_name": "jestlab",
        "connect_timeout": CONNECT_SECONDS,
        # A server that vanished is given up after this, and not after the two hours of TCP.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": int(BUSY_SECONDS * 1000),
    }
    settings = {"lock_timeout": _milliseconds(BUSY_SECONDS)}
    if writes:
        # A machine that was put to sleep within a transaction would hold its locks until it wakes.
        settings["idle_in_transaction_session_timeout"] = _milliseconds(2 * BUSY_SECONDS)
    else:
        settings["statement_timeout"] = _milliseconds(QUERY_SECONDS)
    given = {name: value for name, value in arguments.items() if name not in store.query}
    engine = create_engine(store, pool_pre_ping=True, connect_args=given, isolation_level="READ COMMITTED")

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        connection.autocommit = True  # a setting made in a transaction is undone with it
        connection.execute(f"SELECT {calls}")
        connection.autocommit = False

    return engine if writes else guards.only_queries(engine)


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


# ---- errors

_SQLITE_NOT_PERMITTED = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_SQLITE_PASSES = frozenset(
    getattr(sqlite3, f"SQLITE_{name}")
    for name in ("BUSY", "LOCKED", "PROTOCOL", "FULL", "IOERR", "NOMEM", "CANTOPEN")
)
# Classes and codes of https://www.postgresql.org/docs/current/errcodes-appendix.html
_POSTGRESQL_PASSES = (
    "08",  # connection
    "40",  # serialisation failure, deadlock: the transaction was undone
    "53",  # disk full, out of memory, too many connections
    "57P",  # shutdown, crash, starting up
    "55P03",  # waited too long for a lock
    "25P03",  # the process slept within a transaction
    "58030",  # reading or writing a file failed
)
_POSTGRESQL_FIX = (
    "28",  # password, role
    "3D000",  # no such database
    "42501",  # no permission
    "25006",  # a standby, or a role, that may only read
    "57014",  # a query took too long
    "XX001",  # damaged
    "XX002",
)

# A refused connection carries no code, only the server's words (in its language: what is not known here is
# taken to pass).
_REFUSED = re.compile(
    r"""password\ authentication\ failed | no\ password\ supplied | authentication\ failed
    | (role|database)\ ".*"\ does\ not\ exist | is\ not\ permitted\ to\ log\ in | permission\ denied
    | no\ pg_hba\.conf\ entry | pg_hba\.conf\ rejects | not\ currently\ accepting\ connections
    | SSL\ was\ required | certificate | unsupported\ startup\ parameter | invalid\ .*\ value
    | invalid\ (sslmode|port|connection|URI) """,
    re.VERBOSE,
)
_NO_DATABASE = re.compile(r'database ".*" does not exist')


def user_error(error: DBAPIError, store: URL) -> StoreError | None:
    """Return what to tell a user about an error of the database, without the store's password.

    Returns:
        StoreUnreachable if trying again later may help, a plain StoreError if something has to be fixed
        first, None if it is a bug of ours.
    """
    place = f"store {shown_url(store)}"
    if isinstance(error.orig, sqlite3.Error):
        return _of_sqlite(error.orig, place, sqlite_file(store))
    return _of_postgresql(error, place, store)


def database_message(error: Exception) -> str:
    """Return an error in the database's own words, on one line."""
    if not isinstance(error, DBAPIError):
        return f"{type(error).__name__}: {error}"
    primary = getattr(getattr(error.orig, "diag", None), "message_primary", None)
    return " ".join(str(primary or error.orig).split())


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder has no room for another transaction; False if the folder isn't there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LEAST_BYTES


def damage_of(error: StoreError) -> str | None:
    """Return what SQLite says about the content of a damaged file; None for any other error."""
    cause = getattr(error.__cause__, "orig", error.__cause__)
    damaged = getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return str(cause) if damaged else None


def _of_sqlite(error: sqlite3.Error, place: str, file: Path | None) -> StoreError | None:
    message = f"{place}: {error}"
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says more exactly what
    if primary in _SQLITE_NOT_PERMITTED and file is not None:
        there = (file, file.parent) if file.exists() else (file.parent,)
        if closed := [each for each in there if each.exists() and not os.access(each, os.R_OK | os.W_OK)]:
            return StoreError(f"{place}: no permission to write to {closed[0]}")
    has_no_room = primary == sqlite3.SQLITE_IOERR and file is not None and is_full(file.parent)
    if primary == sqlite3.SQLITE_FULL or has_no_room:
        return StoreUnreachable(f"{place}: the disk is full: make room")
    if primary in _SQLITE_PASSES:
        return StoreUnreachable(message)
    # Integrity and programming errors are ours, and have classes of their own.
    can_be_fixed = type(error) in (sqlite3.DatabaseError, sqlite3.OperationalError)
    return StoreError(message) if can_be_fixed else None


def _of_postgresql(error: DBAPIError, place: str, store: URL) -> StoreError | None:
    import psycopg

    state = getattr(error.orig, "sqlstate", None)
    no_answer = state is None and isinstance(error.orig, psycopg.OperationalError | psycopg.InterfaceError)
    words = database_message(error)
    message = f"{place}: {words}"
    if state == "3D000" or (state is None and _NO_DATABASE.search(words)):
        return StoreError(f"{place}: no such database: create it with createdb {store.database}")
    if state is None and _REFUSED.search(words):
        return StoreError(message)
    if error.connection_invalidated or no_answer or (state or "").startswith(_POSTGRESQL_PASSES):
        return StoreUnreachable(message)
    return StoreError(message) if (state or "").startswith(_POSTGRESQL_FIX) else None
