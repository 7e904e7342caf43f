"""Read-only connections to a store by its URL; each sees one moment."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.analysis import address, guards

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import URL, Connection, Engine
    from sqlalchemy.exc import DatabaseError

SCHEMA = "0013"
"""The version of stores that this code reads and writes: raised whenever tables change. Compared as text."""

_ABSENT = re.compile(r"no such (?:table: v_|column)|(?:relation \"v_|column )\S* does not exist")
"""Matches the message of a database about a missing view or column."""


@contextmanager
def connect(store: str) -> Iterator[Connection]:
    """Open a read-only transaction that sees one moment; a missing SQLite file is not created.

    Args:
        store: SQLAlchemy URL; `postgresql://` and `postgres://` need no driver's name.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If the store cannot be read, or has another version. The message holds no password.
    """
    from sqlalchemy.exc import DatabaseError

    url = address.parse(store)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise FileNotFoundError(f"no store at {url.database}: launch a study first, or name another lab")
    try:
        connection = _engine(url).connect()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"cannot read results from {address.shown(url)}: {reason}") from error
    except DatabaseError as error:
        raise _unreadable(url, error) from error
    try:
        with connection:
            if connection.dialect.name == "sqlite":
                # sqlite3 opens no transaction for a SELECT by itself: without one, each sees another moment.
                connection.exec_driver_sql("BEGIN")
            version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            if version != SCHEMA:
                raise ValueError(f"the store {address.shown(url)} {other_version(str(version))}")
            yield connection
            connection.rollback()
    except DatabaseError as error:
        raise _unreadable(url, error) from error


def _unreadable(url: URL, error: DatabaseError) -> ValueError:
    message = " ".join(str(error.orig).split())
    if "alembic_version" in message:
        message = "it is not a results store"
    remedy = " (if views are of another version: run jestlab db upgrade)" if _ABSENT.search(message) else ""
    return ValueError(f"cannot read results from {address.shown(url)}: {message}{remedy}")


@lru_cache(maxsize=16)
def _engine(url: URL) -> Engine:
    """Create an engine. Between transactions it keeps no connection, which a forked process would inherit."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    if url.get_backend_name() == "sqlite":
        return create_engine("sqlite://", creator=lambda: _open_sqlite(url), poolclass=NullPool)
    engine = create_engine(url, poolclass=NullPool)
    return guards.only_queries(engine) if engine.dialect.name == "postgresql" else engine


def other_version(
    version: str, remedy: str = "read it with the version that made it, or give another --root or --store"
) -> str:
    """Describe the version of a store or an archive, with the remedy."""
    age, remedy = ("newer", "upgrade jestlab") if version > SCHEMA else ("older", remedy)
    return f"has schema {version}, {age} than this jestlab's {SCHEMA}: {remedy}"


def shown(url: str) -> str:
    """Return the URL of a store without its password."""
    return address.shown(address.parse(url))


def _open_sqlite(url: URL) -> sqlite3.Connection:
    """Open a SQLite file read-only.

    NOTE: footgun. `mode=ro` on a database in WAL mode leaves -wal and -shm files behind, which a read-only
    connection may make but not remove; `query_only` forbids writing just as well and leaves nothing.
    """
    connection = guards.open_readonly(Path(url.database or "").absolute(), "rw")
    connection.execute("PRAGMA query_only = ON")
    guards.only_selects(connection, hidden=guards.SECRET)
    return connection


def frame(connection: Connection, sql: str, **parameters: Any) -> pd.DataFrame:
    """Read the rows of a SELECT into a frame.

    Args:
        connection: From `connect`.
        sql: With named parameters; `:names` is a list.
        parameters: Their values.

    Returns:
        A frame with the columns of the SELECT; in whatever order the database gave them, since databases,
        and locales of one database, sort text in many ways.
    """
    import pandas as pd
    from sqlalchemy import String, bindparam, text

    statement = text(sql)
    if "names" in parameters:
        # Of a list without a value, PostgreSQL would not know the type.
        statement = statement.bindparams(bindparam("names", expanding=True, type_=String))
    result = connection.execute(statement, parameters)
    names = list(result.keys())
    columns = list(zip(*result.fetchall(), strict=True)) or [()] * len(names)
    return pd.DataFrame(dict(zip(names, columns, strict=True)))
