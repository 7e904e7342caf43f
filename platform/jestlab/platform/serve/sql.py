"""SQL over the views, read-only, with saved queries."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request

from jestlab.analysis import query
from jestlab.platform.serve.labs import Labs
from jestlab.platform.serve.rendering import rendered
from jestlab.platform.store.annotations import saved_queries
from jestlab.platform.store.views import VIEWS

MOST = 1_000
"""Rows that are shown."""

BYTES = 2 * 1024 * 1024
"""Bytes that they have at most; a single value may not be longer either."""

SECONDS = 20
"""How long the database may take: others want to see something, too."""


def page(labs: Labs, request: Request) -> Any:
    """Answer a query that the address holds, so that it can be sent to others."""
    asked = request.query_params.get("q", "").strip()
    lab = request.query_params.get("lab")
    served = labs.among(lab)[0]
    result, wrong, seconds = None, "", 0.0
    if asked:
        began = time.monotonic()
        try:
            result = query.ask(served.lab.store_url, asked, query.Limits(MOST, BYTES, SECONDS))
        except ValueError as error:
            wrong = str(error)
        seconds = time.monotonic() - began
    return rendered(
        "sql.html.j2",
        here="sql",
        asked=asked,
        result=result,
        wrong=wrong,
        seconds=seconds,
        views={name: view.columns for name, view in VIEWS.items()},
        labs=labs,
        served=served,
        saved=saved_queries(served.store),
        writes=labs.writes,
    )
