"""The front page: the list of all experiments."""

from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from starlette.requests import Request

from jestlab.platform.serve.labs import Labs, Served
from jestlab.platform.serve.overviews import MOST_RUNS, Overview
from jestlab.platform.serve.rendering import render
from jestlab.platform.store.annotations import all_tags
from jestlab.platform.store.records import RunState
from jestlab.platform.store.tables import AcceptanceRow, RegistrationRow, RetractionRow


def page(labs: Labs, request: Request) -> str:
    """Show the experiments that the request asks for: running ones, then the last active ones."""
    find, tag, lab = (request.query_params.get(name, "") for name in ("find", "tag", "lab"))
    rows = [row for served in labs.among(lab or None) for row in _rows(served)]
    found = [
        row | {"overview": _overview(row)}
        for row in sorted(rows, key=_activity, reverse=True)
        if (not tag or tag in row["tags"]) and all(word in row["text"] for word in find.lower().split())
    ]
    return render(
        "experiments.html.j2", here="experiments", several=len(labs) > 1, rows=found, total=len(rows),
        find=find, tag=tag, lab=lab, tags=sorted({name for row in rows for name in row["tags"]}),
        most_runs=MOST_RUNS,
    )  # fmt: skip


def _rows(served: Served) -> list[dict[str, Any]]:
    """Return the experiments of a lab, each with a key that changes with its results."""
    tables = (AcceptanceRow, RegistrationRow, RetractionRow)
    numbers = (select(func.count()).select_from(table).scalar_subquery() for table in tables)
    [judged_by] = served.store.rows(select(*numbers))
    tags = all_tags(served.store)
    return [
        {
            "served": served, "about": about, "tags": (own := tags.get(about.name, [])),
            "text": " ".join([about.name, about.question, about.owner or "", *own]).lower(),
            "key": (about.updated_at, about.counts, judged_by),
        }
        for about in served.store.experiments()
    ]  # fmt: skip


def _overview(row: dict[str, Any]) -> Overview | None:
    """Return the overview of an experiment; of a large one, only the answer that its page has shown."""
    served: Served = row["served"]
    about = row["about"]
    if RunState.COMPLETED not in about.counts:
        return None
    if sum(about.counts.values()) <= MOST_RUNS:
        return served.overviews.of(about.name, row["key"])
    made = served.results.latest(about.name)
    return Overview(made.page.answer) if made else None


def _activity(row: dict[str, Any]) -> tuple[bool, datetime]:
    """Return the sort key of an experiment; while it runs, reports don't change its place."""
    about = row["about"]
    is_running = RunState.RUNNING in about.counts
    return is_running, about.updated_at if is_running else about.active_at
