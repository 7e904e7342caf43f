"""Published cells as CSV files, as pandas frames, and in a store. A CSV file has one line per cell:

    source,table,method,variant,quantity,printed,unit,baseline
    Doe et al. 2025,small models,SigLIP,S,imagenet/zero_shot,70.3,percent,yes
    Doe et al. 2025,small models,SigLIP,S,examples_seen,13B,,yes
    Doe et al. 2025,small models,JEST++,S,imagenet/zero_shot,71.0,percent,

`source`, `table`, `method`, `quantity`, and `printed` are required. `unit` (percent or share) is required
except for counts and for yes or no. All other attributes of `PublishedCell` are optional. Without `position`,
rows are numbered in the order of the file; a table with two rows of the same method needs `position`. `value`
follows from the printed text; a given value may have more digits, but must round to the printed text. The
file is UTF-8, separated by commas, semicolons, or tabs.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from jestlab.analysis.published.cell import (
    ACCOUNTINGS,
    CellKey,
    Interval,
    PublishedCell,
    check_quantity,
    order,
    read_printed,
    unit_of,
    value_of,
)
from jestlab.analysis.results import Snapshot, opens_store
from jestlab.analysis.spreadsheets import csv_cell, from_csv_cell
from jestlab.analysis.units import nearest

from ..errors import RequestError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "source", "table", "position", "group", "method", "variant", "data", "citation", "citation_key", "ours",
    "baseline", "accounting", "quantity", "printed", "value", "unit", "bold", "note",
)  # fmt: skip
"""All columns, in the order in which they are written."""

PAPER = "Evans et al. 2024"
"""The source of the tables that are part of jestlab."""

_REQUIRED = ("source", "table", "method", "quantity", "printed")
_OF_ROW = (
    "group", "method", "variant", "data", "citation", "citation_key", "ours", "baseline", "accounting",
)  # fmt: skip
"""Columns that are equal in all cells of a row."""

_FLAGS = ("ours", "baseline", "bold")
_RESERVED = ("summary", "speedups")  # names of tables of own runs
_LONGEST = 1_000  # characters of a text


def paper() -> list[PublishedCell]:
    """Read all cells of the five tables of the paper, in its order.

    References:
        Evans et al. (2024), "Data curation via joint example selection further accelerates multimodal
        learning".
    """
    file = resources.files("jestlab.analysis.published") / "evans2024.csv"
    return parse(file.read_bytes(), file.name)


def parse(content: bytes, name: str) -> list[PublishedCell]:
    """Read the cells of a CSV file.

    Args:
        content: Content of the file.
        name: Name of the file, for errors.

    Raises:
        ValueError: A line is invalid; the message is one line with the place and the remedy.
    """
    lines = _lines(content, name)
    header_line, header = next(lines, (1, []))
    columns = _columns(header, f"{name}, line {header_line}")
    rows: list[tuple[int, dict[str, str]]] = []
    for line, texts in lines:
        if len(texts) > len(columns):
            raise RequestError(
                f"{name}, line {line}: {len(texts)} cells under a header of {len(columns)}: put texts that "
                "hold the separator in quotes"
            )
        row = {column: from_csv_cell(text.strip()) for column, text in zip(columns, texts, strict=False)}
        rows.append((line, {column: row.get(column, "") for column in COLUMNS}))
    if not rows:
        raise RequestError(f"{name}: no lines below the header: expected one for each cell")
    if "position" not in columns:
        _number([row for _, row in rows])
    cells = [(line, _cell(row, f"{name}, line {line}")) for line, row in rows]
    _check_consistency(cells, name)
    return [cell for _, cell in cells]


def render(cells: Iterable[PublishedCell]) -> str:
    """Write cells as CSV; `parse` reads the same cells from it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in cells:
        writer.writerow(csv_cell(_text(getattr(cell, column))) for column in COLUMNS)
    return text.getvalue()


def _lines(content: bytes, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the texts of each line that isn't empty."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RequestError(f"{name}, line {line}: not valid UTF-8: save it as “CSV UTF-8”") from None
    header = text.partition("\n")[0]
    separator = next((sign for sign in (",", ";", "\t") if sign in header), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for texts in reader:
            if any(text.strip() for text in texts):
                yield reader.line_num, texts
    except csv.Error as error:
        raise RequestError(f"{name}, line {reader.line_num}: not valid CSV: {error}") from None


def _columns(header: Sequence[str], place: str) -> list[str]:
    """Return the names of the columns; raise ValueError if one is unknown, duplicate, or missing."""
    columns = [text.strip().lower() for text in header]
    for column in columns:
        if column not in COLUMNS:
            raise RequestError(f"{place}: no column {column[:40]!r}: {nearest(column, COLUMNS)}")
        if columns.count(column) > 1:
            raise RequestError(f"{place}: duplicate column {column!r}: keep one")
    for column in _REQUIRED:
        if column not in columns:
            raise RequestError(f"{place}: missing column {column!r}: add it to the header")
    return columns


def _number(rows: Sequence[dict[str, str]]) -> None:
    """Number the rows of each table in the order of the file."""
    numbers: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
    for row in rows:
        of_table = numbers.setdefault((row["source"], row["table"]), {})
        key = tuple(row[column] for column in ("group", "method", "variant", "data"))
        row["position"] = str(of_table.setdefault(key, len(of_table) + 1))


def _cell(texts: Mapping[str, str], place: str) -> PublishedCell:
    """Make the cell of a line."""
    values: dict[str, Any] = {}
    for column in dict.fromkeys(("quantity", "unit", *COLUMNS)):
        try:
            text = _checked(texts[column], column)
            values[column] = _PARSERS[column](text, values) if column in _PARSERS else text
        except ValueError as error:
            raise RequestError(f"{place}, column {column}: {error}") from None
    return PublishedCell(**values)


def _checked(text: str, column: str) -> str:
    """Return a text; raise ValueError unless it is valid in any column."""
    if not text and column in _REQUIRED:
        raise RequestError("empty: a value is required")
    if column == "table" and text in _RESERVED:
        raise RequestError(f"{text!r} is reserved for own runs: choose another name")
    if len(text) > _LONGEST:
        raise RequestError(f"too long: {len(text):,} characters, expected at most {_LONGEST:,}")
    if not text.isprintable():
        raise RequestError("contains a line break or another unprintable character: remove it")
    return text


def _position(text: str, row: Mapping[str, Any]) -> int:
    if not re.fullmatch("[1-9][0-9]{0,4}", text):
        raise RequestError(f"{text!r} is not a row number: expected 1, 2, …, in every line or in none")
    return int(text)


def _printed(text: str, row: Mapping[str, Any]) -> str:
    value_of(text, row["unit"], row["quantity"])
    return text


def _value(text: str, row: Mapping[str, Any]) -> float:
    """Read a given value, which must round to the printed text, or take that of the printed text."""
    if not text:
        return value_of(row["printed"], row["unit"], row["quantity"])
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise RequestError(f"{text[:40]!r} is not a number: leave it out")
    may = read_printed(row["printed"], row["unit"]).interval
    if may.gap(Interval(value, value, value)) > 1e-12 * abs(value):
        raise RequestError(
            f"{text} does not round to the printed {row['printed']!r}: that is {may.low:g} to {may.high:g}"
        )
    return value


def _choice(choices: Mapping[str, Any], expected: str) -> Callable[[str, Mapping[str, Any]], Any]:
    """Make a parser for columns with few valid texts: text → value."""

    def parse(text: str, row: Mapping[str, Any]) -> Any:
        if text.lower() not in choices:
            raise RequestError(f"{text!r} is not valid: expected {expected}, or nothing")
        return choices[text.lower()]

    return parse


_YES_OR_NO = dict.fromkeys(("yes", "true", "1"), True) | dict.fromkeys(("", "no", "false", "0"), False)
_PARSERS: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "position": _position,
    "quantity": lambda text, row: check_quantity(text),
    "unit": lambda text, row: unit_of(row["quantity"], text.lower()),
    "printed": _printed,
    "value": _value,
    "accounting": _choice({name: name for name in ACCOUNTINGS}, ", ".join(ACCOUNTINGS[1:])),
    **dict.fromkeys(_FLAGS, _choice(_YES_OR_NO, "yes")),
}
"""Column → function that parses its text, given the columns of the line that are parsed already."""


def _check_consistency(cells: Iterable[tuple[int, PublishedCell]], name: str) -> None:
    """Raise ValueError for a duplicate cell, and for cells of a row or group that contradict each other."""
    keys: dict[CellKey, int] = {}
    rows: dict[tuple[Any, ...], tuple[int, PublishedCell]] = {}
    baselines: dict[tuple[str, ...], tuple[int, int]] = {}
    for line, cell in cells:
        place = f"{name}, line {line}, column"
        if (before := keys.setdefault(cell.key, line)) != line:
            raise RequestError(
                f"{place} quantity: {cell.quantity} of {cell.method} is already in line {before}: leave one, "
                "or number the rows with `position`"
            )
        before, first = rows.setdefault(cell.key[:3], (line, cell))
        for column in _OF_ROW:
            here, there = getattr(cell, column), getattr(first, column)
            if here != there:
                raise RequestError(
                    f"{place} {column}: row {cell.position} of {cell.table} has {_text(here)!r} here and "
                    f"{_text(there)!r} in line {before}: make them equal, or two rows"
                )
        if cell.baseline:
            group = (cell.source, cell.table, cell.group)
            before, position = baselines.setdefault(group, (line, cell.position))
            if position != cell.position:
                raise RequestError(
                    f"{place} baseline: {cell.table} has another baseline in line {before}: leave one, or "
                    "make two groups"
                )


def _text(value: Any) -> str:
    """Write a value as it is in a file."""
    if isinstance(value, bool):
        return "yes" if value else ""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


# ---- stores and frames


@opens_store
def stored(store: Snapshot) -> list[PublishedCell]:
    """Read the published cells of a store: by source, table, and row, in the order of columns.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.

    Raises:
        FileNotFoundError: The URL names a SQLite file that does not exist.
        ValueError: The database is not a results store.
    """
    from sqlalchemy import text

    renamed = {"table": "table_name", "group": "group_name"}  # SQL reserves these words
    names = ", ".join(renamed.get(column, column) for column in COLUMNS)
    rows = store.connection.execute(text(f"SELECT {names} FROM v_published")).fetchall()
    cells = []
    for row in rows:
        values = dict(zip(COLUMNS, row, strict=True))
        cells.append(PublishedCell(**values | {name: bool(values[name]) for name in _FLAGS}))
    # Not by ORDER BY: databases sort text in different ways.
    return sorted(cells, key=lambda cell: (cell.source, cell.table, cell.position, order(cell.quantity)))


def read(store: str | Snapshot) -> pd.DataFrame:
    """Read the published cells of a store, as `stored`, into a frame, as `frame`."""
    return frame(stored(store))


def frame(cells: Iterable[PublishedCell]) -> pd.DataFrame:
    """Convert cells to a frame.

    Returns:
        One row per cell, in the given order, with the columns `COLUMNS`. Text may be empty, but is never
        missing; ours, baseline, and bold are booleans.
    """
    import pandas as pd

    types = {"position": int, "value": float, **dict.fromkeys(_FLAGS, bool)}
    return pd.DataFrame(map(vars, cells), columns=list(COLUMNS)).astype(types)


def cells_of(frame: pd.DataFrame) -> list[PublishedCell]:
    """Convert a frame from `frame` back to cells."""
    rows: list[dict[Any, Any]] = frame[list(COLUMNS)].to_dict("records")
    return [PublishedCell(**row) for row in rows]
