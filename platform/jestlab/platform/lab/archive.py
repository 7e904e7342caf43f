"""The format of archives, by which labs go from any database to any other: rows as JSON lines, and files.

Rows identify runs by fingerprint, experiments by name and attempts by number. In this order:

    jestlab.json             format and schema
    tables/<table>.jsonl     rows
    runs/<folder>/…          logs, and on demand all other files of completed runs
    reports/<experiment>/…   tables and figures
    checksums.json           SHA-256 of each of these; an archive without it is truncated

Nothing in one is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tarfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa
from sqlalchemy import DateTime, Double, Text

from jestlab.platform.errors import UserError
from jestlab.platform.launch.logs import one_line
from jestlab.platform.store.schema import HEAD as SCHEMA
from jestlab.platform.store.tables import (
    Artifact,
    Attempt,
    Budget,
    Cost,
    Evaluation,
    Experiment,
    Member,
    Need,
    Note,
    Published,
    Run,
    Tag,
)

# ---- format

FORMAT = 1
"""Increased when the format changes."""

HEAD, CHECKSUMS = "jestlab.json", "checksums.json"

TABLES: dict[str, Any] = {
    table.__tablename__: table
    for table in (
        Experiment, Run, Member, Need, Attempt, Evaluation, Cost, Artifact, Budget, Note, Tag, Published,
    )
}  # fmt: skip
"""Those that are written row by row; metrics are written curve by curve."""

SINCE = {"published": "0003"}
"""Tables that archives of older schemas than this lack."""

METRIC = "metric"

FINGERPRINT = re.compile(r"[0-9a-f]{64}")
FOLDER = re.compile(r"runs/(?!\.)[^/\\\0]+")
NAME = re.compile(r"(?!\.)[^/\\\0]+")

_KEYS = frozenset({"id", "run_id", "needs_id", "experiment_id", "attempt_id", "launcher_id", "name_id"})
"""Columns that mean something in one database only."""


def columns(table: Any) -> list[Any]:
    """Return the columns of a table that mean the same in every store."""
    return [column for column in table.__table__.columns if column.name not in _KEYS]


def encode(value: Any) -> Any:
    """Write a value as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def decode(table: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """Read the columns of an archived row; those that an older schema lacks are left to their defaults.

    Raises:
        UserError: A value is not of its column's type.
    """
    return {
        column.name: _decoded(column, row[column.name]) for column in columns(table) if column.name in row
    }


def _decoded(column: Any, value: Any) -> Any:
    try:
        if value is None:
            if not column.nullable:
                raise ValueError
            return None
        if isinstance(column.type, DateTime):
            return datetime.fromisoformat(value)
        if isinstance(column.type, Double):
            return float(value)
        wanted = str if isinstance(column.type, Text) else int
        if type(value) is not wanted:
            raise ValueError
        return value
    except (TypeError, ValueError):
        raise UserError(f"the archive is damaged: {value!r} for {column.table.name}.{column.name}") from None


# ---- unpacking

_BLOCK = 1 << 20
_TABLES = frozenset(f"tables/{name}.jsonl" for name in (*TABLES, METRIC))


def compression_of(path: Path) -> str:
    """Return how a file of this name is compressed, zstd or gzip; UserError if the name does not say."""
    for ending, compression in ((".tar.zst", "zstd"), (".tar.gz", "gzip"), (".tgz", "gzip")):
        if path.name.endswith(ending):
            return compression
    raise UserError(f"{path}: name the archive NAME.tar.zst or NAME.tar.gz")


def unpack(path: Path, folder: Path) -> None:
    """Unpack an archive into an empty folder; nothing is written outside of it.

    Raises:
        UserError: It is not an archive, is cut short or changed, has a name in it that leads elsewhere, or is
            of a newer jestlab.
    """
    compression = compression_of(path)
    try:
        with (
            path.open("rb") as file,
            pa.CompressedInputStream(file, compression) as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            _unpack(tar, folder)
    except FileNotFoundError as error:
        if error.filename == str(path):
            raise UserError(f"no archive {path}") from None
        raise
    except (tarfile.TarError, EOFError, pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is damaged, or not an archive of jestlab: {one_line(str(error), 200)}"
        ) from None
    except OSError as error:
        if error.errno is None:  # of the decompressor
            raise UserError(
                f"{path} is damaged, or not an archive of jestlab: {one_line(str(error), 200)}"
            ) from None
        raise
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged, or not an archive of jestlab: {one_line(str(error), 200)}")


def archived_rows(folder: Path, table: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table in an unpacked archive; none of a table that was added later."""
    path = folder / "tables" / f"{table}.jsonl"
    if table in SINCE and not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise UserError(f"the archive is damaged: a line of {table} is not a row")
            yield row


def _unpack(tar: tarfile.TarFile, folder: Path) -> None:
    found: dict[str, str] = {}
    for member in tar:
        if not found and member.name != HEAD:
            raise UserError("is not an archive of jestlab")
        _check_name(member)
        if member.name in found:
            raise UserError(f"has {member.name!r} twice")
        content = tar.extractfile(member)
        if content is None:
            raise UserError(f"has {member.name!r}, which is not a file")
        found[member.name] = _write(content, folder / member.name)
        if member.name == HEAD:
            _check_head(_json(folder / HEAD))
        if member.name == CHECKSUMS:
            del found[CHECKSUMS]
            break
    else:
        raise UserError("is cut short: copy it again")
    wanted = _json(folder / CHECKSUMS)
    for name in {**wanted, **found}:
        if wanted.get(name) != found.get(name):
            raise UserError(f"has changed since it was written ({name}): copy it again")
    later = {
        f"tables/{name}.jsonl" for name, schema in SINCE.items() if _json(folder / HEAD)["schema"] < schema
    }
    if missing := _TABLES - later - found.keys():
        raise UserError(f"lacks {min(missing)}")


def _check_name(member: tarfile.TarInfo) -> None:
    """Raise for what does not belong into an archive: links, devices, and names that lead elsewhere."""
    parts = PurePosixPath(member.name).parts
    plain = "/".join(parts) == member.name and ".." not in parts and "\\" not in member.name
    place = member.name in (HEAD, CHECKSUMS, *_TABLES) or (len(parts) > 2 and parts[0] in ("runs", "reports"))
    if not (member.isreg() and plain and place) or re.search(r"[\x00-\x1f]", member.name):
        raise UserError(f"has {member.name!r} in it, which does not belong there: nothing was imported")


def _check_head(head: dict[str, Any]) -> None:
    if head.get("format") != FORMAT or not isinstance(head.get("schema"), str):
        raise UserError(f"is of another format ({head.get('format')}): upgrade jestlab")
    if head["schema"] > SCHEMA:
        raise UserError(f"has schema {head['schema']}, newer than this jestlab's {SCHEMA}: upgrade jestlab")


def _write(content: IO[bytes], path: Path) -> str:
    """Write a member, and return its digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        while block := content.read(_BLOCK):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UserError(f"is damaged: {path.name} is not valid JSON")
    return value
