"""URLs of stores: SQLite files and PostgreSQL databases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jestlab.analysis.connection import EXAMPLES, parse, shown
from jestlab.platform.errors import StoreMissing, UserError

if TYPE_CHECKING:  # slow to import
    from sqlalchemy import URL

STORE = "JESTLAB_STORE"
"""Environment variable with the store's URL."""

_REMNANTS = ("-wal", "-shm", "-journal")  # SQLite's files next to one that is open, or was not closed


def parse_url(url: str) -> URL:
    """Parse the URL of a SQLite file or a PostgreSQL database (`postgres://` or `postgresql://`).

    Raises:
        UserError: It is another kind of URL. The message contains no password.
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
    """Return an address without passwords; for a file, its path."""
    path = sqlite_file(address)
    return shown(address) if path is None or path == Path() else str(path)


def existing_file(url: str) -> Path | None:
    """Return the file of a SQLite store; None for a database on a server.

    Raises:
        StoreMissing: The file doesn't exist.
    """
    path = sqlite_file(parse_url(url))
    if path is not None and not path.exists():
        refuse_remnants(path)
        raise StoreMissing(f"no store at {path}: launch a study first, or use --root or --store")
    return path


def refuse_remnants(path: Path) -> None:
    """Raise an error if a SQLite file is missing, but not the files that belong to it.

    SQLite would take a new file for theirs, and delete their content.

    Raises:
        StoreMissing: Names these files, and the remedy.
    """
    whole = Path(os.path.realpath(path))
    files = [whole.with_name(whole.name + suffix) for suffix in _REMNANTS]
    left = [file.name for file in files if file.exists()]
    if left and not os.path.lexists(path):  # otherwise another process has just created it
        raise StoreMissing(
            f"the store {path} was moved away from {' and '.join(left)}, which may contain results: "
            f"move {whole.name} back, or move {'it' if len(left) == 1 else 'them'} away, too"
        )
