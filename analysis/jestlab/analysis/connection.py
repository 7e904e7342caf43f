"""Open a store read-only, as of one moment, by its URL. No message shows any part of a password."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from jestlab.analysis import read_only
from jestlab.analysis.shared import LocalCopy, is_shared

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

SCHEMA = "0013"
"""Schema version of the stores that this code reads and writes; increased whenever tables change."""

EXAMPLES = "sqlite:///lab/results.db or postgresql://user@host/database"
_POSTGRESQL = ("postgres", "postgresql", "postgresql+psycopg")


def parse(url: str) -> URL:
    """Parse the URL of a store; `postgresql://` and `postgres://` need no driver name.

    Raises:
        ValueError: The text isn't a database URL, or special characters of the password aren't
            percent-encoded, so that a part of it would be taken for the host and shown. The message is one
            line without any part of the password.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    after_user = re.fullmatch(r"[^:/]+://[^:/]*:(.*)", url, re.DOTALL)
    if after_user is not None and after_user[1].count("@") > 1:
        raise ValueError(
            f"store {hidden(url)!r}: an @ in the password has to be written %40 (and / as %2F, : as %3A, "
            "? as %3F, % as %25)"
        )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is not a number
        raise ValueError(f"store {hidden(url)!r} is not a database URL: expected {EXAMPLES}") from None
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername in _POSTGRESQL else parsed


def shown(url: str | URL) -> str:
    """Return a URL without its password, and without its options if one of them is a password."""
    url = parse(url) if isinstance(url, str) else url
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql")
    has_secret = any("password" in name.lower() for name in url.query)
    text = (url.set(query={}) if has_secret else url).render_as_string(hide_password=True)
    return f"{text}?***" if has_secret else text


def hidden(text: str) -> str:
    """Mask a malformed URL except its scheme, since a password may be anywhere after the scheme."""
    scheme = re.match(r"[\w+.-]*://", text)
    return f"{scheme[0] if scheme else ''}***" if scheme or re.search("[@:?=]", text) else text


@contextmanager
def connect(store: str) -> Iterator[Connection]:
    """Open a read-only transaction, which sees the store as of one moment.

    Args:
        store: SQLAlchemy URL, as in `parse`.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist; it is not created.
        ValueError: The store can't be read, or has another version. The message has no password.
    """
    from sqlalchemy.exc import DatabaseError

    url = parse(store)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise FileNotFoundError(f"no store at {url.database}: launch a study first, or name another lab")
    try:
        with _engine(url).connect() as connection:
            if connection.dialect.name == "sqlite":
                # sqlite3 begins no transaction for a SELECT; each would see the store as of another moment.
                connection.exec_driver_sql("BEGIN")
            version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            if version != SCHEMA:
                raise ValueError(f"the store {shown(url)} {other_version(str(version))}")
            yield connection
            connection.rollback()
    except DatabaseError as error:
        message = " ".join(str(error.orig).split())
        if "alembic_version" in message:
            message = "it is not a results store"
        raise ValueError(f"cannot read results from {shown(url)}: {message}") from error


@lru_cache(maxsize=16)
def _engine(url: URL) -> Engine:
    """Create an engine without a pool, since a forked process would inherit the pool's connections."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    if url.get_backend_name() == "sqlite":
        return create_engine("sqlite://", creator=lambda: _open_sqlite(url), poolclass=NullPool)
    engine = create_engine(url, poolclass=NullPool)
    return read_only.only_queries(engine) if engine.dialect.name == "postgresql" else engine


def other_version(
    version: str, remedy: str = "read it with the version that made it, or give another --root or --store"
) -> str:
    """Say that a store or an archive has another schema version, with the remedy."""
    age, remedy = ("newer", "upgrade jestlab") if version > SCHEMA else ("older", remedy)
    return f"has schema {version}, {age} than this jestlab's {SCHEMA}: {remedy}"


def _open_sqlite(url: URL) -> sqlite3.Connection:
    """Open a SQLite file read-only, or this machine's copy of a shared store, brought up to date.

    NOTE: On a database in WAL mode, a connection with `mode=ro` creates -wal and -shm files and can't remove
    them. `query_only` forbids writing as well, and leaves no files behind.
    """
    path = Path(url.database or "").absolute()
    try:
        if is_shared(path):
            copy = LocalCopy(path)
            copy.follow()
            path = copy.file
        connection = read_only.open_readonly(path, "rw")
    except OSError as error:
        raise ValueError(f"cannot read results from {shown(url)}: {error.strerror or error}") from error
    connection.execute("PRAGMA query_only = ON")
    read_only.only_selects(connection, hidden=read_only.SECRET)
    return connection
