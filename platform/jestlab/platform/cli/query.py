"""`jestlab query`: SQL over the results store, or rows of a view by a condition."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from jestlab.analysis import query
from jestlab.analysis.spreadsheets import csv_cell
from jestlab.platform.cli.options import json_option, lab_options, output_option, wide_option
from jestlab.platform.cli.output import default_format, print_or_write, print_or_write_blocks
from jestlab.platform.lab.lab import Lab
from jestlab.platform.render import ESSENTIAL, STATE_STYLES, USUAL, Table, in_state, markdown, table
from jestlab.platform.store.views import VIEWS
from jestlab.platform.words import listed, on_one_line

_EPILOG = """\
Conditions compare columns of the view and config keys with numbers, 'strings', true and false, by = != < <= >
>= in (…) like and is null, joined by and, or, not. tag is any tag of the run or of its
experiment; --columns tags shows them.

\b
Examples:
  jestlab query
  jestlab query --where "state = 'FAILED'" --columns label,seed,reason
  jestlab query --where "tag = 'keep'" --columns label,seed,tags
  jestlab query --view evaluations --where "selection.rule = 'joint'"
  jestlab query --columns label,seed,config.* -o runs.parquet
  jestlab query "SELECT state, COUNT(*) FROM v_runs GROUP BY 1" --json
"""

_ENDINGS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}

_OF_VIEWS = ("view", "column", "meaning")
_LONG, _BROAD = 60, 24  # letters: JSON and the like; a sentence
_IMPORTANCE = {
    "value": 90, "label": 85, "seed": 80, "state": 75, "name": 70, "step": 60, "number": 60, "text": 60,
    "reason": 55, "run": 30, "position": 5, "run_id": 5, "fingerprint": 45, "directory": 20,
}  # fmt: skip
"""Columns of views → what is left out last on a terminal, where others are of their size's importance."""

Rows = Sequence[Sequence[Any]]


@click.command(epilog=_EPILOG)
@click.argument("sql", required=False)
@click.option("--view", metavar="NAME", shell_complete=lambda *_: [name.removeprefix("v_") for name in VIEWS],
              help="View to read: runs, metrics, evaluations, …  [default: runs]")  # fmt: skip
@click.option("--where", metavar="CONDITION", help="Keep the rows that satisfy CONDITION.")
@click.option("--columns", metavar="A,B,…", help="Columns and config keys to show; config.* for all keys.")
@click.option("--order-by", metavar="A,B,…", help="Sort by columns or config keys; -A in descending order.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of rows.")
@click.option("--experiment", metavar="NAME", help="Keep only the rows of this experiment.")
@click.option("--format", "format_", type=click.Choice(["text", "md", "csv", "json", "parquet"]),
              help="Output format  [default: by the extension of --output, else text on a "
                   "terminal, else md]")  # fmt: skip
@output_option()
@wide_option
@json_option("The same as --format json.")
@lab_options
def query_command(
    sql: str | None,
    *,
    view: str | None,
    where: str | None,
    columns: str | None,
    order_by: str | None,
    limit: int | None,
    experiment: str | None,
    format_: str | None,
    as_json: bool,
    output: Path | None,
    lab: Lab,
) -> None:
    """Query the results store in SQL, or select rows of a view; without either, list views and their columns.

    Queries are read-only: the database itself refuses to write.
    """
    asked = [view, where, columns, order_by, limit, experiment]
    by_view = any(option is not None for option in asked)
    if sql is not None and by_view:
        raise click.UsageError("expected either SQL, or --view with --where and other options")
    form = (
        "json"
        if as_json
        else format_ or _ENDINGS.get(output.suffix if output else "", default_format(output))
    )
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("cannot print parquet to a terminal: give --output FILE, or pipe it")
    if by_view:
        found = query.select(
            lab.store_url, view or "runs", where, _names(columns), _names(order_by) or (), limit, experiment
        )
        headers, rows = found.columns, found.rows
    else:
        headers, rows = _views() if sql is None else _ask(lab, sql)
    if form == "text":
        print_or_write_blocks(output, [_text(headers, rows)])
    else:
        print_or_write(output, WRITERS[form](headers, rows))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else listed(text)


def _views() -> tuple[list[str], list[tuple[Any, ...]]]:
    """List all views with their columns."""
    rows: list[tuple[Any, ...]] = [
        (name, column, meaning) for name, view in VIEWS.items() for column, meaning in view.columns.items()
    ]
    return list(_OF_VIEWS), rows


def _ask(lab: Lab, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    found = query.ask(lab.store_url, sql)
    return found.columns, [tuple(map(_portable, row)) for row in found.rows]


def _portable(value: Any) -> Any:
    """Convert a value of PostgreSQL to what SQLite would return: exact numbers as numbers, times as text."""
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    return value


def _text(headers: Sequence[str], rows: Rows) -> Table:
    """Make a table for a terminal, in which long texts and JSON are left out before other columns."""
    cells = [[on_one_line(_cell(value)) for value in row] for row in rows]
    columns = list(zip(*cells, strict=True)) or [()] * len(headers)
    right = [
        number
        for number in range(len(headers))
        if rows and all(row[number] is None or isinstance(row[number], int | float) for row in rows)
    ]
    sizes = [max(map(len, column), default=0) for column in columns]
    importance = {
        header: ESSENTIAL
        if number == 0
        else _IMPORTANCE.get(header) or (10 if size > _LONG else 40 if size > _BROAD else USUAL)
        for number, (header, size) in enumerate(zip(headers, sizes, strict=True))
    }
    if tuple(headers) == _OF_VIEWS:
        importance = dict.fromkeys(headers, ESSENTIAL)
    named = [in_state(cell) if cell in STATE_STYLES else cell for row in cells for cell in row]
    width = max(len(headers), 1)
    return table(headers, [named[i : i + width] for i in range(0, len(named), width)], right, importance)


def _markdown(headers: Sequence[str], rows: Rows) -> str:
    return markdown(headers, [[_cell(value) for value in row] for row in rows])


def _cell(value: Any) -> str:
    """Write a value; nothing for NULL."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _csv(headers: Sequence[str], rows: Rows) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(csv_cell, row) for row in (headers, *rows))
    return text.getvalue()


def _json(headers: Sequence[str], rows: Rows) -> str:
    records = [dict(zip(headers, map(_plain, row), strict=True)) for row in rows]
    return json.dumps(records, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Convert a value to one that JSON has: infinities and times become text, bytes hexadecimal."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return value.hex() if isinstance(value, bytes) else value


def _parquet(headers: Sequence[str], rows: Rows) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    columns = list(zip(*rows, strict=True)) or [()] * len(headers)
    arrays = [_array(column) for column in columns]
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_arrays(arrays, names=list(headers)), buffer)
    return buffer.getvalue()


def _array(values: Sequence[Any]) -> Any:
    """Build one column; values that share no type are written as JSON."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array(
            [None if v is None else json.dumps(v, ensure_ascii=False, default=str) for v in values]
        )


WRITERS: dict[str, Callable[[Sequence[str], Rows], str | bytes]] = {
    "md": _markdown,
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}
