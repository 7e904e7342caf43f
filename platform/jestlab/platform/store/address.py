"""Where a store is: URLs of SQLite files and PostgreSQL databases, and how they are shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jestlab.analysis.address import EXAMPLES, parse, shown
from jestlab.platform.errors import StoreMissing, UserError

if TYPE_CHECKING:  # verbs that need no store do not wait for it
    from sqlalchemy import URL

STORE = "JESTLAB_STORE"
"""Environment variable with the store's URL."""

_BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file that is open, or was not closed


def parse_url(url: str) -> URL:
    """Parse the URL of a SQLite file or a PostgreSQL database (`postgres://` or `postgresql://`).

    Raises:
        UserError: It is not such a URL. The message holds no password.
    """
    try:
        address = parse(url)
    except ValueError as error:
        raise UserError(str(error)) from None
    if address.drivername == "postgresql+psycopg":
        if not address.database:
            raise UserError(f"store {shown_url(address)!r} names no database: expected {EXAMPLES}")
        return address
    if address.get_backend_name() == "sqlite" and address.database not in (None, "", ":memory:"):
        return address
    raise UserError(
        f"store {shown_url(address)!r} is neither a SQLite file nor PostgreSQL: expected {EXAMPLES}"
    )


def sqlite_file(address: URL) -> Path | None:
    """Return the file of a SQLite store; None for a database on a server."""
    if address.get_backend_name() != "sqlite":
        return None
    return Path(address.database or "")


def shown_url(address: URL) -> str:
    """Return an address to show: a file's path, or a URL without passwords."""
    path = sqlite_file(address)
    return shown(address) if path is None or path == Path() else str(path)


def existing_file(url: str) -> Path | None:
    """Return the file of a SQLite store, which must exist; None for a database on a server.

    Raises:
        StoreMissing: There is no such file.
    """
    path = sqlite_file(parse_url(url))
    if path is not None and not path.exists():
        refuse_remnants(path)
        raise StoreMissing(f"no store at {path}: launch a study first, or give --root or --store")
    return path


def refuse_remnants(path: Path) -> None:
    """Refuse a missing SQLite file beside which files that belong to it were left: no new one may be made.

    A new file would be taken for theirs, and what they hold would be deleted.

    Raises:
        StoreMissing: There are such files; the message says which, and what to do.
    """
    whole = Path(os.path.realpath(path))
    beside = [whole.with_name(whole.name + suffix) for suffix in _BESIDE]
    left = [file.name for file in beside if file.exists()]
    if left and not os.path.lexists(path):  # else somebody has made or moved it there just now
        them = "it" if len(left) == 1 else "them"
        raise StoreMissing(
            f"the store {path} was moved away from {' and '.join(left)}, which may hold results: "
            f"move {whole.name} back, or, to begin a new store, move {them} away, too"
        )
