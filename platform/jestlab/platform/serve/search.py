"""Pages over whole labs: search for runs, SQL with saved queries, and published results."""

from __future__ import annotations

import itertools
import time
from typing import Any

from starlette.requests import Request

from jestlab.analysis import query
from jestlab.analysis.published import stored
from jestlab.analysis.published.cell import order
from jestlab.platform.errors import StoreUnreachable, UserError, one_line_errors
from jestlab.platform.serve.labs import Labs
from jestlab.platform.serve.rendering import render
from jestlab.platform.store.annotations import saved_queries
from jestlab.platform.store.views import VIEWS
from jestlab.platform.words import listed

MOST_RUNS = 500
"""Maximum number of runs of a search."""

COLUMNS = ("experiment", "label", "seed", "state", "step", "reason")
"""Default columns of a search."""

SQL_ROWS, SQL_BYTES, SQL_SECONDS = 1_000, 2 * 1024 * 1024, 20
"""Limits of a SQL query: rows, bytes of all rows and of one value, and time in the database."""


def runs(labs: Labs, request: Request) -> str:
    """Search for runs with the syntax of `jestlab query --where`."""
    given = request.query_params
    where, sort = given.get("where", "").strip(), given.get("order", "").strip()
    columns = listed(given.get("columns", ""))
    found: list[dict[str, Any]] = []
    problem, more = "", False
    names = [*(columns or COLUMNS)]
    try:
        with one_line_errors():
            for served in labs.among(given.get("lab")):
                result = query.select(
                    served.lab.store_url, "runs", where or None, ["fingerprint", *names],
                    listed(sort), MOST_RUNS + 1,
                )  # fmt: skip
                names = result.columns[1:]
                more |= len(result.rows) > MOST_RUNS
                rows = result.rows[:MOST_RUNS]
                found += [{"lab": served.name, "run": row[0], "cells": row[1:]} for row in rows]
    except StoreUnreachable:
        raise
    except UserError as error:
        problem = str(error)
    return render(
        "runs.html.j2", here="runs", where=where, order=sort, columns=", ".join(columns), names=names,
        found=found, more=more, problem=problem, several=len(labs) > 1,
    )  # fmt: skip


def sql(labs: Labs, request: Request) -> Any:
    """Show the result of the SQL query in the address, so that users can share it."""
    asked = request.query_params.get("q", "").strip()
    served = labs.among(request.query_params.get("lab"))[0]
    result, problem, seconds = None, "", 0.0
    if asked:
        start = time.monotonic()
        try:
            limits = query.Limits(SQL_ROWS, SQL_BYTES, SQL_SECONDS)
            result = query.ask(served.lab.store_url, asked, limits)
        except ValueError as error:
            problem = str(error)
        seconds = time.monotonic() - start
    return render(
        "sql.html.j2", here="sql", asked=asked, result=result, problem=problem, seconds=seconds,
        views={name: view.columns for name, view in VIEWS.items()}, labs=labs, served=served,
        saved=saved_queries(served.store), writes=labs.writes,
    )  # fmt: skip


def published(labs: Labs, request: Request) -> str:
    """Show all published tables."""
    tables: list[dict[str, Any]] = []
    for served in labs.among(request.query_params.get("lab")):
        groups = itertools.groupby(stored(served.lab.store_url), key=lambda cell: (cell.source, cell.table))
        for (source, name), cells in groups:
            tables.append({"lab": served.name, "source": source, "name": name, **_matrix(list(cells))})
    return render("published.html.j2", here="published", tables=tables, several=len(labs) > 1)


def _matrix(cells: list[Any]) -> dict[str, Any]:
    """Arrange the cells of a published table: one row per position, one column per quantity."""
    rows: dict[int, dict[str, Any]] = {}
    for cell in cells:
        about = {"method": cell.method, "about": [cell.group, cell.variant, cell.data], "ours": cell.ours}
        rows.setdefault(cell.position, {**about, "cells": {}})["cells"][cell.quantity] = cell
    quantities = sorted({cell.quantity for cell in cells}, key=order)
    return {"quantities": quantities, "rows": [rows[position] for position in sorted(rows)]}
