"""Logs of runs: one file a run, appended by each attempt, read from its end however long it is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from jestlab.analysis.written import without_addresses
from jestlab.platform.redaction import without_url_credentials
from jestlab.platform.words import printable

NAME = "log.txt"

COPIED = "JESTLAB_COPY_LOG"
"""Set where a worker's output is not yet the run's log: on another machine than the launcher's."""

_BLOCK = 1 << 16
_PLACE = re.compile(
    r'^Traceback \(most recent call last\):$|^ +File ".*(?:", line \d+.*$|\Z)(?:\n {4}.*$)*', re.MULTILINE
)
"""The lines of a traceback that say where an error was raised, not which."""


def last_lines(path: Path, count: int, limit: int = 1 << 24) -> bytes:
    """Return the last lines of a file, at most `limit` bytes: a log may be one endless line."""
    if not path.is_file():
        return b""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        start, tail = size, b""
        while start > 0 and tail.count(b"\n") <= count and len(tail) < limit:
            step = min(_BLOCK, start)
            start -= step
            stream.seek(start)
            tail = stream.read(step) + tail
    lines = tail.splitlines(keepends=True)[-count:] if count else []
    last = b"".join(lines)
    return last if len(last) <= limit else last[-limit:].lstrip(bytes(range(0x80, 0xC0)))  # a whole character


def summary(path: Path, count: int = 3) -> str:
    """Return the last lines of a log that say something, as one line fit for a table."""
    return tail(last_lines(path, 4 * count, limit=4_096).decode(errors="replace"), count)


def tail(text: str, count: int = 3) -> str:
    """Return the last lines of a text that say something, as one line without passwords in URLs.

    Of a traceback, that is the error alone.
    """
    said = (one_line(line) for line in _PLACE.sub("", without_url_credentials(text)).splitlines())
    lines = [line for line in said if line.strip("~^ ") and not line.startswith("---")]
    return one_line(" | ".join(lines[-count:]))


def one_line(text: str, length: int = 500) -> str:
    """Return text as one printable line: white space single, its middle left out if long."""
    line = without_addresses(" ".join(printable(text).split()))
    half = length // 2
    return line if len(line) <= length else f"{line[:half]} … {line[-half:]}"
