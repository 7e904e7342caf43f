"""Errors that users can fix, and helpers for messages. Any other exception from this package is a bug."""

import json
import re


class RequestError(ValueError):
    """A request that can't be answered. The message is one line with the reason and the remedy."""


class NotYet(RequestError):
    """The experiment has no results for a table or figure so far."""


def without_addresses(text: str) -> str:
    """Remove the addresses of objects in memory, which change with each process: `<BytesIO at 0x7f…>`."""
    return re.sub(r" at 0x[0-9a-fA-F]+(?=>)", "", text)


def shown(value: object) -> str:
    """Quote a value as YAML writes it, shortened to 60 characters."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else without_addresses(repr(value))
    return text if len(text) <= 60 else text[:57] + "…"


def printable(text: str) -> str:
    """Return a text; raise ValueError if it is blank, or has line breaks or other unprintable characters."""
    if text.isspace() or not text.isprintable():
        raise ValueError("must be a text of printable characters in one line")
    return text
