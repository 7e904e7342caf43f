"""The transaction log of a W&B run: records of a LevelDB log, each a message in the Protocol Buffers format.

The file begins with 7 bytes: ":W&B", the number 0xBEE1 and a version. It is divided into blocks of 32 KiB, in
which pieces of records stand, each after a header of 7 bytes: CRC-32 of the type and the piece, length, type
(a whole record, or its first, middle or last piece). Less than 7 bytes at the end of a block are padding.

References:
    https://github.com/google/leveldb/blob/main/doc/log_format.md
    https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from jestlab.platform.errors import UserError

BLOCK_BYTES = 32 * 1024
_HEADER = struct.Struct("<IHB")
_BEGINNING = struct.pack("<4sH", b":W&B", 0xBEE1)
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

Fields = dict[int, list[int | bytes]]
"""Number of each field of a message → what was written in it, in order."""


class Damaged(ValueError):
    """A message does not follow the format of Protocol Buffers."""


def records(path: Path) -> Iterator[bytes]:
    """Yield the records of a log.

    A file that ends amid a record, as after a kill, lacks that record alone. So does one whose end is zeros.

    Raises:
        UserError: Not a log of W&B, or it is damaged before its end.
    """
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        if start[: len(_BEGINNING)] != _BEGINNING[: len(start)]:
            raise UserError(
                f"{path}: not a log of W&B: expected a file run-ID.wandb, which begins with ':W&B'"
            )
        if len(start) == _HEADER.size and start[-1] > 0:
            raise UserError(f"{path}: version {start[-1]} of W&B's log format; version 0 can be read")
        record: bytearray | None = None
        for offset, kind, piece in _pieces(path, file, start):
            if (kind in (_FULL, _FIRST)) != (record is None):
                raise _damaged(path, offset, "a record's pieces are not in order")
            record = bytearray() if record is None else record
            record += piece
            if kind in (_FULL, _LAST):
                yield bytes(record)
                record = None


def _pieces(path: Path, file: BinaryIO, start: bytes) -> Iterator[tuple[int, int, bytes]]:
    block_offset = 0
    block = start + file.read(BLOCK_BYTES - len(start))
    offset = len(start)
    while block:
        while len(block) - offset >= _HEADER.size:
            crc, length, kind = _HEADER.unpack_from(block, offset)
            end = offset + _HEADER.size + length
            place = block_offset + offset
            if end > BLOCK_BYTES:
                raise _damaged(path, place, "a record's piece is longer than its block")
            if end > len(block):
                return
            if kind == 0 and not any(block[offset:]):
                # A disk that lost power leaves zeros where the file was to be written.
                break
            if kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
                raise _damaged(path, place, f"unknown type {kind} of a record's piece")
            if crc != zlib.crc32(block[offset + _HEADER.size - 1 : end]):
                raise _damaged(path, place, "a checksum is wrong")
            yield place, kind, block[offset + _HEADER.size : end]
            offset = end
        block_offset += BLOCK_BYTES
        block = file.read(BLOCK_BYTES) if len(block) == BLOCK_BYTES else b""
        offset = 0


def _damaged(path: Path, offset: int, what: str) -> UserError:
    return UserError(f"{path}: damaged at byte {offset}: {what}; copy the file again, or move it away")


def fields(message: bytes) -> Fields:
    """Split a message into its fields: integers for the wire types varint, I32 and I64; bytes for LEN.

    Raises:
        Damaged: The message does not follow the format.
    """
    found: Fields = {}
    try:
        for field in UnknownFieldSet(Empty.FromString(message)):
            if not isinstance(field.data, int | bytes):
                raise Damaged(f"wire type {field.wire_type}")
            found.setdefault(field.field_number, []).append(field.data)
    except DecodeError as error:
        raise Damaged("not a message of Protocol Buffers") from error
    return found


def messages(found: Fields, field: int) -> list[bytes]:
    """Return what was written in a field of messages or strings.

    Raises:
        Damaged: The field has integers.
    """
    values = found.get(field, [])
    if any(isinstance(value, int) for value in values):
        raise Damaged(f"field {field} has an integer")
    return [value for value in values if isinstance(value, bytes)]


def text(found: Fields, field: int) -> str:
    """Return the last string in a field; empty if there is none."""
    values = messages(found, field)
    return values[-1].decode(errors="replace") if values else ""


def integer(found: Fields, field: int) -> int:
    """Return the last integer in a field, as int64; 0 if there is none.

    Raises:
        Damaged: The field has messages.
    """
    value = found.get(field, [0])[-1]
    if not isinstance(value, int):
        raise Damaged(f"field {field} has no integer")
    return value - (1 << 64) if value >= 1 << 63 else value
