"""The front page: the list of all experiments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import func, select
from starlette.requests import Request

from jestlab.platform.serve.labs import Labs, Served
from jestlab.platform.serve.rendering import address, parse_whole, render
from jestlab.platform.store.annotations import tags_of_experiments
from jestlab.platform.store.records import RunState
from jestlab.platform.store.tables import AcceptanceRow, RegistrationRow, RetractionRow

PER_PAGE = 100
"""Experiments per page of the list."""


def page(labs: Labs, request: Request) -> str:
    """Show the experiments that the request asks for: running ones, then the last active ones."""
    given = request.query_params
    find, tag = given.get("find", "").strip(), given.get("tag", "")
    rows = [row for served in labs.among(given.get("lab")) for row in _rows(served)]
    tags = sorted({name for row in rows for name in row["tags"]})
    words = find.lower().split()
    found = [row for row in rows if (not tag or tag in row["tags"]) and _has_words(row, words)]
    found.sort(key=_activity, reverse=True)
    start = (max(1, parse_whole(given.get("page", "")) or 1) - 1) * PER_PAGE
    shown = found[start : start + PER_PAGE]
    for row in shown:
        if RunState.COMPLETED in row["about"].counts:
            row["overview"] = row["served"].overviews.of(row["about"].name, row["key"])
    return render(
        "experiments.html.j2", here="experiments", several=len(labs) > 1, rows=shown, found=len(found),
        total=len(rows), find=find, tag=tag, tags=tags, page=start // PER_PAGE + 1,
        pages=max(1, -(-len(found) // PER_PAGE)),
        lab=given.get("lab"), link=partial(_link, given),
    )  # fmt: skip


def _link(given: Mapping[str, str], **changes: Any) -> str:
    """Return the address of the list with a changed query."""
    return address(**{key: given.get(key) for key in ("find", "tag", "lab")} | changes)


def _rows(served: Served) -> list[dict[str, Any]]:
    """Return the experiments of a lab, each with a key that changes with its results."""
    tables = (AcceptanceRow, RegistrationRow, RetractionRow)
    numbers = (select(func.count()).select_from(table).scalar_subquery() for table in tables)
    [judged_by] = served.store.rows(select(*numbers))
    tags = tags_of_experiments(served.store)
    return [
        {
            "served": served, "about": about, "tags": tags.get(about.name, []), "overview": None,
            "key": (about.updated_at, about.counts, judged_by),
        }
        for about in served.store.experiments()
    ]  # fmt: skip


def _activity(row: dict[str, Any]) -> tuple[bool, datetime]:
    """Return the sort key of an experiment; while it runs, reports don't change its place."""
    about = row["about"]
    is_running = RunState.RUNNING in about.counts
    return is_running, about.updated_at if is_running else about.active_at


def _has_words(row: dict[str, Any], words: list[str]) -> bool:
    about = row["about"]
    text = " ".join([about.name, about.question, about.owner or "", *row["tags"]]).lower()
    return all(word in text for word in words)
