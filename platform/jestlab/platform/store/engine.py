"""Connections to a store: many processes at once, each transaction all or nothing.

SQLite is in WAL mode, with one writer at a time; on PostgreSQL a writer locks the rows that it reads by
`with_for_update`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DBAPIError

from jestlab.platform.errors import UserError
from jestlab.platform.store import address, faults

BUSY_SECONDS = 30.0
"""How long a writer waits for another."""

CONNECT_SECONDS = 10
"""How long a server may take to answer."""

QUERY_SECONDS = 600.0
"""How long a server works at one query of a reader."""

_WRITES = "jestlab_writes"

MIGRATING, RECORDING = 0x6A657374, 0x6A657375
"""Names of locks: of whoever changes tables, and of whoever enters a plan."""


def writable(url: str) -> Engine:
    """An engine whose transactions read, unless they are opened by `writing`.

    Raises:
        UserError: The URL is no store's.
    """
    store = address.parse(url)
    path = address.file(store)
    return _writable_postgresql(store) if path is None else _writable_sqlite(path)


def read_only(url: str) -> Engine:
    """An engine that cannot write: the database itself refuses.

    SQLite refuses every statement that is no SELECT, and other databases too. PostgreSQL gets every statement
    as the query of a cursor in a read-only transaction, so that one which is no SELECT (`COMMIT`, `SET …`,
    two at once) is a syntax error. What its functions do beside tables, such as ending other sessions, only
    permissions can forbid: give whoever is not trusted the URL of a role that may do nothing but SELECT.

    Raises:
        UserError: The URL is no store's.
    """
    store = address.parse(url)
    path = address.file(store)
    return _read_only_postgresql(store) if path is None else _read_only_sqlite(path.absolute())


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the store.

    Raises:
        StoreUnreachable: The store cannot be read now.
        UserError: Somebody has to mend something first.
    """
    options: dict[str, Any] = {}
    if engine.dialect.name == "postgresql":
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with (
        plain_errors(engine),
        engine.connect() as connection,
        connection.execution_options(**options),
        connection.begin(),
    ):
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes: all of it happens or nothing.

    On SQLite it holds the write lock from its beginning. On PostgreSQL it is READ COMMITTED: what is read to
    decide what is written has to be locked by `with_for_update`.

    Raises:
        StoreUnreachable: The store cannot be written now.
        UserError: Somebody has to mend something first.
    """
    with (
        plain_errors(engine),
        engine.connect().execution_options(**{_WRITES: True}) as connection,
        connection.begin(),
    ):
        yield connection


def one_at_a_time(connection: Connection, what: int) -> None:
    """Until the end of this write transaction, no other gets past here for the same thing.

    For transactions that write many rows which others write too: without an order among them, PostgreSQL
    would find them in each other's way and undo one. On SQLite there is only one writer anyway.

    Args:
        connection: In a write transaction, before it has written anything.
        what: RECORDING or MIGRATING.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(what)))


@contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """A transaction that changes tables, one process at a time: all of it happens or nothing.

    Raises:
        StoreUnreachable: The store cannot be written now.
        UserError: Somebody has to mend something first, or rows would refer to nothing afterwards.
    """
    if engine.dialect.name == "postgresql":
        with writing(engine) as connection:
            one_at_a_time(connection, MIGRATING)
            yield connection
        return
    with plain_errors(engine), engine.connect().execution_options(**{_WRITES: True}) as connection:
        # To change a table, SQLite copies it and drops the old one: with foreign keys, every row that refers
        # to one of it would be deleted along. They cannot be switched within a transaction.
        sqlite: Any = connection.connection.dbapi_connection
        sqlite.execute("PRAGMA foreign_keys = OFF")
        try:
            with connection.begin():
                yield connection
                if lost := connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                    raise UserError(
                        f"store {engine.url.database}: rows of the table {lost[0]} refer to rows of "
                        f"{lost[2]} that are not there, so nothing was changed: see jestlab db check"
                    )
        finally:
            sqlite.execute("PRAGMA foreign_keys = ON")


@contextmanager
def plain_errors(engine: Engine) -> Iterator[None]:
    """Turn what is no bug of ours (no connection, disk full, no permission) into a UserError."""
    try:
        yield
    except DBAPIError as error:
        meaning = faults.meaning(error, engine.url)
        if meaning is None:
            raise
        raise meaning from error


# ---- SQLite


def _writable_sqlite(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, below
        cursor = connection.cursor()
        _log_ahead(cursor)
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    _begin_sqlite(engine)
    return engine


def _log_ahead(cursor: sqlite3.Cursor) -> None:
    """Have the database write ahead; SQLite itself does not wait for those who are at that, too."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            if cursor.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _read_only_sqlite(path: Path) -> Engine:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro",
            uri=True,
            timeout=BUSY_SECONDS,
            check_same_thread=False,
            isolation_level=None,
        )
        connection.set_authorizer(_authorize_reads)
        return connection

    engine = create_engine(URL.create("sqlite", database=str(path)), creator=connect)
    _begin_sqlite(engine)
    return engine


def _begin_sqlite(engine: Engine) -> None:
    """Begin transactions in SQL: by itself, Python's sqlite3 would begin none for a SELECT."""

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later would fail at once, without waiting, when another
        # wrote in between: so whoever is going to write says so at the beginning.
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


# Everything that a SELECT asks for. `mode=ro` alone would still let ATTACH make a new file.
_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
    | {sqlite3.SQLITE_TRANSACTION}
)

_READ_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"}
)


def _authorize_reads(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    allowed = action in _READS
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = second != "load_extension"
    elif action == sqlite3.SQLITE_PRAGMA:
        allowed = first in _READ_PRAGMAS or (first == "read_uncommitted" and second is None)
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


# ---- PostgreSQL


def _writable_postgresql(store: URL) -> Engine:
    engine = _postgresql(store)
    _on_connect(
        engine,
        lock_timeout=_milliseconds(BUSY_SECONDS),
        # A machine that was put to sleep within a transaction would hold its locks until it wakes.
        idle_in_transaction_session_timeout=_milliseconds(2 * BUSY_SECONDS),
    )
    return engine


def _read_only_postgresql(store: URL) -> Engine:
    engine = _postgresql(
        store, isolation_level="REPEATABLE READ", execution_options={"postgresql_readonly": True}
    )
    _on_connect(
        engine,
        default_transaction_read_only="on",
        statement_timeout=_milliseconds(QUERY_SECONDS),
        lock_timeout=_milliseconds(BUSY_SECONDS),
    )

    @event.listens_for(engine, "begin")
    def _take_snapshot(connection: Connection) -> None:
        # From its first query on, a transaction that only reads cannot become one that writes.
        connection.exec_driver_sql("SELECT 1")

    # Set last: every statement of whoever uses the engine is the query of a cursor, and thus a SELECT.
    return engine.execution_options(stream_results=True)


def _postgresql(store: URL, **options: Any) -> Engine:
    """An engine that survives a restart of its server, and notices when it is gone."""
    arguments: dict[str, Any] = {
        "application_name": "jestlab",
        "connect_timeout": CONNECT_SECONDS,
        # A server that vanished without a word is given up after this, and not after the two hours of TCP.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": int(BUSY_SECONDS * 1000),
    }
    given = {name: value for name, value in arguments.items() if name not in store.query}
    options = {"isolation_level": "READ COMMITTED", **options}
    return create_engine(store, pool_pre_ping=True, connect_args=given, **options)


def _on_connect(engine: Engine, **settings: str) -> None:
    """Make settings in every new session."""
    calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        connection.autocommit = True  # a setting made in a transaction is undone with it
        connection.execute(f"SELECT {calls}")
        connection.autocommit = False


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))
