"""The published tables of a store, as they were printed."""

from __future__ import annotations

import itertools
from typing import Any

from starlette.requests import Request

from jestlab.analysis.published import stored
from jestlab.analysis.published.cell import order
from jestlab.platform.serve.labs import Labs
from jestlab.platform.serve.rendering import rendered


def page(labs: Labs, request: Request) -> str:
    """Show every published table."""
    tables: list[dict[str, Any]] = []
    for served in labs.among(request.query_params.get("lab")):
        cells = stored(served.lab.store_url)
        for (source, name), own in itertools.groupby(cells, key=lambda cell: (cell.source, cell.table)):
            tables.append({"lab": served.name, "source": source, "name": name, **_matrix(list(own))})
    return rendered("published.html.j2", here="published", tables=tables, several=len(labs) > 1)


def _matrix(cells: list[Any]) -> dict[str, Any]:
    """Lay out the cells of a table: a row for each position, a column for each quantity."""
    quantities = sorted({cell.quantity for cell in cells}, key=order)
    rows: dict[int, dict[str, Any]] = {}
    for cell in cells:
        about = {"method": cell.method, "about": [cell.group, cell.variant, cell.data], "ours": cell.ours}
        row = rows.setdefault(cell.position, {**about, "cells": {}})
        row["cells"][cell.quantity] = cell
    return {"quantities": quantities, "rows": [rows[position] for position in sorted(rows)]}
