"""Tar files as webdataset lays them out: written byte for byte the same each time, scanned for offsets."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple

BLOCK = 512
_END = bytes(2 * BLOCK)  # two empty blocks end an archive
_REGULAR = (b"0", b"\0")


class Member(NamedTuple):
    """A file in a tar: its name, and where its bytes lie."""

    name: str
    offset: int
    size: int


class TarWriter:
    """Writes plain ustar files whose bytes depend on names and contents alone.

    Owner, mode and time are constants. `tarfile` would do the same five times slower, which is most of the
    time of writing small images.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")

    def add(self, name: str, content: bytes) -> None:
        """Append a file.

        Args:
            name: Name in the archive, ASCII, under 100 characters.
            content: Its bytes.

        Raises:
            ValueError: A name that a plain ustar header cannot hold.
        """
        self._file.write(b"".join((_header(name, len(content)), content, bytes(-len(content) % BLOCK))))

    def close(self) -> None:
        """End the archive."""
        self._file.write(_END)
        self._file.close()

    def __enter__(self) -> TarWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _header(name: str, size: int) -> bytes:
    """A ustar header block: name, mode 0444, owner 0:0, size, time 0, checksum, type "0"."""
    encoded = name.encode("ascii")
    if len(encoded) >= 100 or size >= 8**11:
        raise ValueError(f"{name[:40]!r}…: too long a name, or too large a file, for a plain tar header")
    front = (
        encoded.ljust(100, b"\0") + b"0000444\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"0" * 11 + b"\0"
    )
    back = b"0" + bytes(100) + b"ustar\0" + b"00" + bytes(64) + b"0000000\0" * 2 + bytes(155 + 12)
    checksum = sum(front) + sum(back) + 8 * ord(" ")
    return front + b"%06o\0 " % checksum + back


def members(path: Path) -> Iterator[Member]:
    """The regular files of an uncompressed tar, in order.

    Plain headers are read here; at the first header of another kind (long names, sparse files) the rest is
    left to `tarfile`, which knows them all and is ten times slower.

    Args:
        path: The tar.

    Yields:
        Name, offset and size of each file.

    Raises:
        ValueError: The archive is damaged or cut short.
    """
    length = path.stat().st_size
    with path.open("rb") as file:
        position = 0
        while True:
            file.seek(position)
            header = file.read(BLOCK)
            if header == bytes(BLOCK) or (not header and position == length):
                return
            plain = _plain(header)
            if plain is None:
                yield from _other_members(path, position)
                return
            name, size = plain
            start = position + BLOCK
            if start + size > length:
                raise ValueError(
                    f"{path}: cut short in member {name!r} ({length} bytes): fetch the shard again"
                )
            yield Member(name, start, size)
            position = start + size + (-size % BLOCK)


def _plain(header: bytes) -> tuple[str, int] | None:
    """Name and size of a plain ustar header; None for any other header."""
    if len(header) < BLOCK or header[257:262] != b"ustar" or header[156:157] not in _REGULAR:
        return None
    checksum = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    try:
        if checksum != int(header[148:156].strip(b" \0"), 8):
            return None
        size = int(header[124:136].strip(b" \0") or b"0", 8)
        name = header[:100].rstrip(b"\0").decode()
    except ValueError:
        return None
    prefix = header[345:500].rstrip(b"\0")
    return (f"{prefix.decode()}/{name}" if prefix and header[257:263] == b"ustar\0" else name), size


def _other_members(path: Path, start: int) -> Iterator[Member]:
    """What `tarfile` finds from a header on."""
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for info in tar:
                if info.isreg() and info.offset >= start:
                    yield Member(info.name, info.offset_data, info.size)
            # NOTE: footgun: tarfile takes a damaged header in the middle of an archive for its end.
            file.seek(tar.offset)
            if file.read(BLOCK) not in (b"", bytes(BLOCK)):
                raise tarfile.ReadError(f"damaged header at byte {tar.offset}")
    except tarfile.TarError as error:
        raise ValueError(f"{path}: not a readable tar ({error}): fetch the shard again") from error
