"""Published results, cell by cell: the printed text, its value, and its source.

A CSV file has one line per cell:

    source,table,method,variant,quantity,printed,unit,baseline
    Doe et al. 2025,small models,SigLIP,S,imagenet/zero_shot,70.3,percent,yes
    Doe et al. 2025,small models,SigLIP,S,examples_seen,13B,,yes

The columns are the attributes of `PublishedCell`, in any order. Without `position`, rows are numbered in the
order of the file; a table needs `position` if two rows have the same group, method, variant, and data. The
file is in UTF-8, with commas, semicolons, or tabs between cells.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..errors import RequestError, shown
from ..files import from_csv_cell, rows_to_csv
from ..results import Snapshot, opens_store
from ..units import nearest
from .cell import CellKey, PublishedCell, order

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = tuple(PublishedCell.model_fields)
"""All columns, in the order in which they are written."""

PAPER = "Evans et al. 2024"
"""The source of the tables that are part of jestlab."""

_ROW_COLUMNS = (
    "group", "method", "variant", "data", "citation", "citation_key", "ours", "baseline", "accounting",
)  # fmt: skip
"""Columns that are equal in all cells of a row."""


def paper() -> list[PublishedCell]:
    """Read all cells of the five tables of the paper, in its order.

    References:
        Evans et al. (2024), "Data curation via joint example selection further accelerates multimodal
        learning".
    """
    file = resources.files(__name__) / "evans2024.csv"
    return parse(file.read_bytes(), file.name)


# ---- CSV files


def parse(content: bytes, name: str) -> list[PublishedCell]:
    """Read the cells of a CSV file.

    Args:
        content: Content of the file.
        name: Name of the file, for error messages.

    Raises:
        ValueError: A line is invalid. The message is one line, with the name of the file and the line.
    """
    (first, header), *lines = _lines(content, name) or [(1, [])]
    columns = [text.strip().lower() for text in header]
    for column in columns:
        if column not in COLUMNS:
            raise RequestError(f"{name}, line {first}: no column {shown(column)}: {nearest(column, COLUMNS)}")
        if columns.count(column) > 1:
            raise RequestError(f"{name}, line {first}: duplicate column {column!r}: keep one")
    if not lines:
        raise RequestError(f"{name}: no lines below the header: expected one for each cell")
    rows: dict[tuple[Any, ...], dict[tuple[Any, ...], int]] = {}
    cells = []
    for line, texts in lines:
        place = f"{name}, line {line}"
        if len(texts) > len(columns):
            raise RequestError(f"{place}: {len(texts)} cells under a header of {len(columns)}")
        stripped = (from_csv_cell(text.strip()) for text in texts)
        values: dict[str, Any] = dict(zip(columns, stripped, strict=False))
        if "position" not in columns:
            positions = rows.setdefault((values.get("source"), values.get("table")), {})
            row = tuple(values.get(column) for column in ("group", "method", "variant", "data"))
            values["position"] = positions.setdefault(row, len(positions) + 1)
        cells.append((place, cell_of(values, place)))
    check_consistent(cells)
    return [cell for _, cell in cells]


def render(cells: Iterable[PublishedCell]) -> str:
    """Write cells as CSV, from which `parse` reads the same cells."""
    return rows_to_csv(COLUMNS, ([*map(_text, vars(cell).values())] for cell in cells))


def _lines(content: bytes, name: str) -> list[tuple[int, list[str]]]:
    """Return the line number and the cells of each line that isn't empty."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{name}, line {line}: not valid UTF-8: save it as “CSV UTF-8”") from None
    header = text.partition("\n")[0]
    separator = next((sign for sign in ",;\t" if sign in header), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        return [(reader.line_num, texts) for texts in reader if any(map(str.strip, texts))]
    except csv.Error as error:
        raise RequestError(f"{name}, line {reader.line_num}: not valid CSV: {error}") from None


def _text(value: Any) -> str:
    """Write a value for a file."""
    if isinstance(value, bool):
        return "yes" if value else ""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


# ---- checks


def cell_of(values: Mapping[str, Any], place: str) -> PublishedCell:
    """Make a cell from column → value.

    Raises:
        ValueError: A value is invalid. The message is one line, which starts with `place`.
    """
    try:
        return PublishedCell(**values)
    except ValidationError as error:
        wrong = error.errors()[0]
        column = "".join(f"{part}: " for part in wrong["loc"])
        message = wrong["msg"].removeprefix("Value error, ")
        given = "" if wrong["type"] in ("value_error", "missing") else f", not {shown(wrong['input'])}"
        raise RequestError(f"{place}, {column}{message}{given}") from None


def check_consistent(cells: Iterable[tuple[str, PublishedCell]]) -> None:
    """Check that no cell occurs twice, and that the cells of a row or group don't contradict each other.

    Args:
        cells: Each cell, preceded by its place for error messages.

    Raises:
        ValueError: The cells are inconsistent.
    """
    keys: dict[CellKey, str] = {}
    facts: dict[tuple[str, str, str], tuple[Any, str]] = {}
    for place, cell in cells:
        if cell.key in keys:
            raise RequestError(
                f"{place}: {cell.quantity} of {cell.method} is already in {keys[cell.key]}: keep one, or "
                "number the rows with `position`"
            )
        keys[cell.key] = place
        row = f"row {cell.position} of {cell.table}"
        values = {(column, row, cell.source): getattr(cell, column) for column in _ROW_COLUMNS}
        if cell.baseline:
            group = f"group {cell.group!r} of {cell.table}"
            values["position of the baseline", group, cell.source] = cell.position
        for fact, value in values.items():
            other, where = facts.setdefault(fact, (value, place))
            if other != value:
                both = f"{_text(value)!r} here and {_text(other)!r} in {where}"
                raise RequestError(f"{place}: {fact[0]} of {fact[1]} is {both}: expected equal values")


# ---- stores and frames


@opens_store
def stored(store: Snapshot) -> list[PublishedCell]:
    """Read the published cells of a store, sorted by source, table, row, and column.

    Raises:
        FileNotFoundError: The URL names a SQLite file that does not exist.
        ValueError: The database is not a results store.
    """
    renamed = {"table": "table_name", "group": "group_name"}  # SQL reserves these words
    cells = [
        PublishedCell(**{column: row[renamed.get(column, column)] for column in COLUMNS})
        for row in store.rows("SELECT * FROM v_published")
    ]
    # ORDER BY would sort text in a different way in each database.
    return sorted(cells, key=lambda cell: (cell.source, cell.table, cell.position, order(cell.quantity)))


def read(store: str | Snapshot) -> pd.DataFrame:
    """Read the published cells of a store (`stored`) into a frame (`frame`)."""
    return frame(stored(store))


def frame(cells: Iterable[PublishedCell]) -> pd.DataFrame:
    """Convert cells to a frame.

    Returns:
        One row per cell, in the given order, with the columns `COLUMNS`. Text may be empty, but is never
        missing; ours, baseline, and bold are booleans.
    """
    import pandas as pd

    types = {"position": int, "value": float, **dict.fromkeys(("ours", "baseline", "bold"), bool)}
    return pd.DataFrame(map(vars, cells), columns=list(COLUMNS)).astype(types)
