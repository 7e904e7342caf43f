"""Published cells as a pandas frame: from a store's view, from files, and back to cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jestlab.analysis.connection import connect
from jestlab.analysis.published.cell import PublishedCell, order
from jestlab.analysis.published.files import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

_RENAMED = {"table": "table_name", "group": "group_name"}
"""Columns whose names mean something else in SQL."""

_FLAGS = ("ours", "baseline", "bold")


def read(url: str, source: str | None = None, table: str | None = None) -> pd.DataFrame:
    """The published cells in a store.

    Args:
        url: SQLAlchemy URL of the store.
        source: Of this source alone.
        table: Of tables of this name alone.

    Returns:
        One row a cell, as of `frame`; none where nothing was imported.

    Raises:
        FileNotFoundError: The URL names a SQLite file that does not exist.
        ValueError: What is there is no results store, or one of an older schema.
    """
    return frame(stored(url, source, table))


def stored(url: str, source: str | None = None, table: str | None = None) -> list[PublishedCell]:
    """The same, as cells: by source, table and row, in the order of columns."""
    from sqlalchemy import inspect, text

    names = ", ".join(_RENAMED.get(column, column) for column in COLUMNS)
    with connect(url) as connection:
        inspector = inspect(connection)
        known = (*inspector.get_view_names(), *inspector.get_table_names())
        if known and "v_published" not in known:
            raise ValueError("this store has no place for published results yet: run jestlab db upgrade")
        rows = connection.execute(text(f"SELECT {names} FROM v_published")).fetchall()
    cells = []
    for row in rows:
        values = dict(zip(COLUMNS, row, strict=True))
        values |= {name: bool(values[name]) for name in _FLAGS}
        if (source is None or values["source"] == source) and (table is None or values["table"] == table):
            cells.append(PublishedCell(**values))
    # Not by ORDER BY: databases sort text in many ways.
    return sorted(cells, key=lambda cell: (cell.source, cell.table, cell.position, order(cell.quantity)))


def frame(cells: Iterable[PublishedCell]) -> pd.DataFrame:
    """Cells as a frame.

    Returns:
        One row a cell, in the given order: source, table, position, group, method, variant, data, citation,
        citation_key, ours, baseline, accounting, quantity, printed, value, unit, bold, note. Text is never
        missing, but may be empty; ours, baseline and bold are booleans.
    """
    import pandas as pd

    rows = [tuple(getattr(cell, column) for column in COLUMNS) for cell in cells]
    types = {"position": int, "value": float, **dict.fromkeys(_FLAGS, bool)}
    return pd.DataFrame.from_records(rows, columns=list(COLUMNS)).astype(types)


def cells_of(frame: pd.DataFrame) -> list[PublishedCell]:
    """A frame as cells again; columns that it has beside those of `frame` are left out."""
    rows = zip(*(frame[column].tolist() for column in COLUMNS), strict=True)
    return [PublishedCell(**dict(zip(COLUMNS, row, strict=True))) for row in rows]
