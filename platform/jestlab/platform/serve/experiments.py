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
    chosen = labs.among(given.get("lab"))
    rows = [row for served in chosen for row in _rows(served)]
    tags = sorted({name for row in rows for name in row["tags"]})
    words = find.lower().split()
    found = [row for row in rows if (not tag or tag in row["tags"]) and _has_words(row, words)]
    found.sort(key=_activity, reverse=True)
    start = (max(1, parse_whole(given.get("page", "")) or 1) - 1) * PER_PAGE
    shown = found[start : start + PER_PAGE]
    for served in chosen:
        keys = {row["about"].name: row["key"] for row in shown if row["lab"] == served.name}
        overviews = served.overviews.of({name: key for name, key in keys.items() if key is not None})
        for row in shown:
            if row["lab"] == served.name:
                row["overview"] = overviews.get(row["about"].name)
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
    """Return the experiments of a lab, each with a key that changes with its results; None without any."""
    tables = (AcceptanceRow, RegistrationRow, RetractionRow)
    counts = [select(func.count()).select_from(table).scalar_subquery() for table in tables]
    [judged_by] = served.store.rows(select(*counts))
    marked = tags_of_experiments(served.store)
    rows = []
    for about in served.store.experiments():
        counts_by_state = {state.value: count for state, count in about.counts.items()}
        key = (about.updated_at, tuple(sorted(counts_by_state.items())), tuple(judged_by))
        has_results = RunState.COMPLETED in about.counts
        rows.append({
            "lab": served.name, "about": about, "counts": counts_by_state, "tags": marked.get(about.name, []),
            "key": key if has_results else None, "overview": None,
        })  # fmt: skip
    return rows


def _activity(row: dict[str, Any]) -> tuple[bool, datetime]:
    """Return the sort key of an experiment; while it runs, reports don't change its place."""
    about = row["about"]
    is_running = RunState.RUNNING in about.counts
    return is_running, about.updated_at if is_running else about.active_at


def _has_words(row: dict[str, Any], words: list[str]) -> bool:
    about = row["about"]
    text = " ".join([about.name, about.question, about.owner or "", *row["tags"]]).lower()
    return all(word in text for word in words)
