"""Published results in the store: cells of tables, each known by its source, table, row and quantity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, select

from jestlab.analysis.published import COLUMNS, CellKey, PublishedCell, parse, render
from jestlab.analysis.published.files import OF_ROW
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.store.rows import now, upsert
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Published

KEY = ("source", "table_name", "position", "quantity")
"""Columns that identify a cell."""

_NAMES = {"table": "table_name", "group": "group_name"}
"""Attributes of cells whose columns have other names, because SQL reserves theirs."""

_VALUES = tuple(name for column in COLUMNS if (name := _NAMES.get(column, column)) not in KEY)


@dataclass(frozen=True)
class Change:
    """A cell whose values were changed: column → value before, and after."""

    key: CellKey
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass
class Imported:
    """What an import did.

    Attributes:
        new: Number of new cells.
        unchanged: Number of cells that were in the store already.
        changed: Cells that were in the store with other values.
        left: Cells of the same tables that are only in the store; they stay.
    """

    new: int = 0
    unchanged: int = 0
    changed: list[Change] = field(default_factory=list)
    left: list[CellKey] = field(default_factory=list)


def import_cells(store: Store, cells: Sequence[PublishedCell]) -> Imported:
    """Put cells into the store, all or none; importing them again changes nothing.

    Cells of the same tables that are not among them stay as they are. No two cells have the same key.

    Raises:
        UserError: With the cells that stay, a row would say two things, or a group have two baselines.
    """
    done = Imported()
    with store.writing() as connection:
        there = _there(connection, cells)
        written = []
        for cell in cells:
            values = _row(cell)
            before = there.pop(cell.key, None)
            if before is None:
                done.new += 1
            elif differing := [name for name in _VALUES if before[name] != values[name]]:
                was, now_is = ({name: row[name] for name in differing} for row in (before, values))
                done.changed.append(Change(cell.key, was, now_is))
            else:
                done.unchanged += 1
                continue
            written.append(values | {"updated_at": now()})
        done.left = sorted(there)
        _check_left(cells, there)
        upsert(connection, Published, written, KEY, (*_VALUES, "updated_at"))
    return done


def import_paper_tables(store: Store) -> None:
    """Import the tables of the JEST paper, which come with jestlab, unless the store has any of them."""
    from jestlab.analysis.published import PAPER, paper

    with store.reading() as connection:
        there = connection.scalar(select(Published.source).where(Published.source == PAPER).limit(1))
    if there is None:
        import_cells(store, paper())


def take_rows(connection: Connection, rows: Sequence[dict[str, Any]]) -> int:
    """Put rows of another store's table into this one if they are new, or were imported later.

    Args:
        connection: In a write transaction.
        rows: With all columns but the id.

    Returns:
        Number of rows written.

    Raises:
        ValueError: A row is not a valid cell.
        UserError: As `import_cells`.
    """
    if not rows:
        return 0
    parse(render(map(_cell, rows)).encode(), "published results")  # as strict as with a file
    key = [getattr(Published, name) for name in KEY]
    known = {tuple(row[:-1]): row[-1] for row in connection.execute(select(*key, Published.updated_at))}
    times = [known.get(tuple(row[name] for name in KEY)) for row in rows]
    later = [row for row, here in zip(rows, times, strict=True) if here is None or here < row["updated_at"]]
    cells = {cell.key: cell for cell in map(_cell, later)}
    there = _there(connection, cells.values())
    _check_left(cells.values(), {key: row for key, row in there.items() if key not in cells})
    upsert(connection, Published, later, KEY, (*_VALUES, "updated_at"))
    return len(later)


def remove_source(store: Store, source: str) -> int:
    """Delete all cells of a source and return their number; UserError if there are none."""
    with store.writing() as connection:
        deleted = connection.execute(delete(Published).where(Published.source == source)).rowcount
        if not deleted:
            known = connection.scalars(select(Published.source).distinct()).all()
            raise UserError(f"nothing published by {source!r} in the store: {nearest(source, known)}")
    return deleted


def _there(connection: Connection, cells: Iterable[PublishedCell]) -> dict[CellKey, dict[str, Any]]:
    """Return the rows in the store of the tables that these cells are of."""
    columns = [getattr(Published, name) for name in (*KEY, *_VALUES)]
    found = {}
    for source, table in {(cell.source, cell.table) for cell in cells}:
        own = (Published.source == source, Published.table_name == table)
        for row in connection.execute(select(*columns).where(*own)).mappings():
            found[CellKey(*(row[name] for name in KEY))] = dict(row)
    return found


def _cell(row: Mapping[str, Any]) -> PublishedCell:
    values = {column: row[_NAMES.get(column, column)] for column in COLUMNS}
    return PublishedCell(**values | {name: bool(values[name]) for name in ("ours", "baseline", "bold")})


def _row(cell: PublishedCell) -> dict[str, Any]:
    values = {_NAMES.get(column, column): getattr(cell, column) for column in COLUMNS}
    return {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}


def _check_left(cells: Iterable[PublishedCell], left: Mapping[CellKey, Mapping[str, Any]]) -> None:
    """Raise UserError where cells that stay contradict these about a row or a baseline."""
    cells = list(cells)
    rows = {cell.key[:3]: _row(cell) for cell in cells}
    baselines = {(cell.source, cell.table, cell.group): cell.position for cell in cells if cell.baseline}
    for key, row in sorted(left.items()):
        remedy = f"make them one, or first run jestlab published remove {key.source!r}"
        now_said = rows.get(key[:3], {})
        for name in OF_ROW:
            column = _NAMES.get(name, name)
            if now_said and now_said[column] != row[column]:
                raise UserError(
                    f"{key.table}, row {key.position}: {name} is {row[column]!r} in the store, where "
                    f"{key.quantity} stays, and {now_said[column]!r} now: {remedy}"
                )
        position = baselines.get((key.source, key.table, row["group_name"]))
        if row["baseline"] and position not in (None, key.position):
            raise UserError(
                f"{key.table} has its baseline in row {key.position} in the store, in row {position} now: "
                f"{remedy}"
            )
