"""Logs of runs: one file per run, to which each attempt appends. Long logs are read from the end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from jestlab.analysis.written import without_addresses
from jestlab.platform.redaction import without_url_credentials
from jestlab.platform.words import on_one_line

NAME = "log.txt"

COPIED = "JESTLAB_COPY_LOG"
"""Set if the worker must copy its output to the run's log: on a machine other than the launcher's."""

_BLOCK = 1 << 16
_LOCATION = re.compile(
    r'^Traceback \(most recent call last\):$|^ +File ".*(?:", line \d+.*$|\Z)(?:\n {4}.*$)*', re.MULTILINE
)
"""Lines of a traceback that give the location of an error instead of the error."""


def blocks(path: Path, position: int = 0) -> Iterator[bytes]:
    """Yield the content of a file from a position."""
    with path.open("rb") as stream:
        stream.seek(position)
        while block := stream.read(_BLOCK):
            yield block


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
    """Return the last lines of a log with content, as one line for a table."""
    return tail(last_lines(path, 4 * count, limit=4_096).decode(errors="replace"), count)


def tail(text: str, count: int = 3) -> str:
    """Return the last lines of a text with content, as one line without passwords in URLs.

    Of a traceback, only the error is kept.
    """
    shown = (one_line(line) for line in _LOCATION.sub("", without_url_credentials(text)).splitlines())
    lines = [line for line in shown if line.strip("~^ ") and not line.startswith("---")]
    return one_line(" | ".join(lines[-count:]))


def one_line(text: str, length: int = 500) -> str:
    """Return text as one printable line with single spaces. The middle of a long line is left out."""
    line = without_addresses(on_one_line(text))
    half = length // 2
    return line if len(line) <= length else f"{line[:half]} … {line[-half:]}"
