"""Small pieces of SQL and text that the store's modules share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

_CHUNK = 10_000  # SQLite takes 32,766 parameters


def now() -> datetime:
    """The time as the store keeps it: UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def to_json(value: Any) -> str:
    """JSON text as the store keeps it: keys sorted, nothing superfluous; tuples and the like become lists."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=list)


def insert(connection: Connection, table: type[Any]) -> Any:
    """The dialect's INSERT, which knows ON CONFLICT."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def execute_many(connection: Connection, statement: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Execute a statement for each row; without rows, not at all."""
    if rows:
        connection.execute(statement, rows)


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """Values in lists short enough for one `IN (…)`."""
    everything = list(values)
    for start in range(0, len(everything), _CHUNK):
        yield everything[start : start + _CHUNK]
