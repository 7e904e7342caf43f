"""Read runs from tables in CSV and Parquet files."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jestlab.platform.errors import UserError, nearest, shown
from jestlab.platform.exchange.source_run import (
    Report,
    SourceRun,
    curves,
    nested,
    raise_error,
    report_errors,
    whole_number,
)
from jestlab.platform.words import on_one_line

_CONFIG_PREFIX = "config."
_REPLACED = "points that a later row of the same step replaced"
_MOST_CELLS = 50_000_000  # about 4 GB of numbers
_MOST_CELLS_OF_SMALL_FILES = 4_000_000
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?\s*")
_LEADING_ZEROS = re.compile(r"[+-]?0\d+")


@dataclass(frozen=True)
class _Table:
    """Columns of cells (None, truth values, numbers, text, or lists), and the line of each row."""

    path: Path
    kind: str
    columns: dict[str, list[Any]]
    lines: Sequence[int]

    def error(self, text: str, row: int | None = None) -> UserError:
        line = "" if row is None else f", {'line' if self.kind == 'csv' else 'row'} {self.lines[row]}"
        return UserError(on_one_line(f"{self.path}{line}: {text}"))

    def cells(self, name: str, rows: Sequence[int]) -> list[tuple[int, Any]]:
        """Return (row, cell) for each nonempty cell of a column in some rows."""
        column = self.columns[name]
        return [(row, column[row]) for row in rows if column[row] is not None]


def read(
    path: Path,
    report: Report = raise_error,
    run: Sequence[str] = (),
    step: str = "step",
    config: Sequence[str] = (),
    source: str | None = None,
    seed: str = "seed",
) -> Iterator[SourceRun]:
    """Yield the runs in a table.

    A table with the column `step` has a row for each step of each run, in any order. A table without it has
    a row for each run, whose metrics are at step 0. The columns in `run`, by default "run", identify a run.
    If they are missing, a table with steps is one run, and the rows of a table without steps are numbered.

    Other columns are config or metrics. Config columns are those named `config.x.y`, those in `config`, and
    the seed column. If `config` is empty, these are config columns, too: columns that are mostly text or
    true/false (in tables with steps, only if constant within each run), and, in tables with steps, numeric
    columns that are constant within each run but differ between runs. Cells of metric columns that aren't
    numbers are counted in `left_out`.

    Args:
        path: The file.
        report: Receives the errors of runs that can't be read.
        run: Columns that identify a run; if more than one, each is also added to the config.
        step: Column of steps.
        config: Columns of the config.
        source: Name of the table in the origins of its runs; None for the name of the file.
        seed: Column of seeds.

    Raises:
        UserError: The file isn't a table in CSV or Parquet, or a column is missing.
    """
    table = _read(path, run or ("run",), (*run, *config, step, seed, "run"))
    columns = table.columns
    for name in (*run, *config, *([step] if step != "step" else [])):
        if name not in columns:
            raise table.error(f"no column {name}: {nearest(name, columns)}")
    identifiers = [*run] or (["run"] if "run" in columns else [])
    step_column = step if step in columns else ""  # empty for a table without steps
    runs: dict[tuple[str, ...], list[int]] = {}
    for row in range(len(table.lines)):
        key = tuple(columns[name][row] for name in identifiers)
        if None in key:
            raise table.error("the name of the run is empty", row)
        runs.setdefault(key or (path.stem if step_column else str(row + 1),), []).append(row)
    if not step_column and (again := [rows[1] for rows in runs.values() if len(rows) > 1]):
        remedy = "name the column of steps with --step, or more columns that identify a run with --run"
        raise table.error(f"a second row of a run, but the table has no column of steps: {remedy}", again[0])
    others = sorted(name for name in columns if name not in (*identifiers, step_column))
    keys = {
        name: name.removeprefix(_CONFIG_PREFIX)
        for name in others
        if name in (*config, seed)
        or name.startswith(_CONFIG_PREFIX)
        or (not config and _is_config(columns[name], [*runs.values()], bool(step_column)))
    }
    if len({*keys.values()}) < len(keys):
        twice = Counter(keys.values()).most_common(1)[0][0]
        raise table.error(f"two columns for the config key {twice}: rename one")
    if not (identifiers or step_column or keys) and len(runs) > 1:
        raise table.error("no column step or run: name it with --step COLUMN or --run COLUMNS")
    metrics = [name for name in others if name not in keys]
    if not any(_is_number(cell) for name in metrics for cell in columns[name]):
        raise table.error("no metrics: expected columns of numbers that aren't config")
    for key, rows in runs.items():
        name = place = key[0]
        identity = dict(zip(identifiers, key, strict=True)) if identifiers else {}
        if len(key) > 1:
            # Quoted, so that ("a/b", "c") and ("a", "b/c") are different runs.
            place = "/".join(quote(part, safe="") for part in key)
            name = ", ".join(f"{column}={part}" for column, part in identity.items())
        origin = f"{table.kind}:{source or path.name}#{place}"
        with report_errors(report, path):
            parts = _read_run(table, rows, identity, step_column, keys, metrics)
            yield SourceRun(origin, name, state="COMPLETED", **parts)


def _read_run(
    table: _Table,
    rows: list[int],
    identity: Mapping[str, str],
    step_column: str,
    keys: Mapping[str, str],
    metrics: Sequence[str],
) -> dict[str, Any]:
    """Read the config and curves of a run from its rows, and count the cells that were left out."""
    step_of_row = dict.fromkeys(rows, 0)
    for row in rows if step_column else ():
        cell = table.columns[step_column][row]
        try:
            # In a file with decimal commas, "1.000" may mean one thousand: reject it.
            step_of_row[row] = whole_number(None if isinstance(cell, str) and "." in cell else cell)
        except ValueError:
            raise table.error(f"invalid {step_column} {shown(cell)}: expected a whole number", row) from None
    if step_column and not identity and len({*step_of_row.values()}) < len(rows):
        twice = Counter(step_of_row.values()).most_common(1)[0][0]
        remedy = "name the columns that identify a run with --run"
        raise table.error(f"several rows have the step {twice}: {remedy}")
    config = dict[str, Any]()
    for name, key in keys.items():
        for row, cell in table.cells(name, rows):
            if not _same(config.setdefault(key, cell), cell):
                remedy = "name the columns that identify a run with --run, or other columns with --config"
                raise table.error(f"column {name} has different values in one run: {remedy}", row)
    if len(identity) > 1:
        config |= {column: parse_cell(part) for column, part in identity.items()}
    left_out, points = Counter[str](), []
    for name in metrics:
        for row, cell in table.cells(name, rows):
            if _is_number(cell):
                points.append((name, step_of_row[row], float(cell)))
            else:
                left_out[on_one_line(f"cells of column {name} that aren't numbers")] += 1
    read_curves = curves(points)
    left_out[_REPLACED] = len(points) - sum(len(curve[0]) for curve in read_curves.values())
    return {"config": nested(config), "metrics": read_curves, "left_out": +left_out}


def _is_config(cells: Sequence[Any], runs: Sequence[Sequence[int]], has_steps: bool) -> bool:
    """Return whether a column that the user didn't name is config rather than a metric; see `read`."""
    filled = [cell for cell in cells if cell is not None]
    is_text = sum(isinstance(cell, bool) or not _is_number(cell) for cell in filled) * 2 > len(filled)
    if not has_steps:
        return is_text
    groups = [[cells[row] for row in rows] for rows in runs]
    groups = [group for group in groups if any(cell is not None for cell in group)]
    if not all(_same(group[0], cell) for group in groups for cell in group):
        return False
    differs = any(group[0] != groups[0][0] for group in groups)
    return is_text or (differs and any(len(group) > 1 for group in groups))


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float)


def _same(one: Any, other: Any) -> bool:
    """Return whether two cells are equal. NaN equals NaN, but true doesn't equal 1."""
    both_nan = one != one and other != other
    return both_nan or bool(one == other and isinstance(one, bool) == isinstance(other, bool))


# ---- files


def _read(path: Path, text_columns: Collection[str], known_columns: Sequence[str]) -> _Table:
    """Read a table.

    Keep columns in `text_columns` as text. Match names in `known_columns` case-insensitively if there is no
    exact match.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file: expected a table in CSV or Parquet")
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    names, columns, lines = (_read_parquet if is_parquet else _read_csv)(path)
    names = [name.strip() for name in names]
    lower = {name.lower(): name for name in reversed(known_columns) if name not in names}
    names = [name if name in known_columns else lower.get(name.lower(), name) for name in names]
    table = _Table(path, "parquet" if is_parquet else "csv", dict(zip(names, columns, strict=True)), lines)
    if bad := [name for name in names if not name or names.count(name) > 1]:
        raise table.error(f"column {bad[0]!r} is unnamed or duplicated: rename it")
    others = [cells for name, cells in table.columns.items() if name not in text_columns and not is_parquet]
    # In a file with decimal commas, points may separate thousands: keep cells such as 1.000 as text.
    has_commas = any(_DECIMAL_COMMA.fullmatch(cell) for cells in others for cell in cells)
    for cells in others:
        cells[:] = [cell if has_commas and _THOUSANDS.fullmatch(cell) else parse_cell(cell) for cell in cells]
    for name in table.columns.keys() & text_columns:
        table.columns[name] = [None if cell in (None, "") else str(cell) for cell in table.columns[name]]
    return table


def _read_csv(path: Path) -> tuple[list[str], list[list[Any]], Sequence[int]]:
    """Return the names of the columns, the text of their cells, and the line of each row."""
    rows, lines = list[list[str]](), list[int]()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = max(";\t|,", key=file.readline(1 << 16).count)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
            names = next(reader, [])
            while names and not names[-1].strip():
                names.pop()  # a delimiter at the end of each line
            if len(names) < 2:
                raise UserError(
                    f"{path}: one column: expected commas, semicolons, tabs, or bars between cells"
                )
            for row in reader:
                if any(map(str.strip, row)):
                    if len(row) < len(names) or any(map(str.strip, row[len(names) :])):
                        raise csv.Error(f"{len(row)} cells instead of {len(names)}")
                    rows.append(row[: len(names)])
                    lines.append(reader.line_num)
                    _check_size(path, len(rows) * len(names))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid UTF-8 ({error.reason}): write it again in UTF-8") from error
    except csv.Error as error:
        raise UserError(on_one_line(f"{path}, line {reader.line_num}: not valid CSV ({error})")) from error
    return names, [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names], lines


def parse_cell(text: str) -> Any:
    """Return the value of a cell: None if it is empty, a truth value, a number, or the text."""
    stripped = text.strip()
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    # `int` and `float` also accept non-ASCII digits and underscores, and leading zeros usually mean an
    # identifier. Keep all of these as text.
    if stripped.isascii() and "_" not in stripped and not _LEADING_ZEROS.fullmatch(stripped):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(stripped)
    return text if stripped else None


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]], Sequence[int]]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        cells = file.metadata.num_rows * file.metadata.num_columns
        _check_size(path, cells)
        batches, sum_bytes = list[pyarrow.RecordBatch](), 0
        # A small file can expand to a lot of text, repeated in each row: check after every few rows.
        for batch in file.iter_batches(256):
            batches.append(batch)
            sum_bytes += batch.nbytes
            _check_size(path, cells, sum_bytes)
        table = pyarrow.Table.from_batches(batches, file.schema_arrow)
        while any(pyarrow.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        names = [name for name in table.column_names if not name.startswith("__index_level_")]
        columns = [[_plain(cell) for cell in table.column(name).to_pylist()] for name in names]
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise UserError(on_one_line(f"{path}: not valid Parquet ({error})")) from error
    return names, columns, range(1, table.num_rows + 1)


def _plain(cell: Any) -> Any:
    if cell is None or isinstance(cell, bool | int | float | str):
        return cell
    if isinstance(cell, list):
        return [_plain(one) for one in cell]
    if isinstance(cell, bytes):
        return cell.decode(errors="backslashreplace")
    return parse_cell(str(cell))  # such as a decimal number or a time


def _check_size(path: Path, cells: int, sum_bytes: int = 0) -> None:
    """Raise UserError if a table has more cells or bytes than fit in memory."""
    most = min(_MOST_CELLS, max(_MOST_CELLS_OF_SMALL_FILES, 8 * path.stat().st_size))
    if cells > most or sum_bytes > 64 * most:
        size = f"{most / 1e6:.0f} million cells, or {most / 16e6:.1f} GB of text"
        raise UserError(f"{path}: more than {size}: split the table by runs, or leave out columns")
