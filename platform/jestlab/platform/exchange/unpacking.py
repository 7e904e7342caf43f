"""Unpack an archive that may be damaged, or made to do harm: nothing in it is believed unchecked."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa

from jestlab.analysis.connection import SCHEMA, other_version
from jestlab.platform.errors import UserError
from jestlab.platform.exchange.archive import CHECKSUMS, FORMAT, HEAD, METRIC, TABLES, compression_of
from jestlab.platform.exchange.limits import LIMITS, Limits, Metered, check_disk, occupied
from jestlab.platform.logs import one_line

_BLOCK = 1 << 20
_HEAD_BYTES = 1 << 24
_TABLES = frozenset(f"tables/{name}.jsonl" for name in (*TABLES, METRIC))
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)  # not sparse ones, whose size says nothing


def unpack(path: Path, folder: Path, limits: Limits = LIMITS) -> None:
    """Unpack an archive into an empty folder; nothing is written outside of it.

    Raises:
        UserError: It is not an archive, is cut short or changed, has a name in it that leads elsewhere, is
            of another schema, or asks for more than the limits or the disk allow.
    """
    compression = compression_of(path)
    try:
        with (
            path.open("rb") as file,
            pa.CompressedInputStream(file, compression) as stream,
        ):
            metered = Metered(stream, path.stat().st_size, limits)
            readable: Any = metered
            with tarfile.open(fileobj=readable, mode="r|") as tar:
                _Unpacking(tar, metered, folder, limits).whole()
    except FileNotFoundError as error:
        if error.filename == str(path):
            raise UserError(f"no archive {path}") from None
        raise
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (tarfile.TarError, EOFError, pa.ArrowException, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from None
    except OSError as error:
        if error.errno is None:  # of the decompressor
            raise _unreadable(path, error) from None
        raise


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged, or not an archive of jestlab: {one_line(str(error), 200)}")


def archived_rows(folder: Path, table: str, limits: Limits = LIMITS) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table in an unpacked archive.

    Raises:
        UserError: A line is not a row, or is longer than a row can be.
    """
    with (folder / "tables" / f"{table}.jsonl").open("rb") as lines:
        while line := lines.readline(limits.line + 1):
            if len(line) > limits.line:
                raise UserError(
                    f"the archive is damaged: a line of {table} is longer than {limits.line:,} bytes"
                )
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise UserError(f"the archive is damaged: a line of {table} is not a row")
            yield row


class _Unpacking:
    """One archive being unpacked into one folder."""

    def __init__(self, tar: tarfile.TarFile, metered: Metered, folder: Path, limits: Limits) -> None:
        self._tar: Any = tar
        self._metered = metered
        self._folder = folder
        self._limits = limits
        self._found: dict[str, str] = {}  # name → digest
        self._checksums_bytes = 1 << 16  # that the list of names may have, and no more

    def whole(self) -> None:
        found = self._found
        for member in self._members():
            if not found and member.name != HEAD:
                raise UserError("is not an archive of jestlab")
            self._check_name(member)
            if member.name in found:
                raise UserError(f"has {member.name!r} twice")
            if len(found) >= self._limits.members:
                raise UserError(f"has more than {self._limits.members:,} files in it: nothing was imported")
            self._check_size(member)
            found[member.name] = self._write(member)
            self._checksums_bytes += len(json.dumps(member.name)) + 128
            if member.name == HEAD:
                self._check_head(_json(self._folder / HEAD))
            if member.name == CHECKSUMS:
                del found[CHECKSUMS]
                break
        else:
            raise UserError("is cut short: copy it again")
        self._check_complete()

    def _members(self) -> Iterator[tarfile.TarInfo]:
        while True:
            self._metered.expect_header()
            member = self._tar.next()
            self._tar.members = []  # else it keeps them all
            if member is None:
                return
            yield member

    def _check_name(self, member: tarfile.TarInfo) -> None:
        """Raise for what does not belong there: links, devices, and names that lead elsewhere."""
        parts = PurePosixPath(member.name).parts
        hidden = any(part.startswith(".") for part in parts)  # `..` as well; none is ever exported
        plain = "/".join(parts) == member.name and not hidden and "\\" not in member.name
        deep = (
            len(parts) > self._limits.depth or len(member.name.encode(errors="replace")) > self._limits.name
        )
        place = member.name in (HEAD, CHECKSUMS, *_TABLES) or (
            len(parts) > 2 and parts[0] in ("runs", "reports")
        )
        is_file = member.type in _FILES and not member.issparse()
        if not (is_file and plain and place) or deep or _NOT_IN_NAMES.search(member.name):
            shown = repr(one_line(member.name, 200))
            raise UserError(f"has {shown} in it, which does not belong there: nothing was imported")

    def _check_size(self, member: tarfile.TarInfo) -> None:
        """Raise if a file claims to be larger than such a file is, or than there is room for."""
        most = {HEAD: _HEAD_BYTES, CHECKSUMS: self._checksums_bytes}.get(member.name)
        if member.size < 0 or (most is not None and member.size > most):
            raise UserError(f"is damaged: {member.name} has {member.size:,} bytes")
        self._metered.claim(member.size)
        check_disk(self._folder, occupied(member.size), self._limits.reserve)

    def _write(self, member: tarfile.TarInfo) -> str:
        """Write a file, and return its digest."""
        content = self._tar.extractfile(member)
        if content is None:
            raise UserError(f"has {member.name!r}, which is not a file")
        path = self._folder / member.name
        digest = hashlib.sha256()
        with _open_new(path, member.name) as file:
            while block := content.read(_BLOCK):
                digest.update(block)
                file.write(block)
                check_disk(self._folder, reserve=self._limits.reserve)
        return digest.hexdigest()

    def _check_head(self, head: dict[str, Any]) -> None:
        if head.get("format") != FORMAT or not isinstance(head.get("schema"), str):
            told = one_line(repr(head.get("format")), 60)
            raise UserError(f"is of another format ({told}): upgrade jestlab")
        if head["schema"] != SCHEMA:
            told = one_line(head["schema"], 60)
            raise UserError(other_version(told, "import it with the version that wrote it"))

    def _check_complete(self) -> None:
        """Raise unless all that was written is in the archive as it was written."""
        wanted = _json(self._folder / CHECKSUMS)
        for name in {**wanted, **self._found}:
            if wanted.get(name) != self._found.get(name):
                told = one_line(name, 200)
                raise UserError(f"has changed since it was written ({told}): copy it again")
        if missing := _TABLES - self._found.keys():
            raise UserError(f"lacks {min(missing)}")


def _open_new(path: Path, name: str) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")
    except (FileExistsError, NotADirectoryError):  # a folder of the name of a file, or the same in capitals
        raise UserError(f"is damaged: {name!r} is where another file is") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError(f"is damaged: {path.name} is not valid JSON")
    return value
