"""What keeps a reader of a store from writing, whatever SQL it is given: the database itself refuses."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

# Everything that a SELECT asks for. A file opened read-only would still let ATTACH make a new one.
_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
    | {sqlite3.SQLITE_TRANSACTION}
)

_READ_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"}
)

SECRET = ("attempt", "token")
"""A column with which a job proves that it is its run's."""

# PostgreSQL has no authorizer. To read the column, SQL names its table, as such or in a text that a function
# executes, or it reads samples of the column in the statistics.
_TOWARDS_SECRET = re.compile(
    rf"\b({SECRET[0]}|\w+_to_xml\w*|ts_(stat|rewrite)|dblink\w*|crosstab\w*|pg_stat(s|istic)\w*)\b|U&",
    re.IGNORECASE,
)

_INSTRUCTIONS = 10_000
"""Of SQLite's machine, between two looks at the clock: a few milliseconds."""

_END = re.compile(r";\s*(--[^\n]*\s*)*$")

_COLUMNS = 120
"""Columns of an answer from SQLite at most, where its size is limited."""


def only_selects(connection: sqlite3.Connection, hidden: tuple[str, str] | None = None) -> None:
    """Let a connection to SQLite refuse every statement that is not a SELECT, and other databases too.

    Args:
        connection: It.
        hidden: Table and column that a SELECT may not ask for either.
    """

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
    """Refuse SQL for PostgreSQL that could read the secret, or what looks like it.

    Raises:
        ValueError: It could; says by which word.
    """
    if found := _TOWARDS_SECRET.search(sql):
        raise ValueError(f"{found[0]!r} could show secrets of jobs: read the views, such as v_attempts")


_AS_READER = """
SELECT set_config('role', 'pg_read_all_data', true)
WHERE current_setting('is_superuser') = 'on' AND current_setting('server_version_num')::int >= 140000
"""


def only_queries(engine: Engine) -> Engine:
    """Let an engine of PostgreSQL execute each statement as a cursor's query in a read-only transaction.

    A statement that is not a SELECT (`COMMIT`, `SET …`, two at once) is then a syntax error. What functions
    do beside tables, such as ending sessions, only permissions can forbid: give people you do not trust a
    role that may only SELECT. A superuser, whose functions write files, reads as `pg_read_all_data`, unless
    the SQL goes to some length to become one again.

    Args:
        engine: Of PostgreSQL. Its transactions are not to be committed: functions that a transaction which
            only reads may call can leave something behind all the same.

    Returns:
        The engine to use.
    """
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def _read_only(connection: Any, _: Any) -> None:
        connection.autocommit = True  # a setting made in a transaction is undone with it
        connection.execute("SELECT set_config('default_transaction_read_only', 'on', false)")
        connection.autocommit = False

    @event.listens_for(engine, "begin")
    def _take_snapshot(connection: Connection) -> None:
        # From its first query on, a transaction that only reads cannot become one that writes.
        connection.exec_driver_sql(_AS_READER).fetchall()

    return engine.execution_options(
        isolation_level="REPEATABLE READ", postgresql_readonly=True, stream_results=True
    )


@contextmanager
def limits(connection: Connection, seconds: float, most_bytes: int) -> Iterator[None]:
    """Let the database give up queries of this connection, in its transaction, that take too much.

    Args:
        connection: It.
        seconds: How long they may take.
        most_bytes: How long a value may be in SQLite; on PostgreSQL see `short_rows`.
    """
    if connection.dialect.name == "postgresql":
        setting = "SELECT set_config('statement_timeout', %s, true)"
        connection.exec_driver_sql(setting, (str(round(1000 * seconds)),)).fetchall()
        yield
        return
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    ends = time.monotonic() + seconds
    raw.set_progress_handler(lambda: time.monotonic() > ends, _INSTRUCTIONS)
    lower = {sqlite3.SQLITE_LIMIT_LENGTH: most_bytes, sqlite3.SQLITE_LIMIT_COLUMN: _COLUMNS}
    before = {limit: raw.setlimit(limit, value) for limit, value in lower.items()}
    try:
        yield
    finally:
        raw.set_progress_handler(None, 0)
        for limit, value in before.items():
            raw.setlimit(limit, value)


def short_rows(sql: str, most_bytes: int) -> str:
    """Return a SELECT for PostgreSQL that fails at a row which is longer, before the row is sent."""
    said = f"'a row is longer than {most_bytes:,} bytes, ' || octet_length(answer::text)"
    check = f"CASE WHEN octet_length(answer::text) <= {most_bytes} THEN true ELSE ({said})::boolean END"
    return f"SELECT answer.* FROM (\n{_END.sub('', sql)}\n) AS answer WHERE {check}"


def is_out_of_time(error: BaseException) -> bool:
    """Tell whether a database gave a query up for the time that it took."""
    said = str(getattr(error, "orig", None) or error)
    return "interrupted" in said or "statement timeout" in said
