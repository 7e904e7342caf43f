"""Where a store is: URLs of SQLite files and PostgreSQL databases, and how they are shown."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from jestlab.platform.errors import UserError

_POSTGRESQL = frozenset({"postgres", "postgresql", "postgresql+psycopg"})
_SECRETS = frozenset({"password", "sslpassword"})
_EXAMPLES = "sqlite:///lab/results.db or postgresql://user@host/database"


def parse(url: str) -> URL:
    """The address that a user's URL means.

    Args:
        url: Of a SQLite file or of a PostgreSQL database; `postgres://` and `postgresql://` are the same.

    Raises:
        UserError: It is none of these. The message holds no password.
    """
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise UserError(f"store {shown(url)!r} is not a database URL: give one such as {_EXAMPLES}") from None
    if address.drivername in _POSTGRESQL:
        if not address.database:
            raise UserError(f"store {shown(address)!r} names no database: give one such as {_EXAMPLES}")
        return address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() == "sqlite" and address.database not in (None, "", ":memory:"):
        return address
    raise UserError(
        f"store {shown(address)!r} is no SQLite file and no PostgreSQL: give one such as {_EXAMPLES}"
    )


def file(address: URL) -> Path | None:
    """The file of a SQLite store; None for a database on a server."""
    if address.get_backend_name() != "sqlite":
        return None
    return Path(address.database or "")


def shown(address: URL | str) -> str:
    """An address as people may see it: a file's path, or a URL with every password replaced by ***."""
    if isinstance(address, str):  # one that could not be parsed: nobody knows where its password ends
        hidden = re.sub(r"(//)?([^/@:]*):.*@", r"\1\2:***@", address, flags=re.DOTALL)
        return re.sub(r"((?:ssl)?password=)[^&\s]*", r"\1***", hidden, flags=re.IGNORECASE)
    if (path := file(address)) is not None and path != Path():
        return str(path)
    if address.get_backend_name() == "postgresql":
        address = address.set(drivername="postgresql")
    secrets = {name: "***" for name in address.query if name.lower() in _SECRETS}
    return address.update_query_dict(secrets).render_as_string(hide_password=True)
