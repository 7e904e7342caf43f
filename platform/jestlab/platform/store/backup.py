"""Copy a store of either kind into one SQLite file, and restore a store from such a file.

A copy is another store with another ID, and without the original's jobs. Otherwise two stores would adopt and
end each other's jobs.
"""

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, exists, func, select, update

from jestlab.analysis.shared import is_shared
from jestlab.platform.errors import UserError
from jestlab.platform.store import schema
from jestlab.platform.store.address import existing_file, parse_url, refuse_remnants, shown_url, sqlite_file
from jestlab.platform.store.engine import (
    closing_engine,
    create_file,
    one_file,
    read_only,
    reading,
    writable,
    writing,
)
from jestlab.platform.store.rows import copy_rows
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, Base, ExperimentRow, IdentityRow, RunRow

_NOWHERE = ""
"""The place of a copy, which is no place: who opens the copy next finds that it isn't the original."""


def back_up(url: str, path: Path) -> None:
    """Copy the state of a store at one moment; others can write meanwhile.

    Args:
        url: The store.
        path: A new SQLite file, which appears complete or not at all.

    Raises:
        UserError: The store doesn't exist, or the file exists or can't be written.
    """
    existing_file(url)
    with _appearing(path) as unfinished:
        _copy(url, f"sqlite:///{unfinished}")


def restore(path: Path, url: str) -> None:
    """Restore a backup into an empty store, or move a store from SQLite to PostgreSQL; all or nothing.

    Live attempts end: their workers write to the original store.

    Args:
        path: A backup, or any SQLite store of this version.
        url: A SQLite file that doesn't exist yet, or an empty PostgreSQL database.

    Raises:
        UserError: The file is not a store of this version, or the database is not empty.
    """
    backup = f"sqlite:///{path.absolute()}"
    target = sqlite_file(parse_url(url))
    if target is None or is_shared(target):
        if target is not None:
            create_file(target)
        _copy(backup, url)
    else:
        with _appearing(target) as unfinished:
            _copy(backup, f"sqlite:///{unfinished}")
    Store.open(url, create=False).close()  # finds that it is a copy, and ends its attempts


@contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """Create an empty file, which is moved to its path on success."""
    if not path.parent.is_dir():
        raise UserError(f"no folder {path.parent}: create it, or use another path")
    unfinished = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        if path.exists():
            raise FileExistsError
        refuse_remnants(path)
        create_file(unfinished)
        yield unfinished
        with unfinished.open("rb") as stream:
            os.fsync(stream.fileno())
        os.link(unfinished, path)  # unlike `replace`, it never overwrites another file
    except FileExistsError:
        raise UserError(f"{path} already exists: choose another name") from None
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            unfinished.with_name(unfinished.name + suffix).unlink(missing_ok=True)


def _copy(source: str, target: str) -> None:
    """Copy a store into an empty one, in one transaction of each."""
    file, from_file = sqlite_file(parse_url(target)), sqlite_file(parse_url(source)) is not None
    if is_shared(file):
        file = None  # rows are copied, as into a database on a server
    # On a server, only readers have a time limit.
    open_source = read_only if from_file else writable
    with closing_engine(open_source(source)) as original, closing_engine(writable(target)) as engine:
        schema.ensure(original, create=False)
        if file is not None and from_file:
            _copy_file(original, file)
        else:
            schema.ensure(engine, create=True)
        with reading(original) as rows, writing(engine) as copy:
            if file is None or not from_file:
                _copy_rows(rows, copy)
            copy.execute(update(IdentityRow).values(id=uuid.uuid4().hex, place=_NOWHERE))
            copy.execute(update(AttemptRow).values(handle=None, token=None))
        one_file(engine)


def _copy_file(source: Engine, target: Path) -> None:
    """Use SQLite's backup, much faster than a copy of rows. In one step, it leaves later writes out."""
    try:
        with reading(source) as connection, closing(sqlite3.connect(target)) as copy:
            raw: Any = connection.connection.dbapi_connection
            raw.backup(copy)
            [[verdict]] = copy.execute("PRAGMA quick_check(1)")
    except sqlite3.Error as error:
        verdict = str(error)
    if verdict != "ok":
        raise UserError(f"the copy of {shown_url(source.url)} failed: {verdict}")


def _copy_rows(source: Connection, target: Connection) -> None:
    """Copy every table, in the order of references."""
    if any(target.scalar(select(exists(table))) for table in (ExperimentRow, RunRow)):
        place = shown_url(target.engine.url)
        raise UserError(f"the store {place} is not empty: restore a backup into a new database")
    for table in Base.metadata.sorted_tables:
        if table.name == IdentityRow.__tablename__:
            continue  # the target has its own
        copy_rows(source, target, table, table.select())
        if target.dialect.name == "postgresql" and table.autoincrement_column is not None:
            # Continue the sequence of IDs after the copied ones.
            last = select(func.max(table.c.id)).scalar_subquery()
            target.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), last)))
