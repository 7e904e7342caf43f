"""Read-only connections to a store by its URL; each sees one moment."""

from __future__ import annotations

import atexit
import gc
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.analysis import address, guards

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import URL, Connection, Engine

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
    engine = _sqlite(url) if url.get_backend_name() == "sqlite" else _server(url)
    try:
        with _connected(engine, url) as connection:
            if engine.dialect.name == "sqlite":
                # sqlite3 opens no transaction for a SELECT by itself: without one, each sees another moment.
                connection.exec_driver_sql("BEGIN")
            try:
                version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
                if version != SCHEMA:
                    raise ValueError(f"the store {address.shown(url)} {other_version(str(version))}")
                yield connection
            finally:
                connection.rollback()
    except DatabaseError as error:
        said = " ".join(str(error.orig).split())
        if "alembic_version" in said:
            said = "it is not a results store"
        remedy = " (if views are of another version: run jestlab db upgrade)" if _ABSENT.search(said) else ""
        raise ValueError(f"cannot read results from {address.shown(url)}: {said}{remedy}") from error


def _connected(engine: Engine, url: URL) -> Connection:
    try:
        return engine.connect()
    except OSError as error:
        raise ValueError(
            f"cannot read results from {address.shown(url)}: {error.strerror or error}"
        ) from error


def other_version(
    version: str, remedy: str = "read it with the version that made it, or give another --root or --store"
) -> str:
    """Describe the version of a store or an archive, with the remedy."""
    age, remedy = ("newer", "upgrade jestlab") if version > SCHEMA else ("older", remedy)
    return f"has schema {version}, {age} than this jestlab's {SCHEMA}: {remedy}"


def shown(url: str) -> str:
    """Return the URL of a store without its password."""
    return address.shown(address.parse(url))


# Opening a file and reading its schema takes longer than most queries. So a connection to each file is kept,
# idle and outside any transaction, where it blocks no writer. A file that replaced another is opened again.

_KEPT = 8
"""Number of files whose connection is kept: the last ones."""
_kept: dict[tuple[Path, int, int], Engine] = {}
_keeping = threading.Lock()


def _sqlite(url: URL) -> Engine:
    path = Path(url.database or "").absolute()
    if not path.is_file():
        raise FileNotFoundError(f"no store at {url.database}: launch a study first, or name another lab")
    stat = path.stat()
    key = (path, stat.st_dev, stat.st_ino)
    with _keeping:
        engine = _kept.pop(key, None) or _engine_of(path)
        _kept[key] = engine
        gone = [_kept.pop(old) for old in [*_kept][:-_KEPT]]
    for old in gone:
        old.dispose()
    return engine


def _engine_of(path: Path) -> Engine:
    from sqlalchemy import create_engine, event
    from sqlalchemy.exc import DisconnectionError
    from sqlalchemy.pool import QueuePool

    engine = create_engine(
        "sqlite://", creator=lambda: _open_sqlite(path), poolclass=QueuePool, pool_size=1, max_overflow=-1
    )

    @event.listens_for(engine, "checkout")
    def _check_state(connection: Any, *_: Any) -> None:
        if guards.is_stale(connection, path):
            raise DisconnectionError

    return engine


def _forget() -> None:
    """Close the connections that are kept."""
    with _keeping:
        for engine in _kept.values():
            engine.dispose()
        _kept.clear()


# A child would inherit what SQLite believes that it has locked, but not the locks: even a connection of its
# own to the same file would then read, and write, unprotected.
os.register_at_fork(before=_forget)
atexit.register(_forget)  # the last one to close a store removes the files next to it


@lru_cache(maxsize=16)
def _server(url: URL) -> Engine:
    """On PostgreSQL a transaction sees one moment and cannot write."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine = create_engine(url, poolclass=NullPool)
    return guards.only_queries(engine) if engine.dialect.name == "postgresql" else engine


def _open_sqlite(path: Path) -> sqlite3.Connection:
    """Open a SQLite file read-only.

    NOTE: footgun. `mode=ro` on a database in WAL mode leaves -wal and -shm files behind, which a read-only
    connection may make but not remove; `query_only` forbids writing just as well and leaves nothing.
    """
    connection = guards.open_readonly(path, "rw")
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
    with _no_collection():
        result = connection.execute(statement, parameters)
        names = list(result.keys())
        columns = list(zip(*result.fetchall(), strict=True)) or [()] * len(names)
        return pd.DataFrame({name: _typed(column) for name, column in zip(names, columns, strict=True)})


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the garbage collector: with a hundred thousand rows it would scan all objects again and again,
    which takes as long as reading them, and rows form no cycles."""
    resting = not gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not resting:
            gc.enable()


def _typed(column: tuple[Any, ...]) -> Any:
    """Turn columns of numbers into arrays, which pandas takes several times faster."""
    import numpy as np

    if column and type(column[0]) in (int, float):
        array = np.asarray(column)
        if array.dtype.kind in "if":
            return array
    return list(column)
