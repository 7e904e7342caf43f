"""The search: runs of all experiments that satisfy a condition."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from jestlab.analysis import query
from jestlab.platform.errors import StoreUnreachable, UserError, one_line_errors
from jestlab.platform.serve.labs import Labs
from jestlab.platform.serve.rendering import rendered
from jestlab.platform.words import listed

MOST = 500
"""Rows that are shown."""

COLUMNS = ("experiment", "label", "seed", "state", "step", "reason")
"""Columns where nobody names others."""


def page(labs: Labs, request: Request) -> str:
    """Search by the language of `jestlab query --where`."""
    asked = request.query_params
    where, order = asked.get("where", "").strip(), asked.get("order", "").strip()
    columns = listed(asked.get("columns", ""))
    found: list[dict[str, Any]] = []
    wrong, more = "", False
    names = [*(columns or COLUMNS)]
    try:
        with one_line_errors():
            for served in labs.among(asked.get("lab")):
                result = query.select(
                    served.lab.store_url, "runs", where or None, ["fingerprint", *names],
                    listed(order), MOST + 1,
                )  # fmt: skip
                names = result.columns[1:]
                more |= len(result.rows) > MOST
                found += [{"lab": served.name, "run": row[0], "cells": row[1:]} for row in result.rows[:MOST]]
    except StoreUnreachable:
        raise
    except UserError as error:
        wrong = str(error)
    return rendered(
        "runs.html.j2", here="runs", where=where, order=order, columns=", ".join(columns), names=names,
        found=found, more=more, wrong=wrong, several=len(labs) > 1, most=MOST,
    )  # fmt: skip
