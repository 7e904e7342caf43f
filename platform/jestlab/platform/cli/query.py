"""`jestlab query`: SQL over the results store, or a view with a condition."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.output import write_whole
from jestlab.platform.errors import UserError
from jestlab.platform.lab import Lab

_EPILOG = """\b
Conditions compare columns of the view and config keys with numbers, 'texts', true
and false, by = != < <= > >= in (…) like and is null, joined by and, or, not.

\b
Example:
  jestlab query
  jestlab query --where "state = 'FAILED'" --columns experiment,label,seed,reason
  jestlab query --view evaluations --experiment quickstart --where 'final and selection.rule = "joint"'
  jestlab query --columns label,seed,config.* --format parquet --output runs.parquet
  jestlab query "SELECT label, name, AVG(value) FROM v_evaluations WHERE final = 1 GROUP BY 1, 2" --format csv
"""

Rows = Sequence[Sequence[Any]]


@click.command(epilog=_EPILOG)
@click.argument("sql", required=False)
@click.option(
    "--view", metavar="NAME", help="Rows of this view instead: runs, metrics, evaluations, …  [runs]"
)
@click.option("--where", metavar="CONDITION", help="Keep the rows that satisfy it.")
@click.option("--columns", metavar="A,B,…", help="Columns and config keys to show, config.* for all of them.")
@click.option("--order-by", metavar="A,B,…", help="Sort by columns or config keys; -A downwards.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Rows at most.")
@click.option("--experiment", metavar="NAME", help="Rows of this experiment alone.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["md", "csv", "json", "parquet"]),
    help="[default: by the ending of --output, else md]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it here instead.")
@lab_options
def command(
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
    """Ask the results store in SQL, or for rows of a view; without either, list views and their columns.

    The connection is read-only: the database itself refuses to write.
    """
    asked = [view, where, columns, order_by, limit, experiment]
    by_view = any(option is not None for option in asked)
    if sql is not None and by_view:
        raise click.UsageError("give either SQL, or --view with --where and the like")
    form = "json" if as_json else format_ or _ENDINGS.get(output.suffix if output else "", "md")
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise click.UsageError("parquet is not for a terminal: give --output FILE, or pipe it")
    if by_view:
        from jestlab.analysis.query import select

        found = select(
            lab.store_url, view or "runs", where, _names(columns), _names(order_by) or (), limit, experiment
        )
        headers, rows = found.columns, found.rows
    else:
        headers, rows = _views() if sql is None else ask(lab, sql)
    content = WRITERS[form](headers, rows)
    if output is None:
        click.echo(content, nl=False)
    else:
        write_whole(output, content)
        click.echo(output)


_ENDINGS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _views() -> tuple[list[str], list[tuple[Any, ...]]]:
    """What can be asked: every view with its columns."""
    from jestlab.platform.store.views import VIEWS

    rows: list[tuple[Any, ...]] = [
        (name, column, meaning) for name, view in VIEWS.items() for column, meaning in view.columns.items()
    ]
    return ["view", "column", "meaning"], rows


def ask(lab: Lab, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Execute a query.

    Args:
        lab: Whose store.
        sql: One SELECT.

    Returns:
        The columns' names, and the rows.

    Raises:
        UserError: There is no store, the SQL is wrong, or it would write.
    """
    from sqlalchemy.exc import DBAPIError

    from jestlab.platform.store import faults
    from jestlab.platform.store.store import Store

    store = Store.open_readonly(lab.store_url) or Store.open(lab.store_url, create=False)
    try:
        with store.reading() as connection:
            # As it stands: without parameters, a % means nothing.
            result = connection.execution_options(no_parameters=True).exec_driver_sql(sql)
            if not result.returns_rows:
                raise UserError("query: this SQL gives no rows")
            return list(result.keys()), [tuple(map(_portable, row)) for row in result]
    except (DBAPIError, UserError) as error:
        cause = error.__cause__ if isinstance(error, UserError) else error
        if not isinstance(cause, DBAPIError):
            raise
        message = faults.said(cause)
        only = "only reading is allowed, by one SELECT: " if _WOULD_WRITE.search(message) else ""
        raise UserError(f"query: {only}{message}") from None
    finally:
        store.close()


# How each database says that it was asked for more than a SELECT.
_WOULD_WRITE = re.compile(
    r"""authoriz | VACUUM\ from\ within | read-only\ transaction | data-modifying | multiple\ commands
    | INTO\ is\ not\ allowed
    | near\ "(ALTER|ANALYZE|BEGIN|CALL|COMMIT|COPY|CREATE|DELETE|DISCARD|DO|DROP|END|EXECUTE|EXPLAIN|GRANT|
        INSERT|LISTEN|LOCK|MERGE|NOTIFY|PREPARE|REINDEX|RESET|REVOKE|ROLLBACK|SET|SHOW|START|TRUNCATE|UPDATE|
        VACUUM)" """,
    re.VERBOSE | re.IGNORECASE,
)


def _portable(value: Any) -> Any:
    """A value of PostgreSQL as SQLite would give it: exact numbers as numbers, times as text."""
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    return value


def _markdown(headers: Sequence[str], rows: Rows) -> str:
    from tabulate import tabulate

    cells = [[_cell(value) for value in row] for row in rows]
    text: str = tabulate(cells, headers, tablefmt="github", disable_numparse=True)
    return text + "\n"


def _cell(value: Any) -> str:
    """A value on one line of a Markdown table."""
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|")


def _csv(headers: Sequence[str], rows: Rows) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows(rows)
    return text.getvalue()


def _json(headers: Sequence[str], rows: Rows) -> str:
    records = [dict(zip(headers, map(_plain, row), strict=True)) for row in rows]
    return json.dumps(records, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """A value that JSON has: infinities and times become text, bytes hexadecimal."""
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
    """One column; of values that share no type, their JSON."""
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
