"""Tables in CSV and Parquet files, as columns of cells that know their place in the file."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from jestlab.platform.errors import UserError, shown
from jestlab.platform.words import on_one_line

# A number that begins with zeros is rather a name: 007.
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(
    r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
_NAME = re.compile(r"[+-]?0[0-9]+")
_LOCAL_NUMBER = re.compile(
    r"""
    \s* [+−-]? (
        [1-9][0-9]{0,2} ([.'’\s][0-9]{3})+ ([.,][0-9]+)?  # groups of thousands: 1.234 in many countries
        | \d* [,٫] \d+ ([eE][+-]?[0-9]+)?                 # a decimal comma
        | [0-9.]+ (?=\s*%)                                # a percentage
        | ((?<=−) | (?=.*[^\ -~])) \d+ (\.\d+)?           # a Unicode minus, or digits of other scripts
    ) \s* %? \s*
    """,
    re.VERBOSE,
)
"""A number as people or spreadsheets write it, which `float` doesn't read, or reads as another one."""
_SEPARATOR = re.compile(r'"?sep=([^\w"\r\n])"?\r?\n', re.IGNORECASE)
_TRUTH = {"True": True, "true": True, "TRUE": True, "False": False, "false": False, "FALSE": False}


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        path: Its file.
        kind: Format of the file.
        columns: Name → cells: None where there is none, else a truth value, a number, a text, or a list.
            Those of columns of names are texts.
        lines: Line of the file on which each row ends (CSV), or the row's number from 1 (Parquet).
    """

    path: Path
    kind: Literal["csv", "parquet"]
    columns: dict[str, list[Any]]
    lines: Sequence[int]

    def place(self, row: int, column: str) -> str:
        """Name a cell in the words of an error."""
        line = "line" if self.kind == "csv" else "row"
        return on_one_line(f"{self.path}, {line} {self.lines[row]}, column {column}")


def table(path: Path, texts: Collection[str], wanted: Collection[str]) -> Table:
    """Read the table in a file: Parquet, or CSV whose cells commas, semicolons, tabs or bars separate.

    Args:
        path: The file.
        texts: Columns of names: their cells are texts as they are written, even if they look like numbers.
        wanted: Names of columns, which the table may have in another case, and with white space around them.

    Raises:
        UserError: The file is missing, or not such a table.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file: expected a table in CSV or Parquet")
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    return (_parquet if is_parquet else _csv)(path, texts, wanted)


def _csv(path: Path, texts: Collection[str], wanted: Collection[str]) -> Table:
    lines: list[int] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            marked = _SEPARATOR.match(head := file.read(_HEAD))
            delimiter = marked[1] if marked else _delimiter(head)
            is_spaced = f'{delimiter} "' in head.partition("\n")[0]
            reader = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=is_spaced)
            file.seek(0)
            if marked:
                next(reader)
            names = _names(path, next(reader, []), wanted)
            if len(names) == 1:
                expected = "commas, semicolons, tabs or bars between cells, or a first line such as sep=^"
                raise UserError(on_one_line(f"{path}: one column, {shown(names[0])}: expected {expected}"))
            cells: list[list[Any]] = [[] for _ in names]
            for row in reader:
                if not any(map(str.strip, row)):
                    continue
                if len(row) < len(names) or any(map(str.strip, row[len(names) :])):
                    raise UserError(
                        f"{path}, line {reader.line_num}: {len(row)} cells: expected {len(names)}, "
                        "as many as the first line has names"
                    )
                lines.append(reader.line_num)
                _check_size(path, len(lines) * len(names))
                for column, cell in zip(cells, row, strict=False):
                    column.append(cell)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid UTF-8 ({error.reason}): write it again in UTF-8") from error
    except csv.Error as error:
        line = f"{path}, line {max(reader.line_num, 1)}"
        raise UserError(on_one_line(f"{line}: not valid CSV ({error}): correct the line")) from error
    with_commas = (cell for column in cells for cell in column if "," in cell)
    has_commas = delimiter != "," and any(map(_LOCAL_NUMBER.fullmatch, with_commas))
    for name, column in zip(names, cells, strict=True):
        pointed = [cell.strip() for cell in column if has_commas and "." in cell]
        is_text = name in texts or (pointed and all(map(_LOCAL_NUMBER.fullmatch, pointed)))
        column[:] = [cell or None for cell in column] if is_text else map(parsed, column)
    return Table(path, "csv", dict(zip(names, cells, strict=True)), lines)


_HEAD = 1 << 16
_ROWS_AT_ONCE = 256


def _delimiter(head: str) -> str:
    """Return what divides the first lines evenly into most cells, and numbers; a comma if nothing does."""
    lines, found = head.splitlines(keepends=True), {}
    for delimiter in ",;\t|":
        # The last line may have been cut.
        reader = csv.reader(lines if len(head) < _HEAD else lines[:-1] or lines, delimiter=delimiter)
        with suppress(csv.Error):
            rows = [row for row in islice(reader, 100) if row]
            widths = [len(row) for row in rows]
            numbers = sum(is_number(parsed(cell)) for row in rows for cell in row)
            found[delimiter] = (len({*widths}) == 1 and widths[0] > 1, *widths[:1], numbers)
    return max(found, key=lambda delimiter: found[delimiter], default=",")


def parsed(cell: str) -> Any:
    """Return what the text of a cell stands for."""
    text = cell.strip()
    if not text:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _WHOLE.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    if _NUMBER.fullmatch(text) and not _NAME.fullmatch(text):
        return float(text)
    return cell


def is_number(cell: Any) -> bool:
    """Whether a cell is a number, or a text that is one as people or spreadsheets write it."""
    if isinstance(cell, str):
        return _LOCAL_NUMBER.fullmatch(cell) is not None
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _parquet(path: Path, texts: Collection[str], wanted: Collection[str]) -> Table:
    import pyarrow
    import pyarrow.parquet

    sum_bytes = 0
    try:
        file = pyarrow.parquet.ParquetFile(path)
        # NOTE: metadata of columns is left alone: where that is damaged, pyarrow ends the process.
        cells = file.metadata.num_rows * file.metadata.num_columns
        _check_size(path, cells)
        batches: list[pyarrow.RecordBatch] = []
        # A few rows at once: a text that a small file has once may stand in each of a million rows.
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            batches.append(batch)
            _check_size(path, cells, sum_bytes := sum_bytes + batch.nbytes)
        read = pyarrow.Table.from_batches(batches, file.schema_arrow)
        while any(pyarrow.types.is_struct(field.type) for field in read.schema):
            read = read.flatten()
        written = [name for name in read.column_names if not name.startswith("__index_level_")]
        names = zip(_names(path, written, wanted), written, strict=True)
        columns = {name: [_plain(cell) for cell in read.column(own).to_pylist()] for name, own in names}
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise UserError(on_one_line(f"{path}: not valid Parquet ({error}): write the table again")) from error
    for name in columns.keys() & texts:
        columns[name] = [None if cell is None else str(cell) for cell in columns[name]]
    return Table(path, "parquet", columns, range(1, read.num_rows + 1))


def _plain(cell: Any) -> Any:
    if cell is None or isinstance(cell, bool | int | float | str):
        return cell
    if isinstance(cell, Decimal):
        return float(cell)
    if isinstance(cell, bytes):  # a text, as some writers have them
        return cell.decode(errors="backslashreplace")
    if isinstance(cell, list):
        return [_plain(one) for one in cell]
    return str(cell)


_MOST_CELLS = 50_000_000
"""Of a table, which is in memory as a whole: about 4 GB of numbers."""

_ALWAYS = 4_000_000
"""Cells that any table may have; beyond that a file has to be as large as to hold them."""


def _check_size(path: Path, cells: int, held: int = 0) -> None:
    """Check the number of cells, and the bytes that they take."""
    most = min(_MOST_CELLS, max(_ALWAYS, 8 * path.stat().st_size))
    if cells > most or held > 64 * most:
        raise UserError(
            f"{path}: more than {most / 1e6:.0f} million cells, or {most / 16e6:.1f} GB of texts: "
            "split it by runs, or leave columns out"
        )


def _names(path: Path, written: Sequence[str], wanted: Collection[str]) -> list[str]:
    """Check the names of columns; return them without white space around them, in the case that is wanted."""
    stripped = [name.strip() for name in written]
    while stripped[-1:] == [""]:  # a separator at the end of each line
        stripped.pop()
    if not stripped:
        raise UserError(f"{path}: an empty file: expected the names of columns in the first line")
    others = {name.lower(): name for name in wanted if name not in stripped}
    names = dict[str, None]()
    for index, name in enumerate(
        name if name in wanted else others.get(name.lower(), name) for name in stripped
    ):
        if not name:
            raise UserError(f"{path}: column {index + 1} has no name: write one in the first line")
        if name in names:
            raise UserError(on_one_line(f"{path}: two columns are named {name}: rename one of them"))
        names[name] = None
    return [*names]
