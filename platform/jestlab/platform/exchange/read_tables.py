"""Read runs from tables in CSV and Parquet files."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from jestlab.platform.errors import UserError, nearest, shown
from jestlab.platform.exchange.source_run import (
    AdoptOptions,
    MetricLog,
    Report,
    SourceRun,
    nested,
    report_errors,
    whole_number,
)
from jestlab.platform.words import listed, on_one_line

_CONFIG_PREFIX = "config."
_MOST_BYTES = 1 << 29  # of a table in memory; as Python objects it takes several times as much
_MOST_BYTES_OF_SMALL_FILES = 1 << 25
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?\s*")
_LEADING_ZEROS = re.compile(r"[+-]?0\d+")


def read(path: Path, report: Report, options: AdoptOptions) -> Iterator[SourceRun]:
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
        options: Columns of the table; if several identify a run, each is also added to the config. `source`
            is the name of the table in the origins of its runs, by default that of the file.

    Raises:
        UserError: The file isn't a table in CSV or Parquet, or a column is missing.
    """
    run, config = listed(options.run or ""), listed(options.config or "")
    step, seed = options.step, options.seed
    kind, table = _load(path, run or ("run",), (*run, *config, step, seed, "run"))
    for name in (*run, *config, *([step] if step != "step" else [])):
        if name not in table:
            raise UserError(f"{path}: no column {name}: {nearest(name, table.columns)}")
    has_steps, is_named = step in table, bool(run) or "run" in table
    if not has_steps:
        table[step] = 0
    if not is_named:
        table["run"] = path.stem if has_steps else [*map(str, range(1, len(table) + 1))]
    identifiers = [*run] or ["run"]
    if not (empty := table[table[identifiers].isna().any(axis=1)]).empty:
        raise _error(path, empty.index[0], "the name of the run is empty")
    places = table[[*identifiers, step]].map(lambda cell: str(cell) if isinstance(cell, list) else cell)
    if not (has_steps and is_named) and any(again := places.duplicated()):
        remedy = "name the column of steps with --step, or the columns that identify a run with --run"
        raise _error(path, again.idxmax(), f"a second row of a run at the same step: {remedy}")
    parts = table.groupby(identifiers, sort=False)
    runs = parts.ngroup().to_dict()
    others = sorted(set(table.columns) - {*identifiers, step})
    keys = {
        name: name.removeprefix(_CONFIG_PREFIX)
        for name in others
        if name in (*config, seed)
        or name.startswith(_CONFIG_PREFIX)
        or (not config and _is_config(table[name], runs, has_steps))
    }
    if not (is_named or has_steps or keys) and len(table) > 1:
        raise UserError(f"{path}: no column step or run: name it with --step COLUMN or --run COLUMNS")
    metrics = [name for name in others if name not in keys]
    if not any(_is_number(cell) for name in metrics for cell in table[name]):
        raise UserError(f"{path}: no metrics: expected columns of numbers that aren't config")
    for cells, rows in parts:
        key = [*map(str, cells)]
        name = place = key[0]
        if len(key) > 1:
            # Quoted, so that ("a/b", "c") and ("a", "b/c") are different runs.
            place = "/".join(quote(part, safe="") for part in key)
            name = ", ".join(f"{column}={part}" for column, part in zip(identifiers, key, strict=True))
        with report_errors(report, path):
            values = _read_config(path, rows, keys)
            if len(key) > 1:
                values |= {column: parse_cell(part) for column, part in zip(identifiers, key, strict=True)}
            log = _read_metrics(path, rows, step, metrics)
            origin = f"{kind}:{options.source or path.name}#{place}"
            yield SourceRun(origin, name, nested(values), log.curves(), "COMPLETED", left_out=log.left_out)


def _error(path: Path, line: Any, text: str) -> UserError:
    return UserError(on_one_line(f"{path}, line {line}: {text}"))


def _cells(column: pd.Series[Any]) -> list[tuple[Any, Any]]:
    """Return (line, cell) for each nonempty cell of a column; NaN isn't empty."""
    return [(line, cell) for line, cell in column.items() if cell is not None]


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float)


def _is_config(column: pd.Series[Any], runs: Mapping[Any, int], has_steps: bool) -> bool:
    """Return whether a column that the user didn't name is config rather than a metric; see `read`."""
    cells = dict(_cells(column))
    is_text = sum(isinstance(cell, bool) or not _is_number(cell) for cell in cells.values()) * 2 > len(cells)
    if not has_steps:
        return is_text
    values: dict[int, set[str]] = {}  # of each run, by number; as text, NaN equals NaN
    for line, cell in cells.items():
        values.setdefault(runs[line], set()).add(repr(cell))
    is_constant = all(len(each) == 1 for each in values.values())
    differs = len(set().union(*values.values())) > 1 and len(cells) > len(values)
    return is_constant and (is_text or differs)


def _read_config(path: Path, rows: pd.DataFrame, keys: Mapping[str, str]) -> dict[str, Any]:
    config = dict[str, Any]()
    for name, key in keys.items():
        for line, cell in _cells(rows[name]):
            if repr(config.setdefault(key, cell)) != repr(cell):
                remedy = "name the columns that identify a run with --run, or other columns with --config"
                raise _error(path, line, f"column {name} has different values in one run: {remedy}")
    return config


def _read_metrics(path: Path, rows: pd.DataFrame, step: str, metrics: Sequence[str]) -> MetricLog:
    steps = dict[Any, int]()
    for line, cell in rows[step].items():
        try:
            # In a file with decimal commas, "1.000" may mean one thousand: reject it.
            steps[line] = whole_number(None if isinstance(cell, str) and "." in cell else cell)
        except ValueError:
            raise _error(path, line, f"invalid {step} {shown(cell)}: expected a whole number") from None
    log = MetricLog()
    for name in metrics:
        for line, cell in _cells(rows[name]):
            if _is_number(cell):
                log.add(name, steps[line], float(cell))
            else:
                log.left_out[on_one_line(f"cells of column {name} that aren't numbers")] += 1
    return log


# ---- files

_Table = tuple[list[str], Sequence[Sequence[Any]], Sequence[int]]
"""Names of the columns, their cells, and the line of each row."""


def _load(path: Path, text_columns: Sequence[str], known: Sequence[str]) -> tuple[str, pd.DataFrame]:
    """Read a table, indexed by line: "csv" or "parquet", and the table.

    Cells are None, truth values, numbers, text, or lists. Columns in `text_columns` are text. Names in
    `known` match case-insensitively if there is no exact match.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file: expected a table in CSV or Parquet")
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    names, columns, lines = (_read_parquet if is_parquet else _read_csv)(path)
    names = [name.strip() for name in names]
    lower = {name.lower(): name for name in reversed(known) if name not in names}
    names = [name if name in known else lower.get(name.lower(), name) for name in names]
    if bad := [name for name in names if not name or names.count(name) > 1]:
        raise UserError(f"{path}: column {bad[0]!r} is unnamed or duplicated: rename it")
    others = [cells for name, cells in zip(names, columns, strict=True) if name not in text_columns]
    # In a file with decimal commas, points may separate thousands: keep cells such as 1.000 as text.
    has_commas = not is_parquet and any(_DECIMAL_COMMA.fullmatch(cell) for cells in others for cell in cells)

    def value(cell: Any) -> Any:
        is_text = is_parquet or (has_commas and _THOUSANDS.fullmatch(cell))
        return cell if is_text else parse_cell(cell)

    def text(cell: Any) -> str | None:
        return None if cell in (None, "") else str(cell)

    kinds: list[Callable[[Any], Any]] = [text if name in text_columns else value for name in names]
    cells = [[*map(kind, cells)] for kind, cells in zip(kinds, columns, strict=True)]
    rows = {name: pd.Series(each, pd.Index(lines), object) for name, each in zip(names, cells, strict=True)}
    return "parquet" if is_parquet else "csv", pd.DataFrame(rows)


def _check_size(path: Path, size: int, most: int = _MOST_BYTES) -> None:
    if size > most:
        raise UserError(
            f"{path}: more than {most / 1e6:.0f} MB in memory: split the table by runs, or leave out columns"
        )


def _read_csv(path: Path) -> _Table:
    _check_size(path, path.stat().st_size)
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
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid UTF-8 ({error.reason}): write it again in UTF-8") from error
    except csv.Error as error:
        raise _error(path, reader.line_num, f"not valid CSV ({error})") from error
    return names, [*zip(*rows, strict=True)] or [()] * len(names), lines


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


def _read_parquet(path: Path) -> _Table:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        batches, size = list[pyarrow.RecordBatch](), 0
        # A small file can expand to a lot of text, repeated in each row: check after every few rows.
        most = min(_MOST_BYTES, max(_MOST_BYTES_OF_SMALL_FILES, 64 * path.stat().st_size))
        for batch in file.iter_batches(256):
            batches.append(batch)
            size += max(batch.nbytes, 8 * batch.num_rows * batch.num_columns)
            _check_size(path, size, most)
        table = pyarrow.Table.from_batches(batches, file.schema_arrow)
        while any(pyarrow.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        names = [name for name in table.column_names if not name.startswith("__index_level_")]
        columns = [[_plain(cell) for cell in table.column(name).to_pylist()] for name in names]
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise UserError(on_one_line(f"{path}: not valid Parquet ({error})")) from error
    return names, columns, range(1, table.num_rows + 1)


def _plain(cell: Any) -> Any:
    """Convert a cell to None, a truth value, a number, text, or a list."""
    if isinstance(cell, bytes):
        return cell.decode(errors="backslashreplace")
    if isinstance(cell, bool | int | float | str | list | None):
        return cell
    return parse_cell(str(cell))  # such as a decimal number or a time
