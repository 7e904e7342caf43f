"""Read runs from tables in CSV and Parquet files."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jestlab.platform.errors import UserError, nearest, shown
from jestlab.platform.exchange.source_run import (
    Report,
    SourceRun,
    curve,
    nested,
    raise_error,
    read_or_report,
    whole_number,
)
from jestlab.platform.words import on_one_line

_PREFIX = "config."
_REPLACED = "points that a later row of the same step replaced"
_MOST_CELLS = 50_000_000  # about 4 GB of numbers
_MOST_CELLS_OF_SMALL_FILES = 4_000_000
_SEPARATOR_LINE = re.compile(r'"?sep=([^\w"\r\n])"?\r?\n', re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?\s*")
_DIGITS_OF_NAME = re.compile(r"[+-]?0\d+")


@dataclass(frozen=True)
class _Table:
    """Columns of cells (None, truth values, numbers, text, or lists), and the line of each row."""

    path: Path
    kind: str
    columns: dict[str, list[Any]]
    lines: Sequence[int]

    def error(self, row: int, text: str) -> UserError:
        line = "line" if self.kind == "csv" else "row"
        return UserError(on_one_line(f"{self.path}, {line} {self.lines[row]}: {text}"))


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
    a row for each run, whose metrics are at step 0. The column `run`, or the given columns together, identify
    a run. Without them, a table with steps is one run, and the rows of a table without steps are numbered.

    Other columns are config or metrics. Config are columns named `config.x.y`, the given ones, and the seeds.
    If none are given, so are columns of text with the same cell in all rows of each run, and, in tables with
    steps, columns of numbers that differ only between runs. Text in metrics is counted in `left_out`.

    Args:
        path: The file.
        report: Receives the errors of runs that can't be read.
        run: Columns that identify a run; several are also config.
        step: Column of steps.
        config: Columns of the config.
        source: Name of the table in the origins of its runs; None for the name of the file.
        seed: Column of seeds.

    Raises:
        UserError: The file isn't such a table, or a column is missing.
    """
    table = _read(path, run or ("run",), (*run, *config, step, seed, "run"))
    for name in (*run, *config, *([step] if step != "step" else [])):
        if name not in table.columns:
            raise UserError(on_one_line(f"{path}: no column {name}: {nearest(name, table.columns)}"))
    identifiers = [*run] or (["run"] if "run" in table.columns else [])
    has_steps = step in table.columns
    rows: dict[tuple[str, ...], list[int]] = {}
    for row in range(len(table.lines)):
        key = tuple(table.columns[name][row] for name in identifiers)
        if None in key:
            raise table.error(row, "the name of the run is empty")
        rows.setdefault(key or (path.stem if has_steps else str(row + 1),), []).append(row)
    if not has_steps and (again := [mine[1] for mine in rows.values() if len(mine) > 1]):
        remedy = "name the column of steps with --step, or more columns that identify a run with --run"
        raise table.error(again[0], f"a second row of a run, but the table has no column of steps: {remedy}")
    others = [name for name in table.columns if name not in identifiers and not (has_steps and name == step)]
    keys = {
        name: name.removeprefix(_PREFIX)
        for name in others
        if name in (*config, seed)
        or name.startswith(_PREFIX)
        or (not config and _is_config(table.columns[name], [*rows.values()], has_steps))
    }
    if len({*keys.values()}) < len(keys):
        twice = Counter(keys.values()).most_common(1)[0][0]
        raise UserError(on_one_line(f"{path}: two columns for the config key {twice}: rename one"))
    if not (identifiers or has_steps or keys) and len(rows) > 1:
        raise UserError(f"{path}: no column step or run: name it with --step COLUMN or --run COLUMNS")
    metrics = [name for name in sorted(others) if name not in keys]
    if not any(_is_number(cell) for name in metrics for cell in table.columns[name]):
        raise UserError(f"{path}: no metrics: expected columns of numbers that aren't config")
    for key, mine in rows.items():
        name, origin, values = key[0], key[0], {}
        if len(key) > 1:
            # Quoted, so that ("a/b", "c") and ("a", "b/c") are different runs.
            origin = "/".join(quote(part, safe="") for part in key)
            parts = [repr(part) if ", " in part else part for part in key]
            name = ", ".join(f"{column}={part}" for column, part in zip(identifiers, parts, strict=True))
            values = {column: parse_cell(part) for column, part in zip(identifiers, key, strict=True)}
        steps = step if has_steps else None
        read_run = partial(_read_run, table, mine, steps, keys, metrics, bool(identifiers))
        if (parts_of_run := read_or_report(report, path, read_run)) is not None:
            own, curves, left_out = parts_of_run
            origin = f"{table.kind}:{source or path.name}#{origin}"
            yield SourceRun(origin, name, nested(own | values), curves, "COMPLETED", left_out=left_out)


def _read_run(
    table: _Table, rows: list[int], step: str | None, keys: dict[str, str], metrics: list[str], is_named: bool
) -> tuple[dict[str, Any], dict[str, Any], Counter[str]]:
    """Return the config of the run in some rows, its curves, and descriptions of data that was left out."""
    steps = dict.fromkeys(rows, 0)
    if step is not None:
        for row in rows:
            cell = table.columns[step][row]
            try:
                # Text with a point may be a thousand, 1.000.
                steps[row] = whole_number(None if isinstance(cell, str) and "." in cell else cell)
            except ValueError:
                raise table.error(row, f"invalid {step} {shown(cell)}: expected a whole number") from None
        if not is_named and len({*steps.values()}) < len(steps):
            twice = Counter(steps.values()).most_common(1)[0][0]
            remedy = "name the columns that identify a run with --run"
            raise UserError(f"{table.path}: several rows have the step {twice}: {remedy}")
    config = {}
    for name, key in keys.items():
        cells = {row: table.columns[name][row] for row in rows if table.columns[name][row] is not None}
        if other := [row for row, cell in cells.items() if not _same(next(iter(cells.values())), cell)]:
            remedy = "name the columns that identify a run with --run, or other columns with --config"
            raise table.error(other[0], f"column {name} has different values in one run: {remedy}")
        if cells:
            config[key] = next(iter(cells.values()))
    curves, left_out = {}, Counter[str]()
    for name in metrics:
        cells = {row: table.columns[name][row] for row in rows if table.columns[name][row] is not None}
        if texts := sum(not _is_number(cell) for cell in cells.values()):
            # The same example for all runs, so that the command can add up the numbers.
            example = next(c for c in table.columns[name] if c is not None and not _is_number(c))
            reason = f"cells of column {name} that aren't numbers, such as {shown(example)}"
            left_out[on_one_line(reason)] = texts
        points = [(steps[row], float(cell)) for row, cell in cells.items() if _is_number(cell)]
        if points:
            curves[name] = curve(*zip(*points, strict=True))
            left_out[_REPLACED] += len(points) - len(curves[name][0])
    return config, curves, +left_out


def _is_config(cells: Sequence[Any], runs: Sequence[Sequence[int]], has_steps: bool) -> bool:
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
    both_nan = one != one and other != other
    return both_nan or bool(one == other and isinstance(one, bool) == isinstance(other, bool))


# ---- files


def _read(path: Path, texts: Collection[str], wanted: Sequence[str]) -> _Table:
    """Read a table. Columns in `texts` stay text; names in `wanted` match in another case."""
    if not path.is_file():
        raise UserError(f"{path}: no such file: expected a table in CSV or Parquet")
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    names, columns, lines = (_read_parquet if is_parquet else _read_csv)(path)
    names = [name.strip() for name in names]
    lower = {name.lower(): name for name in reversed(wanted) if name not in names}
    names = [name if name in wanted else lower.get(name.lower(), name) for name in names]
    if bad := [name for name in names if not name or names.count(name) > 1]:
        raise UserError(on_one_line(f"{path}: column {bad[0]!r} has no name or is there twice: rename it"))
    table = _Table(path, "parquet" if is_parquet else "csv", dict(zip(names, columns, strict=True)), lines)
    if not is_parquet:
        _parse_columns(table.columns, texts)
    for name in table.columns.keys() & texts:
        table.columns[name] = [None if cell in (None, "") else str(cell) for cell in table.columns[name]]
    return table


def _read_csv(path: Path) -> tuple[list[str], list[list[Any]], Sequence[int]]:
    """Return the names of the columns, the text of their cells, and the line of each row."""
    rows, lines = list[list[str]](), list[int]()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(1 << 16)
            if marked := _SEPARATOR_LINE.fullmatch(first):
                delimiter = marked[1]
            else:
                delimiter = max(";\t|,", key=first.count)
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
                    lines.append(reader.line_num + bool(marked))
                    _check_size(path, len(rows) * len(names))
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not valid UTF-8 ({error.reason}): write the table again in UTF-8"
        ) from error
    except csv.Error as error:
        line = reader.line_num + bool(marked)
        raise UserError(on_one_line(f"{path}, line {line}: not valid CSV ({error})")) from error
    return names, [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names], lines


def _parse_columns(columns: dict[str, list[Any]], texts: Collection[str]) -> None:
    """Parse the cells of a CSV file. In a file with decimal commas, points may separate thousands."""
    others = {name: cells for name, cells in columns.items() if name not in texts}
    has_commas = any(
        _DECIMAL_COMMA.fullmatch(cell) for cells in others.values() for cell in cells if "," in cell
    )
    for cells in others.values():
        pointed = [cell for cell in cells if has_commas and "." in cell]
        if not pointed or not all(map(_THOUSANDS.fullmatch, pointed)):
            cells[:] = map(parse_cell, cells)
        else:
            cells[:] = [cell or None for cell in cells]


def parse_cell(text: str) -> Any:
    """Return the value of a cell: None if it is empty, a truth value, a number, or the text."""
    stripped = text.strip()
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    # Python reads numbers of other scripts and with underscores; a name may have leading zeros.
    if stripped.isascii() and "_" not in stripped and not _DIGITS_OF_NAME.fullmatch(stripped):
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
        # A text that a small file contains once may be in each of a million rows: read a few rows at a time.
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
    return parse_cell(str(cell))  # decimals, times


def _check_size(path: Path, cells: int, sum_bytes: int = 0) -> None:
    most = min(_MOST_CELLS, max(_MOST_CELLS_OF_SMALL_FILES, 8 * path.stat().st_size))
    if cells > most or sum_bytes > 64 * most:
        size = f"{most / 1e6:.0f} million cells, or {most / 16e6:.1f} GB of text"
        raise UserError(f"{path}: more than {size}: split the table by runs, or leave out columns")
