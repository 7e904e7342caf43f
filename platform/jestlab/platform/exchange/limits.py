"""What an archive may ask of this machine: bytes, files, and how long and deep things in it may be."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jestlab.platform.errors import UserError

_BLOCK = 4096  # of a disk: the least that a file occupies


@dataclass(frozen=True)
class Limits:
    """Limits of what is unpacked from an archive; what `jestlab export` writes is far below all of them.

    Attributes:
        reserve: Bytes of the disk that stay free, for runs that write meanwhile.
        ratio: How many times its own size an archive may unpack to. Logs and curves reach about 20.
        small: Bytes that any archive may unpack to, whatever its size.
        members: Number of files.
        line: Bytes of one row of a table.
        depth: Folders of a file's path, and levels of nested lists and mappings in JSON.
        name: Bytes of a file's path.
    """

    reserve: int = 256 << 20
    ratio: int = 200
    small: int = 64 << 20
    members: int = 500_000
    line: int = 32 << 20
    depth: int = 64
    name: int = 1_024


LIMITS = Limits()


def check_disk(folder: Path, more: int = 0, reserve: int = LIMITS.reserve) -> None:
    """Raise UserError unless the disk of a folder has room for more bytes, and for the reserve after them."""
    free = shutil.disk_usage(folder).free
    if free - more < reserve:
        needed = f"{_megabytes(more)} more are needed" if more else "it fills up"
        raise UserError(
            f"too little space on the disk of {folder}: {needed}, {_megabytes(free)} are free, and "
            f"{_megabytes(reserve)} have to stay free: make room"
        )


def occupied(size: int) -> int:
    """Return how many bytes of a disk a file of this size occupies, roughly."""
    return size + -size % _BLOCK + _BLOCK


class Metered:
    """The decompressed bytes of an archive: counted as they are read, and not more than they may be.

    A tar's extended headers say how long they are, and are read into memory: so bytes that are no file's
    content are limited, too.
    """

    _HEADERS = 64 << 10

    def __init__(self, stream: IO[bytes], compressed: int, limits: Limits) -> None:
        self._stream = stream
        self._limit = max(limits.small, limits.ratio * compressed)
        self._told = f"to more than {limits.ratio} times its size of {_megabytes(compressed)}"
        self._total = 0
        self._headers_end: int | None = self._HEADERS

    def claim(self, size: int) -> None:
        """Let a file's content be read; UserError if it is more than may come from this archive."""
        self._check(size)
        self._headers_end = None

    def expect_header(self) -> None:
        """Let the next header be read, and not more."""
        self._headers_end = self._total + self._HEADERS

    def read(self, size: int = -1) -> bytes:
        """Read some bytes, as files do."""
        block = self._stream.read(size)
        self._total += len(block)
        if self._headers_end is not None and self._total > self._headers_end:
            raise UserError("is damaged: a file's name or attributes are too long")
        self._check(0)
        return block

    def _check(self, more: int) -> None:
        if self._total + more > self._limit:
            raise UserError(
                f"would unpack {self._told}, as no archive of jestlab does: it is damaged, or was made to "
                "fill disks"
            )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"
