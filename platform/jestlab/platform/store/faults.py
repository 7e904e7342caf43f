"""What a database's errors mean to whoever meets them: try again later, mend something, or a bug of ours."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError

from jestlab.platform.errors import StoreError, StoreUnreachable
from jestlab.platform.store import address

_SQLITE_PASSES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_CANTOPEN,
    }
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
_POSTGRESQL_MEND = (
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


def meaning(error: DBAPIError, store: URL) -> StoreError | None:
    """What to tell a user of an error of the database.

    Args:
        error: As SQLAlchemy raised it.
        store: Where it came from; its password stays out of the message.

    Returns:
        StoreUnreachable if trying again later may help, a plain StoreError if something has to be mended
        first, None if it is a bug of ours.
    """
    place = f"store {address.shown(store)}"
    if isinstance(error.orig, sqlite3.Error):
        return _of_sqlite(error.orig, place, address.file(store))
    return _of_postgresql(error, place, store)


def said(error: DBAPIError) -> str:
    """The database's own words, on one line."""
    diagnosis = getattr(error.orig, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    words = str(primary or error.orig)
    return " ".join(words.split())


def _of_sqlite(error: sqlite3.Error, place: str, file: Path | None) -> StoreError | None:
    message = f"{place}: {error}"
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says more exactly what
    if primary == sqlite3.SQLITE_CANTOPEN and file is not None and _forbidden(file):
        return StoreError(f"{message}: no permission")
    if primary in _SQLITE_PASSES:
        return StoreUnreachable(message)
    # Integrity and programming errors are ours, and have classes of their own.
    mend = type(error) in (sqlite3.DatabaseError, sqlite3.OperationalError)
    return StoreError(message) if mend else None


def _forbidden(file: Path) -> bool:
    """Whether a file, or the folder that should hold it, is there and closed to us."""
    place = file if file.exists() else file.parent
    return place.exists() and not os.access(place, os.R_OK | os.W_OK)


def _of_postgresql(error: DBAPIError, place: str, store: URL) -> StoreError | None:
    state = getattr(error.orig, "sqlstate", None)
    words = said(error)
    message = f"{place}: {words}"
    if state == "3D000" or (state is None and _NO_DATABASE.search(words)):
        return StoreError(f"{place}: there is no such database: make it with createdb {store.database}")
    if state is None and _REFUSED.search(words):
        return StoreError(message)
    if error.connection_invalidated or (state is None and _is_silence(error)):
        return StoreUnreachable(message)
    if state is not None and state.startswith(_POSTGRESQL_PASSES):
        return StoreUnreachable(message)
    return StoreError(message) if state is not None and state.startswith(_POSTGRESQL_MEND) else None


def _is_silence(error: DBAPIError) -> bool:
    """Whether there was no server to give a code."""
    import psycopg

    return isinstance(error.orig, psycopg.OperationalError | psycopg.InterfaceError)
