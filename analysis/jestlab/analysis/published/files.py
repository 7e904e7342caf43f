"""Published cells as CSV files, as pandas frames, and from a store. A file has a line for each cell:

    source,table,method,variant,quantity,printed,unit,baseline
    Doe et al. 2025,small models,SigLIP,S,imagenet/zero_shot,70.3,percent,yes
    Doe et al. 2025,small models,SigLIP,S,examples_seen,13B,,yes
    Doe et al. 2025,small models,JEST++,S,imagenet/zero_shot,71.0,percent,

`source`, `table`, `method`, `quantity` and `printed` have to be there, and `unit` (percent or share) for all
but counts and yes or no. All other attributes of `PublishedCell` may be. Rows get their positions in the
order of the file where `position` is not given; it has to be for methods that stand in a table twice.
`value` follows from the printed text; a given one may have more digits, and has to agree with it. UTF-8,
separated by commas, semicolons or tabs.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from fractions import Fraction
from importlib import resources
from typing import TYPE_CHECKING, Any

from jestlab.analysis.published.cell import (
    ACCOUNTINGS,
    CellKey,
    PublishedCell,
    check_quantity,
    order,
    printed_interval,
    printed_value,
    unit_of,
)
from jestlab.analysis.results import Snapshot, opens_store
from jestlab.analysis.spreadsheets import csv_cell, from_csv_cell
from jestlab.analysis.units import nearest

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "source", "table", "position", "group", "method", "variant", "data", "citation", "citation_key", "ours",
    "baseline", "accounting", "quantity", "printed", "value", "unit", "bold", "note",
)  # fmt: skip
"""All columns, in the order in which they are written."""

REQUIRED = ("source", "table", "method", "quantity", "printed")

PAPER = "Evans et al. 2024"
"""The source of the tables that come with jestlab."""

OF_ROW = (
    "group", "method", "variant", "data", "citation", "citation_key", "ours", "baseline", "accounting",
)  # fmt: skip
"""What all cells of a row say alike."""

_FLAGS = ("ours", "baseline", "bold")
_YES, _NO = ("yes", "true", "1"), ("", "no", "false", "0")
_TAKEN = ("summary", "speedups")
_LONGEST, _MOST = 1_000, 100_000  # characters of a text, rows of a table
_TOLERANCE = Fraction(1, 10**12)


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
        content: Of the file.
        name: The file's, for errors.

    Raises:
        ValueError: Something in it is wrong; one line that says where and what to do.
    """
    lines = _lines(content, name)
    header_line, header = next(lines, (1, []))
    columns = _header(header, f"{name}, line {header_line}")
    found: list[tuple[int, dict[str, str]]] = []
    for line, texts in lines:
        if len(texts) > len(columns):
            raise ValueError(
                f"{name}, line {line}: {len(texts)} cells under a header of {len(columns)}: put texts that "
                "hold the separator in quotes"
            )
        row = {column: from_csv_cell(text.strip()) for column, text in zip(columns, texts, strict=False)}
        found.append((line, {column: row.get(column, "") for column in COLUMNS}))
    if not found:
        raise ValueError(f"{name}: no lines below the header: expected one for each cell")
    reader = _Reader(name, "position" in columns)
    return [reader.cell(line, row) for line, row in found]


def render(cells: Iterable[PublishedCell]) -> str:
    """Write cells as CSV that `parse` reads back to the same."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell in cells:
        writer.writerow(csv_cell(_text(getattr(cell, column))) for column in COLUMNS)
    return text.getvalue()


def _lines(content: bytes, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield numbers and cells of the non-empty lines."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{name}, line {line}: not valid UTF-8: save it as “CSV UTF-8”") from None
    header = text.partition("\n")[0]
    separator = next((sign for sign in (",", ";", "\t") if sign in header), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for texts in reader:
            if any(text.strip() for text in texts):
                yield reader.line_num, texts
    except csv.Error as error:
        raise ValueError(f"{name}, line {reader.line_num}: not valid CSV: {error}") from None


def _header(texts: list[str], place: str) -> list[str]:
    """Check the names of the columns."""
    columns = [text.strip().lower() for text in texts]
    for column in columns:
        if column not in COLUMNS:
            raise ValueError(f"{place}: no column {column[:40]!r}: {nearest(column, COLUMNS)}")
        if columns.count(column) > 1:
            raise ValueError(f"{place}: duplicate column {column!r}: keep one")
    if missing := [column for column in REQUIRED if column not in columns]:
        raise ValueError(f"{place}: missing column {missing[0]!r}: add it to the header")
    return columns


class _Reader:
    """Turn lines into cells, checking them against the lines before."""

    def __init__(self, name: str, positioned: bool) -> None:
        self._name = name
        self._positioned = positioned
        self._positions: dict[tuple[str, str], dict[tuple[str, ...], int]] = {}
        self._lines: dict[CellKey, int] = {}
        self._rows: dict[tuple[str, str, int], tuple[int, dict[str, Any]]] = {}
        self._baselines: dict[tuple[str, str, str], tuple[int, int]] = {}

    def cell(self, line: int, texts: dict[str, str]) -> PublishedCell:
        for column, text in texts.items():
            with _at(self._name, line, column):
                _check_text(text, column)
        values: dict[str, Any] = dict(texts)
        with _at(self._name, line, "quantity"):
            check_quantity(texts["quantity"])
        with _at(self._name, line, "unit"):
            values["unit"] = unit_of(texts["quantity"], texts["unit"].lower())
        with _at(self._name, line, "printed"):
            exact = printed_value(texts["printed"], values["unit"], texts["quantity"])
        with _at(self._name, line, "value"):
            values["value"] = _value(texts, values["unit"]) if texts["value"] else exact
        for column in _FLAGS:
            with _at(self._name, line, column):
                values[column] = _flag(texts[column])
        with _at(self._name, line, "accounting"):
            if texts["accounting"] not in ACCOUNTINGS:
                known = ", ".join(filter(None, ACCOUNTINGS))
                raise ValueError(
                    f"{texts['accounting']!r} is not a known accounting: expected {known}, or nothing"
                )
        with _at(self._name, line, "position"):
            values["position"] = self._position(texts)
        cell = PublishedCell(**values)
        self._check(cell, line)
        return cell

    def _position(self, texts: Mapping[str, str]) -> int:
        if self._positioned:
            text = texts["position"]
            if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= _MOST and len(text) < 9):
                raise ValueError(f"{text!r} is not a row number: expected 1, 2, …, in every line or in none")
            return int(text)
        rows = self._positions.setdefault((texts["source"], texts["table"]), {})
        return rows.setdefault(tuple(texts[c] for c in ("group", "method", "variant", "data")), len(rows) + 1)

    def _check(self, cell: PublishedCell, line: int) -> None:
        """Raise for a duplicate cell, or one that contradicts another cell of its row."""
        with _at(self._name, line, "quantity"):
            if (before := self._lines.setdefault(cell.key, line)) != line:
                remedy = "leave one" if self._positioned else "leave one, or number the rows with `position`"
                raise ValueError(f"{cell.quantity} of {cell.method} is already in line {before}: {remedy}")
        said = {column: getattr(cell, column) for column in OF_ROW}
        before, known = self._rows.setdefault((cell.source, cell.table, cell.position), (line, said))
        for column in OF_ROW:
            with _at(self._name, line, column):
                if said[column] != known[column]:
                    raise ValueError(
                        f"row {cell.position} of {cell.table} has {_text(said[column])!r} here and "
                        f"{_text(known[column])!r} in line {before}: make them equal, or two rows"
                    )
        if cell.baseline:
            group = (cell.source, cell.table, cell.group)
            before, position = self._baselines.setdefault(group, (line, cell.position))
            with _at(self._name, line, "baseline"):
                if position != cell.position:
                    raise ValueError(
                        f"{cell.table} has another baseline in line {before}: leave one, or make two groups"
                    )


@contextmanager
def _at(name: str, line: int, column: str) -> Iterator[None]:
    """Begin errors with their place in the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}, line {line}, column {column}: {error}") from None


def _check_text(text: str, column: str) -> None:
    if not text and column in REQUIRED:
        raise ValueError("empty: a value is required")
    if column == "table" and text in _TAKEN:
        raise ValueError(f"{text!r} is reserved for own runs: choose another name")
    if len(text) > _LONGEST:
        raise ValueError(f"too long: {len(text):,} characters, expected at most {_LONGEST:,}")
    if not text.isprintable():
        raise ValueError("contains a line break or another unprintable character: remove it")


def _value(texts: Mapping[str, str], unit: Any) -> float:
    """Parse a given value, and check that the printed text can stand for it."""
    try:
        value = float(texts["value"])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{texts['value'][:40]!r} is not a number: leave it out")
    may = printed_interval(texts["printed"], unit)
    if not may.low - _TOLERANCE <= Fraction(value) <= may.high + _TOLERANCE:
        raise ValueError(
            f"{texts['value']} is not what is printed: {texts['printed']!r} in {unit} is "
            f"{float(may.low):g} to {float(may.high):g}"
        )
    return value


def _flag(text: str) -> bool:
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise ValueError(f"{text!r} is neither yes nor no: expected yes, or nothing")


def _text(value: Any) -> str:
    """Write a value as the file has it."""
    if isinstance(value, bool):
        return "yes" if value else ""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


assert set(COLUMNS) == {field.name for field in fields(PublishedCell)}


# ---- frames and stores

_RENAMED = {"table": "table_name", "group": "group_name"}
"""Columns whose names mean something else in SQL."""


def read(store: str | Snapshot, source: str | None = None, table: str | None = None) -> pd.DataFrame:
    """Read the published cells of a store as a frame.

    Args:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        source: Of this source alone.
        table: Of tables of this name alone.

    Returns:
        One row a cell, as of `frame`; none where nothing was imported.

    Raises:
        FileNotFoundError: The URL names a SQLite file that does not exist.
        ValueError: What is there is no results store.
    """
    return frame(stored(store, source, table))


@opens_store
def stored(store: Snapshot, source: str | None = None, table: str | None = None) -> list[PublishedCell]:
    """Read the published cells of a store: by source, table and row, in the order of columns."""
    from sqlalchemy import text

    names = ", ".join(_RENAMED.get(column, column) for column in COLUMNS)
    rows = store.connection.execute(text(f"SELECT {names} FROM v_published")).fetchall()
    cells = []
    for row in rows:
        values = dict(zip(COLUMNS, row, strict=True))
        values |= {name: bool(values[name]) for name in _FLAGS}
        if (source is None or values["source"] == source) and (table is None or values["table"] == table):
            cells.append(PublishedCell(**values))
    # Not by ORDER BY: databases sort text in many ways.
    return sorted(cells, key=lambda cell: (cell.source, cell.table, cell.position, order(cell.quantity)))


def frame(cells: Iterable[PublishedCell]) -> pd.DataFrame:
    """Convert cells to a frame.

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
    """Convert a frame back to cells; other columns than those of `frame` are ignored."""
    rows = zip(*(frame[column].tolist() for column in COLUMNS), strict=True)
    return [PublishedCell(**dict(zip(COLUMNS, row, strict=True))) for row in rows]
