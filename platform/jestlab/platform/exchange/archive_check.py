"""Check the files and rows of an archive, which may be damaged or malicious."""

from __future__ import annotations

import errno
import json
import math
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import BigInteger, DateTime, Double, Text

from jestlab.platform.errors import UserError, kind_of
from jestlab.platform.exchange.archive_write import LOCAL, STORE
from jestlab.platform.logs import one_line
from jestlab.platform.store.tables import MetricNameRow, RunRow

MOST_FILES = 500_000
MOST_LEVELS = 64  # of folders, and of lists and mappings in JSON
MOST_NAME_BYTES = 1_024
MOST_RATIO = 200  # of unpacked bytes; logs and stores compress up to 20 times
SMALL_BYTES = 64 << 20  # that any archive may unpack to
RESERVE_BYTES = 256 << 20  # of the disk, for runs that write at the same time
_MOST_LETTERS = 10_000
_YEARS = (1970, 2200)

_UNSAFE = re.compile(r"[\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")

_JSON = {
    "experiment.spec", "run.config", "member.point", "attempt.versions", "attempt.environment",
    "attempt.sources", "attempt.inputs", "acceptance.accepted", "registration.content",
}  # fmt: skip
"""Columns with a mapping as JSON."""

_LONG = _JSON | {
    "attempt.git_patch", "attempt.code_patch", "source.text", "acceptance.reason", "note.text",
    "experiment.question",
}  # fmt: skip
"""Columns with text of any length."""


# ---- files


def unpack(path: Path, folder: Path) -> None:
    """Unpack an archive into an empty folder, and write nothing outside it.

    Raises:
        UserError: It isn't an archive, is damaged, contains an unexpected name, or is too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_sizes(path, folder, members)
            names = [member.filename for member in members]
            if STORE not in names or len({*names}) < len(names):
                raise UserError("not an archive of jestlab, or damaged")
            for member in members:
                _check_member(member)
                target = folder / member.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as content, target.open("xb") as file:
                    shutil.copyfileobj(content, file)
    except FileNotFoundError as error:
        raise UserError("no such archive") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise UserError("damaged: two files have the same name") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # which a wrong offset causes
            raise
        raise UserError(f"damaged, or not an archive of jestlab: {one_line(str(error), 200)}") from error


def _check_sizes(path: Path, folder: Path, members: list[zipfile.ZipInfo]) -> None:
    """Raise UserError if an archive has too many files, or would unpack to too many bytes."""
    size = sum(max(member.file_size, 4096) for member in members)
    most = max(SMALL_BYTES, MOST_RATIO * path.stat().st_size)
    if len(members) > MOST_FILES or sum(member.file_size for member in members) > most:
        raise UserError(f"too large: more than {MOST_FILES:,} files, or {most / 1e6:,.1f} MB unpacked")
    free = shutil.disk_usage(folder).free
    if free < size + RESERVE_BYTES:
        needed = f"{(size + RESERVE_BYTES) / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free"
        raise UserError(f"too little space on the disk of {folder.parent}: {needed}")


def _check_member(member: zipfile.ZipInfo) -> None:
    """Raise UserError for hidden files, and for files outside the folders of runs and reports."""
    name, parts = member.filename, PurePosixPath(member.filename).parts
    is_plain = "/".join(parts) == name and not any(part.startswith(".") for part in parts)
    is_expected = name == STORE or (len(parts) > 2 and parts[0] in ("runs", "reports"))
    is_short = len(parts) <= MOST_LEVELS and len(name.encode(errors="replace")) <= MOST_NAME_BYTES
    is_readable = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if not (is_plain and is_expected and is_short and is_readable) or _UNSAFE.search(name):
        raise UserError(f"unexpected file {one_line(name, 200)!r}: nothing was imported")


# ---- values


def decode(table: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Check the values of a row and return them as the store's columns take them.

    Raises:
        UserError: A value isn't of the type of its column, or too long.
    """
    return {column.name: _decoded(column, row[column.name]) for column in columns_of(table)}


def columns_of(table: Any) -> list[Any]:
    """Return the columns to import; other keys than those of runs are new."""
    local = (*LOCAL, *(("id",) if table is not RunRow and table is not MetricNameRow else ()))
    return [column for column in table.__table__.columns if column.name not in local]


def _decoded(column: Any, value: Any) -> Any:
    if value is None and column.nullable:
        return None
    kinds: dict[type, Callable[[Any, Any], Any]] = {DateTime: _time, Double: _number, Text: _text}
    kind = next((kind for type_, kind in kinds.items() if isinstance(column.type, type_)), _integer)
    try:
        return kind(column, value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        shown = kind_of(value) if isinstance(value, dict | list) else one_line(repr(value), 60)
        raise UserError(f"damaged: invalid {column.table.name}.{column.name}: {shown}") from None


def _time(_: Any, value: Any) -> datetime:
    time = datetime.fromisoformat(value)
    if time.tzinfo is not None or not _YEARS[0] <= time.year <= _YEARS[1]:
        raise ValueError
    return time


def _number(_: Any, value: Any) -> float:
    if type(value) not in (int, float) or math.isnan(value):
        raise ValueError
    return float(value)


def _integer(column: Any, value: Any) -> int:
    bits = 63 if isinstance(column.type, BigInteger) else 31
    if type(value) is not int or not -(1 << bits) <= value < 1 << bits:
        raise ValueError
    return value


def _text(column: Any, value: Any) -> str:
    place = f"{column.table.name}.{column.name}"
    if not isinstance(value, str):
        raise ValueError
    if column.name.endswith("reason"):  # the output of a program that failed
        value = value[:_MOST_LETTERS]
    if place not in _LONG and len(value) > _MOST_LETTERS:
        raise ValueError
    value.encode()  # a ValueError for surrogates
    if place in _JSON:
        tree = json.loads(value)
        if type(tree) is not dict or _levels(tree) > MOST_LEVELS:
            raise ValueError
    text: str = value.replace("\0", "\ufffd")
    return text


def _levels(value: Any) -> int:
    """Return the number of nested lists and mappings; RecursionError for a great number."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_levels, value.values() if isinstance(value, dict) else value), default=0)
