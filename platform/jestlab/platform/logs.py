"""Logs of runs: one file per run, to which each attempt appends. Functions read them and shorten lines."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from jestlab.analysis.errors import without_addresses
from jestlab.platform.redaction import without_url_credentials
from jestlab.platform.words import on_one_line

NAME = "log.txt"

COPIED = "JESTLAB_COPY_LOG"
"""Environment variable that makes a worker copy its output to the run's log, as on remote machines."""

_BLOCK = 1 << 16
_LOCATION = re.compile(
    r'^Traceback \(most recent call last\):$|^ +File ".*(?:", line \d+.*$|\Z)(?:\n {4}.*$)*', re.MULTILINE
)
"""Matches the lines of a traceback that show where an error was raised, but not the error itself."""


def blocks(path: Path, position: int = 0) -> Iterator[bytes]:
    """Yield the content of a file from a position, in blocks."""
    with path.open("rb") as stream:
        stream.seek(position)
        while block := stream.read(_BLOCK):
            yield block


def last_lines(path: Path, count: int, limit: int = 1 << 24) -> bytes:
    """Return the last `count` lines of a file, but at most `limit` bytes, since a line may be very long."""
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
    """Return the last lines of a log that aren't empty, joined to one line for a table."""
    return tail(last_lines(path, 4 * count, limit=4_096).decode(errors="replace"), count)


def tail(text: str, count: int = 3) -> str:
    """Return the last lines of a text that aren't empty, joined to one line.

    Passwords in URLs are removed, as are the lines of a traceback except for the error.
    """
    shown = (one_line(line) for line in _LOCATION.sub("", without_url_credentials(text)).splitlines())
    lines = [line for line in shown if line.strip("~^ ") and not line.startswith("---")]
    return one_line(" | ".join(lines[-count:]))


def one_line(text: str, length: int = 500) -> str:
    """Return a text as one printable line with single spaces. Omit the middle of a long line."""
    line = without_addresses(on_one_line(text))
    half = length // 2
    return line if len(line) <= length else f"{line[:half]} … {line[-half:]}"
