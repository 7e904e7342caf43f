"""Write many rows at once, on both kinds of databases, and convert values as the store keeps them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import ARRAY, Connection, Float, bindparam, func, select, text

Value = TypeVar("Value")

_CHUNK = 10_000  # SQLite accepts 32,766 parameters


def now() -> datetime:
    """Return the time as the store keeps it: UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def to_json(value: Any, *, sort_keys: bool = True) -> str:
    """Return compact JSON text; tuples and other iterables become lists."""
    return json.dumps(value, ensure_ascii=False, sort_keys=sort_keys, separators=(",", ":"), default=list)


def chunks(values: Iterable[Value], size: int = _CHUNK) -> Iterator[list[Value]]:
    """Split values into lists short enough for one `IN (…)`."""
    everything = list(values)
    for start in range(0, len(everything), size):
        yield everything[start : start + size]


def insert(connection: Connection, table: Any) -> Any:
    """Return the dialect's INSERT, which supports ON CONFLICT."""
    return _insert(table, server=connection.dialect.name == "postgresql")


def _insert(table: Any, *, server: bool) -> Any:
    # Importing a dialect takes a while, and most stores use one.
    if server:
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def execute_many(connection: Connection, statement: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Execute a statement for each row; without rows, do nothing."""
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
    """Insert many rows at once; update rows whose keys exist.

    Args:
        connection: In a write transaction.
        table: Mapped class.
        rows: All with the same columns. The last of several with the same keys counts.
        keys: Columns of a primary key or unique constraint.
        changed: Columns to update.
        newest: A column; an existing row with a greater value in it is not updated.
    """
    if not rows:
        return
    key_of = itemgetter(*keys)
    last = list({key_of(row): row for row in rows}.values())
    names = tuple(last[0])
    server = connection.dialect.name == "postgresql"
    values = {name: _array(table, name, last) for name in names} if server else last
    connection.execute(_upsert(server, table, names, tuple(keys), tuple(changed), newest), values)


def _array(table: Any, name: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the values of a column; an array of PostgreSQL can't mix integers and floats."""
    values = [row[name] for row in rows]
    if isinstance(table.__table__.c[name].type, Float):
        return [None if value is None else float(value) for value in values]
    return values


@functools.cache  # building a statement takes as long as executing it
def _upsert(
    server: bool,
    table: Any,
    names: tuple[str, ...],
    keys: tuple[str, ...],
    changed: tuple[str, ...],
    newest: str | None,
) -> Any:
    statement = _insert(table, server=server)
    if server:
        # One array per column: one statement for all rows, where `executemany` sends one per row.
        columns = {name: table.__table__.columns[name] for name in names}
        arrays = [bindparam(name, type_=ARRAY(column.type)) for name, column in columns.items()]
        given = func.unnest(*arrays).table_valued(*names, name="given").render_derived()
        statement = statement.from_select(list(names), select(*(given.c[name] for name in names)))
    existing = getattr(table, newest) if newest else None
    return statement.on_conflict_do_update(
        index_elements=list(keys),
        set_={name: statement.excluded[name] for name in changed},
        where=None if existing is None else existing <= statement.excluded[newest],
    )


# ---- points of curves: most rows of a store by far, so every microsecond counts

Point = tuple[int, int, float | None]
"""ID of the metric's name, step, value (None for NaN)."""

_ON_CONFLICT = {
    False: "ON CONFLICT (run_id, name_id, step) DO UPDATE SET value = excluded.value",
    True: "ON CONFLICT (run_id, name_id, step) DO NOTHING",
}
_SQLITE = {
    keep: f"INSERT INTO metric (run_id, name_id, step, value) VALUES (?, ?, ?, ?) {clause}"
    for keep, clause in _ON_CONFLICT.items()
}
_POSTGRESQL = {
    keep: text(
        "INSERT INTO metric (run_id, name_id, step, value) SELECT :run, given.name, given.step, given.value "
        "FROM unnest(CAST(:names AS integer[]), CAST(:steps AS bigint[]), "
        f"CAST(:values AS double precision[])) AS given (name, step, value) {clause}"
    )
    for keep, clause in _ON_CONFLICT.items()
}


def write_points(connection: Connection, run_id: int, points: Sequence[Point], *, keep: bool = False) -> None:
    """Write points of a run, inside a write transaction; the last of several at a step counts.

    The driver gets plain columns in the order of the table: rows as mappings take several times as long, and
    pages that are filled in order hold a sixth more.

    Args:
        connection: In a write transaction.
        run_id: Key of the run.
        points: In the order in which they were recorded.
        keep: Whether an existing point is left unchanged.
    """
    if not points:
        return
    last = {(name, step): value for name, step, value in points}
    ordered = sorted(last.items(), key=itemgetter(0))
    if connection.dialect.name == "sqlite":
        rows = [(run_id, name, step, value) for (name, step), value in ordered]
        connection.exec_driver_sql(_SQLITE[keep], rows)
        return
    places, values = zip(*ordered, strict=True)
    names, steps = zip(*places, strict=True)
    columns = {"run": run_id, "names": list(names), "steps": list(steps), "values": list(values)}
    connection.execute(_POSTGRESQL[keep], columns)
