"""Published results in the store: cells of tables, identified by source, table, row, and quantity."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, select, tuple_

from jestlab.analysis.published import COLUMNS, PAPER, cell_of, check_consistent, paper
from jestlab.analysis.published.cell import CellKey, PublishedCell
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.store.rows import now, upsert
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import PublishedRow

_KEY = ("source", "table_name", "position", "quantity")
_RENAMED = {"table": "table_name", "group": "group_name"}  # SQL reserves these words
_VALUES = tuple(name for column in COLUMNS if (name := _RENAMED.get(column, column)) not in _KEY)


@dataclass
class Imported:
    """Result of an import.

    Attributes:
        new: Number of new cells.
        changed: Number of cells that were in the store with other values.
        unchanged: Number of cells that were in the store with the same values.
        kept: Number of cells of the same tables that were only in the store.
    """

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    kept: int = 0


def import_cells(store: Store, cells: Sequence[PublishedCell]) -> Imported:
    """Insert or update cells, all or none. Other cells of the same tables are kept.

    Raises:
        ValueError: The cells contradict each other, or those that are kept.
    """
    with store.writing() as connection:
        return take_rows(connection, [_row(cell) | {"updated_at": now()} for cell in cells])


def take_rows(connection: Connection, rows: Sequence[dict[str, Any]]) -> Imported:
    """Insert or update rows with all columns, in a write transaction; existing ones that are newer remain.

    Raises:
        ValueError: A row isn't valid, or contradicts others.
    """
    imported, written = Imported(), []
    cells = [_cell(row) for row in rows]
    _check(cells)
    stored = _stored(connection, cells)
    kept = dict(stored)
    for cell, row in zip(cells, rows, strict=True):
        before = stored.get(cell.key)
        if before is None:
            imported.new += 1
        elif before["updated_at"] < row["updated_at"] and any(before[name] != row[name] for name in _VALUES):
            imported.changed += 1
        else:
            imported.unchanged += 1
            continue
        written.append(row)
        kept.pop(cell.key, None)
    imported.kept = len(stored.keys() - {cell.key for cell in cells})
    _check(map(_cell, [*kept.values(), *written]))
    upsert(connection, PublishedRow, written, _KEY, (*_VALUES, "updated_at"))
    return imported


def import_paper_tables(store: Store) -> None:
    """Import the tables of the JEST paper, unless the store has cells of them."""
    if not store.rows(select(PublishedRow.source).where(PublishedRow.source == PAPER).limit(1)):
        import_cells(store, paper())


def remove_source(store: Store, source: str) -> int:
    """Delete all cells of a source and return their number; UserError if the source is unknown."""
    with store.writing() as connection:
        deleted = connection.execute(delete(PublishedRow).where(PublishedRow.source == source)).rowcount
        if not deleted:
            known = connection.scalars(select(PublishedRow.source).distinct()).all()
            raise UserError(f"no published results of {source!r} in the store: {nearest(source, known)}")
    return deleted


def _stored(connection: Connection, cells: Iterable[PublishedCell]) -> dict[CellKey, dict[str, Any]]:
    """Read all rows of the tables of cells."""
    tables = {(cell.source, cell.table) for cell in cells}
    query = select(PublishedRow.__table__).where(
        tuple_(PublishedRow.source, PublishedRow.table_name).in_(tables)
    )
    rows = map(dict, connection.execute(query).mappings())
    return {CellKey(*(row[name] for name in _KEY)): row for row in rows}


def _check(cells: Iterable[PublishedCell]) -> None:
    check_consistent((f"published {cell.table}, row {cell.position}", cell) for cell in cells)


def _cell(row: Mapping[str, Any]) -> PublishedCell:
    values = {column: row[_RENAMED.get(column, column)] for column in COLUMNS}
    return cell_of(values, f"published {values['table']}, row {values['position']}")


def _row(cell: PublishedCell) -> dict[str, Any]:
    values = {_RENAMED.get(column, column): getattr(cell, column) for column in COLUMNS}
    return {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}
