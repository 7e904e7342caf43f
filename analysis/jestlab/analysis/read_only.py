"""Execute untrusted SQL on a store: the database itself rejects writes, and limits time and size."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

# The actions of a SELECT. Opening a file read-only isn't enough: ATTACH could still create a new file.
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_TRANSACTION)

_READ_PRAGMAS = (
    "table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list",
    "foreign_key_check", "integrity_check",
)  # fmt: skip

SECRET = ("attempt", "token")
"""The table and column of the secrets with which jobs authenticate."""

# PostgreSQL has no authorizer callback, so these words are rejected: the name of the table, functions that
# execute SQL in a text or show samples of columns, and settings, which could lift limits or grant rights.
_TOWARDS_SECRET = re.compile(
    rf"\b({SECRET[0]}|\w+_to_xml\w*|ts_(stat|rewrite)|pg_stat(s|istic)\w*"
    r"|set_config|dblink\w*|crosstab\w*|connectby|xpath_table)\b|U&",
    re.IGNORECASE,
)

_END = re.compile(r";\s*(--[^\n]*\s*)*$")

_COLUMNS = 120  # maximum number of columns of a result from SQLite with a limited size


class _Unlocked(sqlite3.Connection):
    """A connection without locks; `is_unchanged` checks that the file is as it was when opened."""

    is_unchanged: Callable[[], bool]

    def rollback(self) -> None:
        """End a transaction; OperationalError if the file has changed, so that rows may be wrong."""
        super().rollback()
        if not self.is_unchanged():
            error = sqlite3.OperationalError("another process wrote to the file while it was read: try again")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error


def open_readonly(path: Path, mode: str = "ro", timeout: float = 5.0) -> sqlite3.Connection:
    """Open a SQLite file for reading; end each transaction with `rollback`.

    For a file in WAL mode, SQLite creates two more files in the folder, which needs permission and space. If
    that is impossible, the file is read without locks, provided that no log has content that it lacks.

    Args:
        path: The file.
        mode: "rw" removes the two files again if this user has permission; "ro" leaves them.
        timeout: Seconds to wait for a lock.

    Raises:
        FileNotFoundError: The file is missing, or is empty although a log next to it isn't.
        PermissionError: This user can't read the file, or the log next to it.
        OSError: The disk is too full to read the log.
        sqlite3.Error: The file can't be read.
    """
    check_not_emptied(path)
    options: Any = {"uri": True, "timeout": timeout, "check_same_thread": False, "isolation_level": None}
    address = f"file:{quote(str(path))}?mode={mode}"
    try:
        connection: sqlite3.Connection = sqlite3.connect(address, **options)
        connection.execute("PRAGMA schema_version").fetchone()
        return connection
    except sqlite3.OperationalError as error:
        code, is_full = error.sqlite_errorcode, error.sqlite_errorcode == sqlite3.SQLITE_IOERR_SHMSIZE
        if code & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) and not is_full:
            raise
        if is_full and _log(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path.parent)) from error
    if path.is_file():
        path.open("rb").close()
    before = version(path)
    if log := _log(path):
        raise PermissionError(
            f"no permission to read {log.name}, which has some of the results: this takes permission to "
            f"write in {path.parent}; read it as its owner, or copy the folder"
        )
    unlocked: _Unlocked = sqlite3.connect(f"{address}&immutable=1", factory=_Unlocked, **options)
    unlocked.is_unchanged = lambda: version(path) == before
    return unlocked


def check_not_emptied(path: Path) -> None:
    """Reject an empty file next to a log that isn't: SQLite would delete the log.

    Raises:
        FileNotFoundError: The file is missing, or is empty next to such a log.
        IsADirectoryError: The path is a folder.
        PermissionError: This user can't access the file.
    """
    if path.is_dir():  # SQLite reports a disk error
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.stat().st_size and (log := _log(path)) and log.name.endswith("-wal"):
        raise FileNotFoundError(f"{path} is empty, and {log.name} next to it isn't: restore {path.name}")


def is_stale(connection: Any, path: Path) -> bool:
    """Return whether an idle connection from `open_readonly` has no locks and its file was written to."""
    return isinstance(connection, _Unlocked) and not (connection.is_unchanged() and _log(path) is None)


def version(path: Path) -> tuple[int, ...] | None:
    """Return values that change if a file is written or replaced; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _log(path: Path) -> Path | None:
    """Return the log next to a SQLite file that has some of its content; None without such a log."""
    whole = os.path.realpath(path)
    logs = [Path(f"{whole}{suffix}") for suffix in ("-wal", "-journal")]
    return next((log for log in logs if log.exists() and log.stat().st_size), None)


def only_selects(connection: sqlite3.Connection, hidden: tuple[str, str] | None = None) -> None:
    """Make a SQLite connection reject everything but SELECTs, and SELECTs of a hidden (table, column)."""

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        allowed = action in _READS
        if action == sqlite3.SQLITE_FUNCTION:
            allowed = second != "load_extension"
        elif action == sqlite3.SQLITE_READ:
            allowed = (first, second) != hidden
        elif action == sqlite3.SQLITE_PRAGMA:
            allowed = first in _READ_PRAGMAS or (first == "read_uncommitted" and second is None)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)


def refuse_secret(sql: str) -> None:
    """Raise ValueError if a word in SQL for PostgreSQL could expose the secrets of jobs."""
    if word := _TOWARDS_SECRET.search(sql):
        raise ValueError(f"query: {word[0]!r} could show secrets of jobs: query the views instead")


_AS_READER = """
SELECT set_config('role', 'pg_read_all_data', true)
WHERE current_setting('is_superuser') = 'on' AND current_setting('server_version_num')::int >= 140000
"""


def only_queries(engine: Engine) -> Engine:
    """Make a PostgreSQL engine execute each statement as a cursor's query in a read-only transaction.

    Any statement but a SELECT (`COMMIT`, `SET …`, two at once) is then a syntax error. Functions can still
    act outside of tables, such as end sessions. Only permissions prevent that: give untrusted people a role
    that can only SELECT. A superuser's queries run as `pg_read_all_data`, unless the SQL makes itself a
    superuser again. Don't commit transactions: some functions write in spite of a read-only transaction.
    """
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def _read_only(connection: Any, _: Any) -> None:
        connection.autocommit = True  # a setting made in a transaction is undone with it
        connection.execute("SELECT set_config('default_transaction_read_only', 'on', false)")
        connection.autocommit = False

    @event.listens_for(engine, "begin")
    def _take_snapshot(connection: Connection) -> None:
        # A read-only transaction can't be made writable after its first query.
        connection.exec_driver_sql(_AS_READER).fetchall()

    return engine.execution_options(
        isolation_level="REPEATABLE READ", postgresql_readonly=True, stream_results=True
    )


@contextmanager
def limits(connection: Connection, seconds: float, most_bytes: int) -> Iterator[None]:
    """Let the database cancel queries that exceed a limit, in the last transaction of a connection.

    Args:
        connection: The connection.
        seconds: Maximum duration; on PostgreSQL, until the next row.
        most_bytes: Maximum size of a value in SQLite; on PostgreSQL see `short_rows`.
    """
    if connection.dialect.name == "postgresql":
        setting = "SELECT set_config('statement_timeout', %s, true)"
        connection.exec_driver_sql(setting, (str(round(1000 * seconds)),)).fetchall()
        yield
        return
    raw: Any = connection.connection.driver_connection
    # A progress handler would not do: it counts instructions, each of which may take a second.
    timer = threading.Timer(seconds, raw.interrupt)
    lower = {sqlite3.SQLITE_LIMIT_LENGTH: most_bytes, sqlite3.SQLITE_LIMIT_COLUMN: _COLUMNS}
    for limit, value in lower.items():
        raw.setlimit(limit, value)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def short_rows(sql: str, most_bytes: int) -> str:
    """Wrap a SELECT for PostgreSQL so that it fails at a row of more bytes, instead of sending the row."""
    error = f"'a row is longer than {most_bytes:,} bytes, ' || octet_length(answer::text)"
    check = f"CASE WHEN octet_length(answer::text) <= {most_bytes} THEN true ELSE ({error})::boolean END"
    return f"SELECT answer.* FROM (\n{_END.sub('', sql)}\n) AS answer WHERE {check}"


def is_out_of_time(error: BaseException) -> bool:
    """Return whether a database stopped a query at the time limit."""
    text = str(getattr(error, "orig", None) or error)
    return "interrupted" in text or "statement timeout" in text
