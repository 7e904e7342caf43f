"""Unpack an archive from somebody else, and check its files and the values in its rows."""

import errno
import json
import math
import re
import shutil
import zipfile
import zlib
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Double, Table, Text

from jestlab.platform.errors import UserError, kind_of
from jestlab.platform.exchange.archive_write import STORE, columns_of
from jestlab.platform.logs import one_line

MOST_FILES = 500_000
MOST_LEVELS = 64  # of folders, and of lists and mappings in JSON
MOST_NAME_BYTES = 1_024
MOST_RATIO = 200  # unpacked bytes per byte of the archive; logs and stores compress up to 20 times
SMALL_BYTES = 64 << 20  # an archive of any size may unpack to this size
RESERVE_BYTES = 256 << 20  # left free on the disk for runs that write at the same time
_MOST_LETTERS = 10_000
_UNSAFE = re.compile(r"[\\\x00-\x1f\x7f-\x9f\ud800-\udfff]|(^|/)(\.|/|$)")  # also hidden and empty parts

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

Row = dict[str, Any]


# ---- files


def unpack(path: Path, folder: Path) -> None:
    """Unpack an archive into an empty folder, and write nothing outside it.

    Raises:
        UserError: The file isn't an archive, is damaged, contains an unexpected name, or is too large.
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
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise UserError("damaged: two files have the same name") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a wrong offset causes EINVAL
            raise
        raise UserError(f"damaged, or not an archive of jestlab: {one_line(str(error), 200)}") from error


def _check_sizes(path: Path, folder: Path, members: list[zipfile.ZipInfo]) -> None:
    """Raise UserError if an archive has too many files, or would unpack to too many bytes."""
    most = max(SMALL_BYTES, MOST_RATIO * path.stat().st_size)
    if len(members) > MOST_FILES or sum(member.file_size for member in members) > most:
        raise UserError(f"too large: more than {MOST_FILES:,} files, or {most / 1e6:,.1f} MB unpacked")
    needed = sum(max(member.file_size, 4096) for member in members) + RESERVE_BYTES
    if (free := shutil.disk_usage(folder).free) < needed:
        sizes = f"{needed / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free"
        raise UserError(f"too little space on the disk of {folder.parent}: {sizes}")


def _check_member(member: zipfile.ZipInfo) -> None:
    """Raise UserError for hidden files, and for files outside the folders of runs and reports."""
    name, parts = member.filename, PurePosixPath(member.filename).parts
    is_expected = name == STORE or (len(parts) > 2 and parts[0] in ("runs", "reports"))
    is_short = len(parts) <= MOST_LEVELS and len(name.encode(errors="replace")) <= MOST_NAME_BYTES
    is_readable = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if not (is_expected and is_short and is_readable) or _UNSAFE.search(name):
        raise UserError(f"unexpected file {one_line(name, 200)!r}: nothing was imported")


# ---- values


def decode(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """Check the values of a row, and return them with the types of the store's columns.

    Raises:
        UserError: A value doesn't have the type of its column, or is too long.
    """
    return {column.name: _decoded(column, row[column.name]) for column in columns_of(table)}


def _decoded(column: Column[Any], value: Any) -> Any:
    """Check and convert one value. Columns with JSON remain text."""
    place = f"{column.table.name}.{column.name}"
    try:
        match column.type:
            case _ if value is None and column.nullable:
                return None
            case DateTime():
                time = datetime.fromisoformat(value)
                if time.tzinfo is None and 1970 <= time.year <= 2200:
                    return time
            case Double():
                if type(value) in (int, float) and not math.isnan(value):
                    return float(value)
            case Text():
                if column.name.endswith("reason"):  # may contain the output of a failed program
                    value = value[:_MOST_LETTERS]
                value.encode()  # raises ValueError for surrogates
                tree = json.loads(value) if place in _JSON else {}
                is_valid = isinstance(tree, dict) and _levels(tree) <= MOST_LEVELS
                if is_valid and (place in _LONG or len(value) <= _MOST_LETTERS):
                    return value.replace("\0", "\ufffd")
            case kind:
                limit = 1 << (63 if isinstance(kind, BigInteger) else 31)
                if type(value) is int and -limit <= value < limit:
                    return value
    except (AttributeError, TypeError, ValueError, OverflowError, RecursionError):
        pass
    shown = kind_of(value) if isinstance(value, dict | list) else one_line(repr(value), 60)
    raise UserError(f"damaged: invalid {place}: {shown}")


def _levels(tree: Any) -> int:
    """Return the depth of nested mappings and lists; RecursionError if it is too great."""
    if not isinstance(tree, dict | list):
        return 0
    return 1 + max(map(_levels, tree.values() if isinstance(tree, dict) else tree), default=0)
