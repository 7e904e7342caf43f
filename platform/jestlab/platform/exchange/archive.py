"""The format of archives, by which labs go from any database to any other: rows as JSON lines, and files.

Rows identify runs by fingerprint, experiments by name and attempts by number. In this order:

    jestlab.json             format and schema
    tables/<table>.jsonl     rows
    runs/<folder>/…          logs, and on demand all other files of completed runs; nothing hidden
    reports/<experiment>/…   tables and figures
    checksums.json           SHA-256 of each of these; an archive without it is truncated

Nothing in one is executed or unpickled.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import BigInteger, DateTime, Double, Text

from jestlab.platform.errors import UserError, kind_of
from jestlab.platform.exchange.limits import LIMITS
from jestlab.platform.logs import one_line
from jestlab.platform.store.tables import (
    Acceptance,
    Artifact,
    Attempt,
    Budget,
    Cost,
    Evaluation,
    Experiment,
    Member,
    Metric,
    MetricName,
    Need,
    Note,
    Published,
    Registration,
    Retraction,
    Run,
    Source,
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
        Source, Acceptance, Retraction, Registration,
    )
}  # fmt: skip
"""Those that are written row by row; metrics are written curve by curve."""

METRIC = "metric"

FINGERPRINT = re.compile(r"[0-9a-f]{64}")
FOLDER = re.compile(r"runs/(?!\.)[^/\\\0]+")

_JSON = frozenset(
    {
        ("experiment", "spec"),
        ("run", "config"),
        ("member", "point"),
        ("attempt", "versions"),
        ("attempt", "environment"),
        ("attempt", "sources"),
        ("attempt", "inputs"),
        ("acceptance", "accepted"),
        ("registration", "content"),
    }
)
"""Columns that hold a mapping as JSON."""

_LONG = _JSON | {
    ("attempt", "git_patch"),
    ("attempt", "code_patch"),
    ("source", "text"),
    ("acceptance", "reason"),
    ("note", "text"),
    ("experiment", "question"),
}
"""Columns whose text may have any length."""

_LETTERS = 10_000  # of all other texts: tables are as wide as their widest cell
_YEARS = (1970, 2200)

_KEYS = frozenset({"id", "run_id", "needs_id", "launcher", "name_id", "lab"})
"""Columns that mean something in one database only."""

_HERE = frozenset({"handle", "token", "origin"})
"""Columns that mean something in one lab only: the first two lead to jobs. In an archive, whatever stands
there is passed over."""


def columns(table: Any) -> list[Any]:
    """Return the columns of a table that mean the same in every store."""
    return [column for column in table.__table__.columns if column.name not in _KEYS | _HERE]


def encode(value: Any) -> Any:
    """Write a value as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def decode(table: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """Read the columns of an archived row.

    Raises:
        UserError: A value is missing, is not of its column's type, or no store can hold it.
    """
    found = {}
    for column in columns(table):
        if column.name not in row:
            raise damaged(f"a row of {table.__tablename__} without {column.name}")
        found[column.name] = _decoded(column, row[column.name])
    return found


def decode_curve(row: Mapping[str, Any]) -> tuple[str, list[tuple[int, float | None]]]:
    """Read the name and the points, step and value, of an archived curve.

    Raises:
        UserError: It is not a curve.
    """
    name, steps, values = (row.get(key) for key in ("name", "steps", "values"))
    if type(steps) is not list or type(values) is not list or len(steps) != len(values):
        raise damaged("a curve whose steps and values are not lists of one length")
    own = Metric.__table__.columns
    points = [
        (_decoded(own["step"], step), _decoded(own["value"], value))
        for step, value in zip(steps, values, strict=True)
    ]
    return _decoded(MetricName.__table__.columns["name"], name), points


def _decoded(column: Any, value: Any) -> Any:
    """Return a value as the column takes it."""
    if value is None and column.nullable:
        return None
    kinds: dict[type, Callable[[Any, Any], Any]] = {DateTime: _time, Double: _number, Text: _text}
    kind = next((kind for type_, kind in kinds.items() if isinstance(column.type, type_)), _integer)
    try:
        return kind(column, value)
    except (TypeError, ValueError, OverflowError):
        told = kind_of(value) if isinstance(value, dict | list) else one_line(repr(value), 60)
        raise damaged(f"{told} for {column.table.name}.{column.name}") from None


def _time(_: Any, value: Any) -> datetime:
    time = datetime.fromisoformat(value)
    if time.tzinfo is not None or not _YEARS[0] <= time.year <= _YEARS[1]:
        raise ValueError
    return time


def _number(column: Any, value: Any) -> float | None:
    if type(value) not in (int, float) and value not in ("inf", "-inf", "nan"):
        raise ValueError
    number = float(value)
    return None if math.isnan(number) and column.nullable else number


def _integer(column: Any, value: Any) -> int:
    bits = 63 if isinstance(column.type, BigInteger) else 31
    if type(value) is not int or not -(1 << bits) <= value < 1 << bits:
        raise ValueError
    return value


def _text(column: Any, value: Any) -> str:
    place = (column.table.name, column.name)
    if not isinstance(value, str):
        raise ValueError
    if column.name.endswith("reason"):  # what a program said when it failed
        value = value[:_LETTERS]
    if place not in _LONG and len(value) > _LETTERS:
        raise ValueError
    value.encode()  # a ValueError for half a letter
    if place in _JSON:
        try:
            tree = json.loads(value)
        except RecursionError:
            raise ValueError from None
        if type(tree) is not dict or depth(tree) > LIMITS.depth:
            raise ValueError
    held: str = value.replace("\0", "\ufffd")
    return held


def depth(value: Any) -> int:
    """Return how many levels of lists and mappings are in each other; stops soon after the limit."""
    levels, level = 0, [value]
    while level and levels <= LIMITS.depth:
        inner = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)]
        level = [item for items in inner for item in items]
        levels += bool(inner)
    return levels


def damaged(what: str) -> UserError:
    """Create the error for what cannot be in an archive that jestlab wrote."""
    return UserError(f"the archive is damaged: {one_line(what, 300)}")


def compression_of(path: Path) -> str:
    """Return how a file of this name is compressed, zstd or gzip; UserError if the name does not say."""
    for ending, compression in ((".tar.zst", "zstd"), (".tar.gz", "gzip"), (".tgz", "gzip")):
        if path.name.endswith(ending):
            return compression
    raise UserError(f"{path}: name the archive NAME.tar.zst or NAME.tar.gz")
