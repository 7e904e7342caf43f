"""`jestlab query`: SQL over the results store."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.errors import UserError
from jestlab.platform.lab import Lab

_EPILOG = """\b
Example:
  jestlab query
  jestlab query "SELECT label, seed, state FROM v_runs WHERE experiment = 'quickstart'"
  jestlab query "SELECT label, name, AVG(value) FROM v_evaluations WHERE final GROUP BY 1, 2" --format csv
"""

Rows = Sequence[Sequence[Any]]


@click.command(epilog=_EPILOG)
@click.argument("sql", required=False)
@click.option(
    "--format", "format_", type=click.Choice(["md", "csv", "json"]), default="md", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@lab_options
def command(sql: str | None, *, format_: str, as_json: bool, lab: Lab) -> None:
    """Ask the results store in SQL; without SQL, list its views and their columns.

    The connection is read-only: the database itself refuses to write.
    """
    show = WRITERS["json" if as_json else format_]
    if sql is None:
        from jestlab.platform.store.views import VIEWS

        rows = [
            [name, column, meaning]
            for name, view in VIEWS.items()
            for column, meaning in view.columns.items()
        ]
        click.echo(show(["view", "column", "meaning"], rows), nl=False)
        return
    headers, found = ask(lab, sql)
    click.echo(show(headers, found), nl=False)


def ask(lab: Lab, sql: str) -> tuple[list[str], Rows]:
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
    """A value that JSON has: infinities become text, bytes hexadecimal, what else it lacks text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str | list | dict) else str(value)


WRITERS: dict[str, Callable[[Sequence[str], Rows], str]] = {"md": _markdown, "csv": _csv, "json": _json}
