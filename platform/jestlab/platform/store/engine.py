"""Connections to a store: many processes at once, each transaction all or nothing.

SQLite is in WAL mode, with one writer at a time; on PostgreSQL a writer locks the rows that it reads by
`with_for_update`. In a transaction, errors of the database become `StoreUnreachable` (try again later) or
another `StoreError` (something has to be fixed first), unless they are bugs of ours.
"""

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DBAPIError, DisconnectionError

from jestlab.analysis.read_only import (
    check_not_emptied,
    is_stale,
    only_queries,
    only_selects,
    open_readonly,
    version,
)
from jestlab.analysis.shared import LocalCopy, is_shared
from jestlab.platform.errors import StoreError, StoreMissing, StoreUnreachable, sentence
from jestlab.platform.store import shared
from jestlab.platform.store.address import parse_url, refuse_remnants, shown_url, sqlite_file

# ---- transactions

BUSY_SECONDS = 30.0
"""Time that a writer waits for another one."""

CONNECT_SECONDS = 10
"""Time limit for connecting to a server."""

QUERY_SECONDS = 600.0
"""Time limit of a reader's query on a server."""

_LEAST_BYTES = 1 << 16  # a disk with less free space counts as full

_WRITES, _PENDING = "jestlab_writes", "jestlab_pending"

DEFINING, RECORDING, CLAIMING = 0x6A657374, 0x6A657375, 0x6A657376
"""Locks for creating tables and views, for recording a plan, and for claiming runs."""


def writable(url: str) -> Engine:
    """Create an engine for reading and writing. It creates no SQLite file: see `create_file`."""
    return _engine(url, writes=True)


def read_only(url: str) -> Engine:
    """Create an engine that can't write: the database itself refuses.

    See `jestlab.analysis.read_only` for how, and for the limits of that.
    """
    return _engine(url, writes=False)


def _engine(url: str, *, writes: bool) -> Engine:
    store = parse_url(url)
    path = sqlite_file(store)
    return _postgresql(store, writes) if path is None else _sqlite(path.absolute(), writes)


def shared_folder(engine: Engine) -> Path | None:
    """Return the folder of a shared store; None for other stores."""
    path = sqlite_file(engine.url)
    return path if is_shared(path) else None


@contextmanager
def closing_engine(engine: Engine) -> Iterator[Engine]:
    """Dispose of an engine at the end."""
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that reads one state of the store, and is rolled back at the end."""
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

    On SQLite it holds the write lock from the start. On PostgreSQL it is READ COMMITTED: lock rows on which a
    decision depends with `with_for_update`.
    """
    folder = shared_folder(engine)
    with (
        plain_errors(engine),
        nullcontext() if folder is None else shared.transaction(folder) as pending,
        engine.connect().execution_options(**{_WRITES: True, _PENDING: pending}) as connection,
        connection.begin(),
    ):
        yield connection
        if pending is not None:
            pending.publish(connection)


def one_at_a_time(connection: Connection, what: int) -> None:
    """Wait until no other write transaction holds this lock. Call it before the first write.

    Without an order among transactions that write the same rows, PostgreSQL would detect a deadlock and roll
    one back. SQLite has only one writer at a time.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(what)))


@contextmanager
def plain_errors(engine: Engine) -> Iterator[None]:
    """Convert database errors that aren't bugs (no connection, disk full, …) into UserErrors."""
    try:
        yield
    except DBAPIError as error:
        converted = user_error(error, engine.url)
        if converted is None:
            raise
        raise converted from error


# ---- SQLite

CHECKPOINT_SECONDS = 2.0
"""Time that `checkpoint` waits for readers."""


def create_file(path: Path) -> None:
    """Create an empty SQLite file and its folder unless they exist, or the folder of a shared store.

    Raises:
        StoreMissing: The store was moved away from files that belong to it.
        StoreError: The file can't be created.
    """
    try:
        if is_shared(path):
            shared.create(path)
            return
        if os.path.lexists(path):
            return
        refuse_remnants(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process created it
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise StoreError(f"can't create the store {path}: {error.strerror}") from error


def checkpoint(engine: Engine) -> None:
    """Move SQLite's log into its file, unless another process is reading; do nothing on a server."""
    with suppress(StoreError, sqlite3.Error), plain_errors(engine):
        timeout = f"PRAGMA busy_timeout = {_milliseconds(CHECKPOINT_SECONDS)}"
        _set(engine, timeout, "PRAGMA wal_checkpoint(TRUNCATE)")


def one_file(engine: Engine) -> None:
    """Make a SQLite store one file, without a log next to it; do nothing on a server."""
    _set(engine, "PRAGMA journal_mode = DELETE")


def _set(engine: Engine, *pragmas: str) -> None:
    """Execute statements outside of transactions, in the last use of an engine of SQLite."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            raw: Any = connection.connection.dbapi_connection
            for pragma in pragmas:
                raw.execute(pragma).fetchall()


def _sqlite(path: Path, writes: bool) -> Engine:
    """Create an engine of a SQLite file, or of this machine's copy of a shared store."""
    file = LocalCopy(path).file if is_shared(path) else path

    def connect() -> sqlite3.Connection:
        if is_shared(path) and not file.exists():
            shared.follow(path)
        try:
            check_not_emptied(file)
            if not writes:
                connection = open_readonly(file, timeout=BUSY_SECONDS)
                only_selects(connection)
                return connection
        except FileNotFoundError as error:
            raise StoreMissing(f"store {sentence(error)}") from error
        except OSError as error:
            kind = StoreError if isinstance(error, PermissionError) else StoreUnreachable
            raise kind(f"store {path}: {error.strerror or error}") from error
        connection = sqlite3.connect(
            f"file:{quote(str(file))}?mode=rw",
            uri=True,
            timeout=BUSY_SECONDS,
            check_same_thread=False,
            isolation_level=None,  # `_begin` begins transactions: sqlite3 would not, for a SELECT
        )
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    engine = create_engine(URL.create("sqlite", database=str(path)), creator=connect)

    @event.listens_for(engine, "connect")
    def _remember_file(_: Any, record: Any) -> None:
        record.info["file"] = _identity(file)

    @event.listens_for(engine, "checkout")
    def _check_place(connection: Any, record: Any, _: Any) -> None:
        if is_shared(path):
            shared.follow(path)
        # Writes to an open file that was moved, or replaced by a copy, are lost. A connection to such a file
        # is replaced by a new one.
        if record.info.get("file") != _identity(file) or is_stale(connection, file):
            raise DisconnectionError

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later fails without waiting if another one wrote in
        # between. So a write transaction takes the lock at its start.
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    if is_shared(path):
        event.listen(engine, "before_cursor_execute", _record)
    return engine


def _record(connection: Connection, _: Any, sql: str, values: Any, *__: Any) -> None:
    """Record a statement of a write transaction of a shared store."""
    pending = connection.get_execution_options().get(_PENDING)
    if pending is not None:
        # SQLAlchemy's own flag is also set for one INSERT of several rows, whose values are one tuple.
        pending.record(sql, values, many=isinstance(values, list))


def _identity(path: Path) -> tuple[int, ...]:
    """Return the identity of a file, which differs if another file replaces it; empty if it doesn't exist."""
    return (version(path) or ())[:2]


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log, waiting for other processes that do the same."""
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


def _postgresql(store: URL, writes: bool) -> Engine:
    """Create an engine that reconnects after a restart of its server."""
    arguments: dict[str, Any] = {
        "application_name": "jestlab",
        "connect_timeout": CONNECT_SECONDS,
        # Without these, TCP would wait two hours for a server that vanished.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": int(BUSY_SECONDS * 1000),
    }
    settings = {"lock_timeout": _milliseconds(BUSY_SECONDS)}
    if writes:
        # A machine that is suspended within a transaction would hold its locks until it resumes.
        settings["idle_in_transaction_session_timeout"] = _milliseconds(2 * BUSY_SECONDS)
    else:
        settings["statement_timeout"] = _milliseconds(QUERY_SECONDS)
    given = {name: value for name, value in arguments.items() if name not in store.query}
    engine = create_engine(store, pool_pre_ping=True, connect_args=given, isolation_level="READ COMMITTED")

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        calls = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
        connection.autocommit = True  # otherwise a rollback would undo the settings
        connection.execute(f"SELECT {calls}")
        connection.autocommit = False

    return engine if writes else only_queries(engine)


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000))


# ---- errors

_SQLITE_RETRY = frozenset(
    getattr(sqlite3, f"SQLITE_{name}")
    for name in ("BUSY", "LOCKED", "PROTOCOL", "FULL", "IOERR", "NOMEM", "CANTOPEN")
)
_SQLITE_DENIED = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
# Codes of https://www.postgresql.org/docs/current/errcodes-appendix.html that someone must fix: password,
# role, missing database, permission, read-only server, statement timeout, damage.
_POSTGRESQL_FIX = ("28", "3D000", "42501", "25006", "57014", "XX001", "XX002")
_SLEPT = "25P03"  # the process slept within a transaction

# A refused connection has no code, only the server's message. Messages in other languages count as temporary.
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
    """Return the UserError for an error of the database, without the store's password.

    Returns:
        StoreUnreachable if trying again may help, a plain StoreError if someone must fix a problem, None for
        a bug.
    """
    if isinstance(error.orig, sqlite3.Error):
        kind, message = _of_sqlite(error.orig, sqlite_file(store))
    else:
        kind, message = _of_postgresql(error, store)
    return None if kind is None else kind(f"store {shown_url(store)}: {message}")


def database_message(error: Exception) -> str:
    """Return the database's message on one line."""
    if not isinstance(error, DBAPIError):
        return f"{type(error).__name__}: {error}"
    primary = getattr(getattr(error.orig, "diag", None), "message_primary", None)
    return " ".join(str(primary or error.orig).split())


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder is full; False if the folder doesn't exist."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_BYTES


def damage_of(error: StoreError) -> str | None:
    """Return SQLite's message about a damaged file; None for any other error."""
    cause = getattr(error.__cause__, "orig", error.__cause__)
    damaged = getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return str(cause) if damaged else None


def _of_sqlite(error: sqlite3.Error, file: Path | None) -> tuple[type[StoreError] | None, str]:
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extended code
    for path in (file, file.parent) if file is not None and primary in _SQLITE_DENIED else ():
        if path.exists() and not os.access(path, os.R_OK | os.W_OK):
            return StoreError, f"no permission to write to {path}"
    full = primary == sqlite3.SQLITE_IOERR and file is not None and is_full(file.parent)
    if primary == sqlite3.SQLITE_FULL or full:
        return StoreUnreachable, "the disk is full: make room"
    if primary in _SQLITE_RETRY:
        return StoreUnreachable, str(error)
    # Subclasses, such as IntegrityError, are bugs.
    fixable = type(error) in (sqlite3.DatabaseError, sqlite3.OperationalError)
    return StoreError if fixable else None, str(error)


def _of_postgresql(error: DBAPIError, store: URL) -> tuple[type[StoreError] | None, str]:
    import psycopg

    code, message = getattr(error.orig, "sqlstate", None) or "", database_message(error)
    if code == "3D000" or (not code and _NO_DATABASE.search(message)):
        return StoreError, f"no such database: create it with createdb {store.database}"
    if code.startswith(_POSTGRESQL_FIX) or (not code and _REFUSED.search(message)):
        return StoreError, message
    # psycopg's OperationalError also includes deadlocks, timeouts of locks, full disks, shutdowns, and values
    # that are too large (class 54).
    operational = isinstance(error.orig, psycopg.OperationalError | psycopg.InterfaceError)
    retry = error.connection_invalidated or code == _SLEPT or (operational and not code.startswith("54"))
    return StoreUnreachable if retry else None, message
