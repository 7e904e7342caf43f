"""Copy a store of either kind into one SQLite file, and restore a store from such a file.

A copy is another store with another ID, and without the original's jobs. Otherwise two stores would adopt and
end each other's jobs.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, exists, func, select, update

from jestlab.platform.errors import UserError
from jestlab.platform.store import schema
from jestlab.platform.store.address import existing_file, parse_url, refuse_remnants, shown_url, sqlite_file
from jestlab.platform.store.engine import (
    closing_engine,
    create_file,
    plain_errors,
    read_only,
    reading,
    writable,
    writing,
)
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, Base, ExperimentRow, IdentityRow, RunRow

_NOWHERE = ""
"""The place of a copy, which is no place: who opens the copy next finds that it isn't the original."""

_ROWS = 10_000  # in memory at a time


def back_up(url: str, path: Path) -> None:
    """Copy the state of a store at one moment; others can write meanwhile.

    Args:
        url: The store.
        path: A new SQLite file, which appears complete or not at all.

    Raises:
        UserError: The store doesn't exist, or the file exists or can't be written.
    """
    with _appearing(path) as unfinished:
        if (source := existing_file(url)) is not None:
            _copy_file(source, unfinished)
        else:
            _copy_server(url, unfinished)


def restore(path: Path, url: str) -> None:
    """Restore a backup into an empty store, or move a store from SQLite to PostgreSQL; all or nothing.

    Live attempts end: their workers write to the original store.

    Args:
        path: A backup, or any SQLite store of this version.
        url: A SQLite file that doesn't exist yet, or an empty PostgreSQL database.

    Raises:
        UserError: The file is not a store of this version, or the database is not empty.
    """
    if not path.is_file():
        raise UserError(f"no backup at {path}")
    target = sqlite_file(parse_url(url))
    if target is not None:
        with _appearing(target) as unfinished:
            _copy_file(path.absolute(), unfinished)
    else:
        _restore_to_server(path, url)
    Store.open(url, create=False).close()  # finds that it is a copy, and ends its attempts


def _restore_to_server(path: Path, url: str) -> None:
    with closing_engine(read_only(f"sqlite:///{path.absolute()}")) as backup:
        schema.ensure(backup, create=False)
        with closing_engine(writable(url)) as engine:
            with reading(engine) as connection:
                made = schema.revision(connection) is not None
                if made and any(
                    connection.scalar(select(exists(table))) for table in (ExperimentRow, RunRow)
                ):
                    place = shown_url(engine.url)
                    raise UserError(f"the store {place} is not empty: restore a backup into a new database")
            schema.ensure(engine, create=True)
            with reading(backup) as source, writing(engine) as connection:
                _copy_rows(source, connection)


@contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """Yield a temporary file, which is moved to its path on success."""
    if not path.parent.is_dir():
        raise UserError(f"no folder {path.parent}: create it, or use another path")
    unfinished = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        if path.exists():
            raise FileExistsError
        refuse_remnants(path)
        yield unfinished
        with unfinished.open("rb") as stream:
            os.fsync(stream.fileno())
        os.link(unfinished, path)  # unlike `replace`, it never overwrites another file
    except FileExistsError:
        raise UserError(f"{path} already exists: choose another name") from None
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            unfinished.with_name(unfinished.name + suffix).unlink(missing_ok=True)


def _copy_file(source: Path, target: Path) -> None:
    """Use SQLite's online backup in one step: later writes of others are left out."""
    with closing_engine(read_only(f"sqlite:///{source}")) as engine, plain_errors(engine):
        schema.ensure(engine, create=False)
        with engine.connect() as connection, closing(sqlite3.connect(target)) as copy:
            raw: Any = connection.connection.dbapi_connection
            try:
                raw.backup(copy)
                raw.rollback()  # fails if another process wrote to a file that couldn't be locked
                with copy:
                    copy.execute("UPDATE identity SET id = ?, place = ?", (uuid.uuid4().hex, _NOWHERE))
                    copy.execute("UPDATE attempt SET handle = NULL, token = NULL")
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log next to it
                [[verdict]] = copy.execute("PRAGMA integrity_check(1)").fetchall()
            except sqlite3.Error as error:
                raise UserError(f"the backup of {source} failed: {error}") from error
        if verdict != "ok":
            raise UserError(f"{source} is damaged: {verdict}: see jestlab db check")


def _copy_server(url: str, target: Path) -> None:
    """Copy the rows of a database into a new SQLite store."""
    create_file(target)
    with closing_engine(writable(url)) as engine, closing_engine(writable(f"sqlite:///{target}")) as copy:
        schema.ensure(engine, create=False)
        schema.ensure(copy, create=True)
        with reading(engine) as connection, writing(copy) as into:
            _copy_rows(connection, into)
        with copy.connect() as connection:
            raw: Any = connection.connection.dbapi_connection
            raw.execute("PRAGMA journal_mode = DELETE")  # one file, without a log next to it


def _copy_rows(source: Connection, target: Connection) -> None:
    """Copy every table, in the order of references."""
    target.execute(update(IdentityRow).values(place=_NOWHERE))
    for table in Base.metadata.sorted_tables:
        if table.name == IdentityRow.__tablename__:
            continue  # the target has another ID
        result = source.execution_options(yield_per=_ROWS).execute(table.select())
        for rows in result.mappings().partitions():
            target.execute(table.insert(), [dict(row) for row in rows])
        if table.name == AttemptRow.__tablename__:
            target.execute(table.update().values(handle=None, token=None))
        if target.dialect.name == "postgresql" and table.autoincrement_column is not None:
            # Continue the sequence of IDs after the copied ones.
            last = select(func.max(table.c.id)).scalar_subquery()
            target.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), last)))
