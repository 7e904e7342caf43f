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

import math
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import DateTime, Double, Text

from jestlab.platform.errors import UserError
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


def compression_of(path: Path) -> str:
    """Return how a file of this name is compressed, zstd or gzip; UserError if the name does not say."""
    for ending, compression in ((".tar.zst", "zstd"), (".tar.gz", "gzip"), (".tgz", "gzip")):
        if path.name.endswith(ending):
            return compression
    raise UserError(f"{path}: name the archive NAME.tar.zst or NAME.tar.gz")
