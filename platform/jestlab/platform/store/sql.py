"""Small pieces of SQL and text that the store's modules share."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import ARRAY, Connection, bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite

Value = TypeVar("Value")

_CHUNK = 10_000  # SQLite takes 32,766 parameters


def now() -> datetime:
    """The time as the store keeps it: UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def to_json(value: Any, *, sort_keys: bool = True) -> str:
    """JSON text as the store keeps it: keys sorted, nothing superfluous; tuples and the like become lists."""
    return json.dumps(value, ensure_ascii=False, sort_keys=sort_keys, separators=(",", ":"), default=list)


def insert(connection: Connection, table: type[Any]) -> Any:
    """The dialect's INSERT, which knows ON CONFLICT."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def execute_many(connection: Connection, statement: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Execute a statement for each row; without rows, not at all."""
    if rows:
        connection.execute(statement, rows)


def upsert(
    connection: Connection,
    table: Any,
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    changed: Sequence[str],
    newest: str | None = None,
) -> None:
    """Insert many rows at once; those whose keys are there already are changed.

    Args:
        connection: In a write transaction.
        table: Mapped class.
        rows: With the same columns each; of several with the same keys the last counts.
        keys: Columns that make a row the same: a primary key or unique constraint.
        changed: Columns that take the new value.
        newest: A column; a row that is there with a greater value in it stays as it is.
    """
    if not rows:
        return
    its_key = itemgetter(*keys)
    last = list({its_key(row): row for row in rows}.values())
    names = tuple(last[0])
    server = connection.dialect.name == "postgresql"
    values = {name: [row[name] for row in last] for name in names} if server else last
    connection.execute(_upsert(server, table, names, tuple(keys), tuple(changed), newest), values)


@functools.cache  # building one takes as long as executing it
def _upsert(
    server: bool,
    table: Any,
    names: tuple[str, ...],
    keys: tuple[str, ...],
    changed: tuple[str, ...],
    newest: str | None,
) -> Any:
    statement: Any = (postgresql if server else sqlite).insert(table)
    if server:
        # One array a column: one statement for all rows, where `executemany` sends one a row.
        columns = {name: table.__table__.columns[name] for name in names}
        arrays = [bindparam(name, type_=ARRAY(column.type)) for name, column in columns.items()]
        given = func.unnest(*arrays).table_valued(*names, name="given").render_derived()
        statement = statement.from_select(list(names), select(*(given.c[name] for name in names)))
    there = getattr(table, newest) if newest else None
    return statement.on_conflict_do_update(
        index_elements=list(keys),
        set_={name: statement.excluded[name] for name in changed},
        where=None if there is None else there <= statement.excluded[newest],
    )


def chunks(values: Iterable[Value]) -> Iterator[list[Value]]:
    """Values in lists short enough for one `IN (…)`."""
    everything = list(values)
    for start in range(0, len(everything), _CHUNK):
        yield everything[start : start + _CHUNK]
