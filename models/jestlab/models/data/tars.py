"""Write and scan tar files in webdataset's layout; the same content gives the same bytes."""

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

BLOCK = 512
_END = bytes(2 * BLOCK)  # two empty blocks end an archive
_REGULAR = (b"0", b"\0", b"7")
_WITHOUT_CONTENT = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders
_EXTENSIONS = (b"x", b"g", b"L", b"K")  # PAX and GNU headers about the next file, or about all
_LONGEST_EXTENSION = 2**20
_DIGITS = 16  # of any number in a PAX header
_CHUNK = 2**20  # a whole number of blocks
_LONGEST_PADDING = 2**21  # zeros at the end; more of them are reserved for an unfinished download

CUT_SHORT = "shard cut short"
UNREADABLE = "unreadable tar header"
FILE, FOLDER, SPECIAL = "file", "folder", "link or special file"


class Member(NamedTuple):
    """A member of a tar: name, position and size of the content in bytes, and kind."""

    name: str
    offset: int
    size: int
    kind: str = FILE


class TarWriter:
    """Writes plain ustar files whose bytes depend only on names and contents.

    Owner, mode, and time are constants. `tarfile` is five times slower, which is most of the time of writing
    small images.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")

    def add(self, name: str, content: bytes) -> None:
        """Append a file to the archive; raises ValueError unless its name is ASCII, under 100 characters."""
        self._file.write(b"".join((_header(name, len(content)), content, bytes(-len(content) % BLOCK))))

    def __enter__(self) -> "TarWriter":
        return self

    def __exit__(self, *error: object) -> None:
        """Write the end of the archive, and close the file."""
        self._file.write(_END)
        self._file.close()


def _header(name: str, size: int) -> bytes:
    """Return a ustar header block: name, mode 0444, owner 0:0, size, time 0, checksum, type "0"."""
    encoded = name.encode("ascii")
    if len(encoded) >= 100 or size >= 8**11:
        raise ValueError(f"{name[:40]!r}…: too long a name, or too large a file, for a plain tar header")
    front = (
        encoded.ljust(100, b"\0") + b"0000444\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"0" * 11 + b"\0"
    )
    back = b"0" + bytes(100) + b"ustar\0" + b"00" + bytes(64) + b"0000000\0" * 2 + bytes(155 + 12)
    checksum = sum(front) + sum(back) + 8 * ord(" ")
    return front + b"%06o\0 " % checksum + back


class Fault(NamedTuple):
    """A place where a tar cannot be read."""

    reason: str
    offset: int


def scan(path: Path) -> Iterator[Member | Fault]:
    """Yield the members of an uncompressed tar, in order, and the places where it is damaged.

    `tarfile` would take ten times as long, and end at a damaged header in the middle of an archive. This scan
    continues at the next valid header. An archive without the zeros that end it was cut between two members.

    Yields:
        Each member; `CUT_SHORT` or `UNREADABLE` with its offset for each fault.
    """
    with path.open("rb") as file:
        descriptor = file.fileno()
        length = os.fstat(descriptor).st_size
        position, overrides = 0, _Overrides()
        while position < length:
            block = os.pread(descriptor, BLOCK, position)
            if not any(block) and _all_zero(file, position):
                # Zeros end an archive. Some writers do not fill the last block.
                if length - position > _LONGEST_PADDING:
                    yield Fault(CUT_SHORT, position)
                return
            if len(block) < BLOCK:
                yield Fault(CUT_SHORT, position)
                return
            header = _header_of(block)
            if header is None:
                yield Fault(UNREADABLE, position)
                position, overrides = _next_header(file, position + BLOCK, length), _Overrides()
                if position == length:
                    return
                continue
            name, size, kind = header
            size = size if overrides.size is None else overrides.size
            start = position + BLOCK
            if start + size > length:
                yield Fault(CUT_SHORT, position)
                return
            position = start + size + (-size % BLOCK)
            if kind in _EXTENSIONS:
                readable = size <= _LONGEST_EXTENSION
                if not (readable and overrides.read(kind, os.pread(descriptor, size, start))):
                    yield Fault(UNREADABLE, start - BLOCK)
                continue
            name = name if overrides.name is None else overrides.name
            is_file = kind in _REGULAR and not overrides.sparse
            # The oldest tars write a folder as a file with a slash at the end of its name.
            is_folder = kind == b"5" or (is_file and name.endswith("/"))
            yield Member(name, start, size, FOLDER if is_folder else FILE if is_file else SPECIAL)
            overrides = _Overrides()
        yield Fault(CUT_SHORT, length)


@dataclass
class _Overrides:
    """Fields of the next file's header that extended headers replace."""

    name: str | None = None
    size: int | None = None
    sparse: bool = False

    def read(self, kind: bytes, content: bytes) -> bool:
        """Read an extended header; return False if it cannot be read."""
        if kind == b"L":
            self.name = _text(content)
        while content and kind == b"x":
            # A record is "LENGTH KEY=VALUE\n", and its length includes all of it.
            digits = content[:_DIGITS].partition(b" ")[0]
            if not digits.isdigit() or not len(digits) < int(digits) <= len(content):
                return not content.strip(b"\0")
            key, separator, value = content[len(digits) + 1 : int(digits) - 1].partition(b"=")
            if not separator or (key == b"size" and not value[:_DIGITS].isdigit()):
                return False
            if key == b"path":
                self.name = _text(value)
            elif key == b"size":
                self.size = int(value[:_DIGITS])
            self.sparse |= key.startswith(b"GNU.sparse.")
            content = content[int(digits) :]
        return True


def _text(field: bytes) -> str:
    """Return the text of a field, which a zero byte ends."""
    return field.partition(b"\0")[0].decode(errors="surrogateescape")


def _header_of(block: bytes) -> tuple[str, int, bytes] | None:
    """Return name, size, and type from a header block in any format; None if it is invalid."""
    try:
        # The sum of all bytes, with the checksum's eight counted as spaces. Adler-32 contains this sum modulo
        # 65521, and takes a tenth of the time of `sum(block)`, which would be most of a scan.
        checksum = int(block[148:156].strip(b" \0"), 8) - 8 * ord(" ") + sum(block[148:156])
        if (checksum + 1) % 65521 != zlib.adler32(block) & 0xFFFF:
            return None
        field = block[124:136]
        # GNU writes sizes from 8 GiB on in base 256.
        size = int.from_bytes(field[1:]) if field[0] == 0x80 else int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return None
    if size < 0:
        return None
    kind, name = block[156:157], _text(block[:100])
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        name = f"{prefix}/{name}"
    return name, 0 if kind in _WITHOUT_CONTENT else size, kind


def _all_zero(file: BinaryIO, position: int) -> bool:
    """Return whether only zeros follow."""
    file.seek(position)
    return not any(chunk.strip(b"\0") for chunk in iter(lambda: file.read(_CHUNK), b""))


def _next_header(file: BinaryIO, position: int, length: int) -> int:
    """Return the position of the next header block; or `length`."""
    file.seek(position)
    for start in range(position, length - BLOCK + 1, BLOCK):
        if _header_of(file.read(BLOCK)):  # by its checksum, since the oldest tars have no "ustar" in it
            return start
    return length
