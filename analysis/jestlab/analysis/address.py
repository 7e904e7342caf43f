"""URLs of stores: how they are read, and how they are shown without any part of a password."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import URL

EXAMPLES = "sqlite:///lab/results.db or postgresql://user@host/database"
_WITH_PASSWORD = re.compile(r"[^:/]+://[^:/]*:(.*)", re.DOTALL)
_SCHEME = re.compile(r"[\w+.-]*://")
_POSTGRESQL = frozenset({"postgres", "postgresql", "postgresql+psycopg"})


def parse(url: str) -> URL:
    """Parse the URL of a store; `postgresql://` and `postgres://` need no driver's name.

    Raises:
        ValueError: It isn't the URL of a database, or characters of its password aren't quoted, so that a
            part of it would be taken for the host and shown. The message, one line, holds no part of a
            password.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    found = _WITH_PASSWORD.fullmatch(url)
    if found is not None and found[1].count("@") > 1:
        raise ValueError(
            f"store {hidden(url)!r}: an @ of its password has to be written %40 (and / as %2F, : as %3A, "
            "? as %3F, % as %25)"
        )
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is not a number
        raise ValueError(f"store {hidden(url)!r} is not a database URL: expected {EXAMPLES}") from None
    return address.set(drivername="postgresql+psycopg") if address.drivername in _POSTGRESQL else address


def shown(address: URL) -> str:
    """Return a URL without its password, and without its options if one of them is a password."""
    if address.get_backend_name() == "postgresql":
        address = address.set(drivername="postgresql")
    secret = any("password" in name.lower() for name in address.query)
    text = (address.set(query={}) if secret else address).render_as_string(hide_password=True)
    return f"{text}?***" if secret else text


def hidden(text: str) -> str:
    """Return what can be shown of a text that should be a URL, and of which a password may be any part."""
    if scheme := _SCHEME.match(text):
        return f"{scheme[0]}***"
    return "***" if re.search("[@:?=]", text) else text
