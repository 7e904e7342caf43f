"""Write many rows at once, on both kinds of databases, and convert values as the store keeps them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, bindparam


def now() -> datetime:
    """Return the time as the store keeps it: UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def to_json(value: Any, *, sort_keys: bool = True) -> str:
    """Return compact JSON text; tuples and other iterables become lists."""
    return json.dumps(value, ensure_ascii=False, sort_keys=sort_keys, separators=(",", ":"), default=list)


def one_of(column: Any, values: Iterable[Any]) -> ColumnElement[bool]:
    """Return whether a column has one of any number of values.

    They become part of the SQL text, because databases limit the number of parameters.
    """
    given = bindparam(None, list(values), column.type, expanding=True, literal_execute=True)
    of_these: ColumnElement[bool] = column.in_(given)
    return of_these


def insert(connection: Connection, table: Any) -> Any:
    """Return the dialect's INSERT, which supports ON CONFLICT."""
    # Importing a dialect takes a while, and most stores use one.
    if connection.dialect.name == "postgresql":
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
    keys: Sequence[str] = (),
    changed: Sequence[str] = (),
    newest: str | None = None,
) -> None:
    """Insert many rows; update rows whose keys exist, or leave them if no column changes.

    Args:
        connection: In a write transaction.
        table: Mapped class.
        rows: All with the same columns. With `keys`, the last of several with the same keys counts.
        keys: Columns of a primary key or unique constraint.
        changed: Columns to update.
        newest: A column; an existing row with a greater value in it is not updated.
    """
    statement = insert(connection, table)
    if not changed:
        execute_many(connection, statement.on_conflict_do_nothing(), rows)
        return
    key_of = itemgetter(*keys)
    last = {key_of(row): row for row in rows}
    new = statement.excluded
    statement = statement.on_conflict_do_update(
        index_elements=list(keys),
        set_={name: new[name] for name in changed},
        where=None if newest is None else getattr(table, newest) <= new[newest],
    )
    execute_many(connection, statement, list(last.values()))


def copy_rows(source: Connection, target: Connection, table: Table, query: Select[Any]) -> None:
    """Copy the rows of a query to a table of another store, a part at a time."""
    for rows in source.execution_options(yield_per=10_000).execute(query).partitions():
        if table.name == "metric":
            write_metrics(target, [tuple(row) for row in rows])
        else:
            target.execute(table.insert(), [dict(row._mapping) for row in rows])


def write_metrics(connection: Connection, rows: Sequence[tuple[Any, ...]], *, keep: bool = False) -> None:
    """Write rows of the table `metric`: run_id, name_id, step, value.

    A store has far more of them than of other rows. So the driver gets tuples, because rows as mappings take
    several times as long.
    """
    values = ", ".join(["?" if connection.dialect.name == "sqlite" else "%s"] * 4)
    action = "NOTHING" if keep else "UPDATE SET value = excluded.value"
    if rows:
        connection.exec_driver_sql(
            f"INSERT INTO metric (run_id, name_id, step, value) VALUES ({values}) "
            f"ON CONFLICT (run_id, name_id, step) DO {action}",
            list(rows),
        )
