"""`jestlab query`: query the results store by SQL, or select rows of a view by a condition."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jestlab.analysis.files import rows_to_csv
from jestlab.platform.cli.completion import EXPERIMENT
from jestlab.platform.cli.options import lab_json_options, output_option
from jestlab.platform.cli.output import default_format, print_or_write, print_or_write_blocks
from jestlab.platform.render import STATE_STYLES, TextTable, in_state, markdown, table
from jestlab.platform.words import on_one_line

if TYPE_CHECKING:
    from jestlab.platform.lab.lab import Lab

_EPILOG = """\
A CONDITION compares columns of the view, or config keys, with numbers, 'strings', true, and false. Operators:
= != < <= > >= in (…), like, is null, and, or, not. The column tag is any tag of the run or its experiment;
--columns tags shows all tags.

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
_VIEW_COLUMNS = ["view", "column", "meaning"]

_LONG = 60  # characters; columns with longer cells are the first to be dropped

Rows = Sequence[Sequence[Any]]


@click.command(epilog=_EPILOG)
@click.argument("sql", required=False)
@click.option("--view", metavar="NAME",
              help="View to read, such as runs, metrics, or evaluations.  [default: runs]")  # fmt: skip
@click.option("--where", metavar="CONDITION", help="Keep the rows that satisfy CONDITION.")
@click.option("--columns", metavar="A,B,…", help="Columns and config keys to show; config.* shows all keys.")
@click.option(
    "--order-by",
    metavar="A,B,…",
    help="Columns or config keys to sort by; -A sorts by A in descending order.",
)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of rows.")
@click.option("--experiment", type=EXPERIMENT, metavar="NAME", help="Keep only the rows of this experiment.")
@click.option("--format", "format_", type=click.Choice(["text", "md", "csv", "json", "parquet"]),
              help="Output format.  [default: by the extension of --output, else text on a "
                   "terminal, else md]")  # fmt: skip
@output_option()
@lab_json_options("The same as --format json.")
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
    """Query the results store in SQL, or select rows of a view; without arguments, list views and columns.

    Queries are read-only: the database rejects writes.
    """
    from jestlab.analysis import query
    from jestlab.platform.store.views import VIEWS

    is_selection = any(each is not None for each in (view, where, columns, order_by, limit, experiment))
    if sql is not None and is_selection:
        raise click.UsageError("expected either SQL, or --view with --where and other options")
    by_file = _ENDINGS.get(output.suffix if output else "", default_format(output))
    form = "json" if as_json else format_ or by_file
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("cannot print parquet to a terminal: give --output FILE, or pipe it")
    rows: Rows
    if is_selection:
        sort = order_by or ""
        result = query.select(lab.store_url, view or "runs", where, columns, sort, limit, experiment)
        headers, rows = result.columns, result.rows
    elif sql is not None:
        result = query.ask(lab.store_url, sql)
        headers, rows = result.columns, [tuple(map(_portable, row)) for row in result.rows]
    else:
        headers = _VIEW_COLUMNS
        rows = [(name, *column) for name, about in VIEWS.items() for column in about.columns.items()]
    if form == "text":
        print_or_write_blocks(output, _text(headers, rows))
    else:
        print_or_write(output, _WRITERS[form](headers, rows))


def _portable(value: Any) -> Any:
    """Convert a value from PostgreSQL to its type in SQLite: Decimal to int or float, datetime to text."""
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    return value


def _text(headers: Sequence[str], rows: Rows) -> TextTable:
    """Make a table. If it is too wide, columns with long texts are dropped first, then the last ones."""
    cells = [[on_one_line(_cell(value)) for value in row] for row in rows]
    numbers = (int, float, type(None))
    right = [i for i in range(len(headers)) if rows and all(isinstance(row[i], numbers) for row in rows)]
    is_long = [any(len(row[i]) > _LONG for row in cells) for i in range(len(headers))]
    importance = {header: -i - len(headers) * is_long[i] for i, header in enumerate(headers) if i}
    styled = ([in_state(cell) if cell in STATE_STYLES else cell for cell in row] for row in cells)
    return table(headers, styled, right, {} if headers == _VIEW_COLUMNS else importance)


def _cell(value: Any) -> str:
    """Write a value as text; NULL is an empty text."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _json(headers: Sequence[str], rows: Rows) -> str:
    def plain(value: Any) -> Any:
        """Convert NaN, infinities, and times to text, and bytes to hexadecimal digits."""
        if isinstance(value, datetime):
            return value.isoformat(" ")
        is_finite = not isinstance(value, float) or math.isfinite(value)
        return value.hex() if isinstance(value, bytes) else value if is_finite else str(value)

    records = [dict(zip(headers, map(plain, row), strict=True)) for row in rows]
    return json.dumps(records, ensure_ascii=False, allow_nan=False) + "\n"


def _parquet(headers: Sequence[str], rows: Rows) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    def array(values: Sequence[Any]) -> Any:
        """Build a column; if the values have different types, write each as JSON."""
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            texts = (None if v is None else json.dumps(v, ensure_ascii=False, default=str) for v in values)
            return pa.array(texts)

    columns = list(zip(*rows, strict=True)) or [()] * len(headers)
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_arrays([*map(array, columns)], names=list(headers)), buffer)
    return buffer.getvalue()


_WRITERS: dict[str, Callable[[Sequence[str], Rows], str | bytes]] = {
    "md": lambda headers, rows: markdown(headers, [list(map(_cell, row)) for row in rows]),
    "csv": rows_to_csv,
    "json": _json,
    "parquet": _parquet,
}
