"""The front page with all experiments, and the page of one: live runs, and results as in its report."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from jestlab.analysis import units
from jestlab.analysis.curves import thinned
from jestlab.analysis.results import Snapshot
from jestlab.platform.errors import UserError
from jestlab.platform.launch.status import LOSS, RunStatus, wait_lines
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import address, duration, number, parse_whole, render
from jestlab.platform.store.annotations import Subject, notes, tags, tags_of_experiments, tags_of_runs
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

PER_PAGE = 200
"""Rows per page of the table of runs."""

MOST_CURVES = 200
"""Maximum number of curves of a plot, running runs first."""

_UNFINISHED = (RunState.PENDING, RunState.BLOCKED, RunState.RUNNING, RunState.PREEMPTED)
"""States of unfinished runs. If no run has such a state, the page shows the results before the runs."""

SORTS: dict[str, Callable[[RunStatus], Any]] = {
    "run": lambda row: (row.run.label, row.run.seed),
    "state": lambda row: list(RunState).index(row.run.state),
    "progress": lambda row: row.run.step / row.run.total_steps if row.run.total_steps else None,
    "loss": lambda row: row.loss,
    "speed": lambda row: row.rate,
    "left": lambda row: row.progress.seconds_left,
    "flops": lambda row: row.cost.actual_flops,
    "hours": lambda row: row.cost.actual_hours,
}
"""Column by which the table of runs can be sorted → sort key; None sorts last."""


# ---- all experiments


def front_page(labs: Labs, request: Request) -> str:
    """Show all experiments, the last launched first."""
    rows: list[dict[str, Any]] = [
        {"lab": served.name, "about": row, "counts": _by_state(row.counts), "tags": marked.get(row.name, [])}
        for served in labs
        for marked in [tags_of_experiments(served.store)]
        for row in served.store.experiments()
    ]
    rows.sort(key=lambda row: row["about"].updated_at, reverse=True)
    return render("experiments.html.j2", several=len(labs) > 1, rows=rows, here="experiments")


# ---- one experiment


def page(labs: Labs, request: Request) -> str:
    """Show an experiment."""
    served, name, query = _requested_lab(labs, request), request.path_params["name"], request.query_params
    status = served.status(name)
    counts = _by_state(Counter(row.run.state for row in status if not row.is_repeat))
    chosen = _requested_rows(status, request)
    start = (max(1, parse_whole(query.get("page", "")) or 1) - 1) * PER_PAGE
    part = chosen[start : start + PER_PAGE]
    marked = tags_of_runs(served.store, [row.run.fingerprint for _, row in part])
    [about] = [row for row in served.store.experiments() if row.name == name]
    subject = Subject(experiment=name)
    return render(
        "experiment.html.j2",
        here="",
        about=about,
        served=served,
        several=len(labs) > 1,
        rows=[cells(row, index) | {"tags": marked.get(row.run.fingerprint, [])} for index, row in part],
        shown=len(chosen),
        total=len(status),
        page=start // PER_PAGE + 1,
        pages=max(1, -(-len(chosen) // PER_PAGE)),
        sort=query.get("sort", ""),
        state=query.get("state", ""),
        find=query.get("find", ""),
        counts=counts,
        totals=_cost_text(status),
        is_over=not any(state in counts for state in _UNFINISHED),
        waits=[*wait_lines(status)],
        notes=notes(served.store, subject),
        tags=tags(served.store, subject),
        writes=labs.writes,
        here_address=partial(address, "experiment", name, lab=query.get("lab")),
        data_address=partial(_data_address, name, request),
    )


def losses(labs: Labs, request: Request) -> dict[str, Any]:
    """Return the curves of a metric, of the runs on the page; `left` is the number of runs left out."""
    served = _requested_lab(labs, request)
    status = served.status(request.path_params["name"])
    started = [row for _, row in _requested_rows(status, request) if row.run.step]
    started.sort(key=lambda row: row.run.state != RunState.RUNNING)
    unique = {row.run.fingerprint: row.run for row in started}
    runs = dict(list(unique.items())[:MOST_CURVES])
    with served.store.reading() as connection:
        colors = Snapshot("", connection).colors(request.path_params["name"])
    curves = curves_of(served.store, list(runs), request.query_params.get("metric", LOSS))
    return {
        "left": len(unique) - len(runs),
        "series": [
            {"run": run, "label": of.label, "name": f"{of.label}/{of.seed}"}
            | {"color": colors[of.label].css, "dash": colors[of.label].dash}
            | dict(zip("xy", curves[run], strict=True))
            for run, of in runs.items()
        ],
    }


def cells(row: RunStatus, index: int) -> dict[str, Any]:
    """Return the cells of a run in the table of runs, as the template shows them."""
    run, cost = row.run, row.cost
    return {
        "index": index,
        "run": run.fingerprint,
        "label": run.label,
        "seed": run.seed,
        "state": run.state.value,
        "step": f"{run.step:,}" + (f" of {run.total_steps:,}" if run.total_steps else ""),
        "share": min(1.0, run.step / run.total_steps) if run.total_steps else None,
        "loss": number(row.loss),
        "speed": "" if row.rate is None else f"{row.rate:,.0f}/s",
        "left": duration(row.progress.seconds_left),
        "flops": "" if cost.actual_flops is None else units.flops(cost.actual_flops),
        "hours": "" if cost.actual_hours is None else units.hours(cost.actual_hours),
        "reason": run.reason or "",
    }


def results(labs: Labs, request: Request) -> Response:
    """Return the answer, claims, tables, and figures as HTML; status 304 if they haven't changed."""
    made = _requested_lab(labs, request).results.of(request.path_params["name"])
    headers = {"etag": made.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == made.etag:
        return Response(status_code=304, headers=headers)
    return HTMLResponse(made.parts.html, headers=headers)


def figure(labs: Labs, request: Request) -> Response:
    """Return a figure that has no interactive version, as PNG."""
    name, study, wanted = (request.path_params[key] for key in ("name", "study", "figure"))
    drawn = _requested_lab(labs, request).results.still(name, study, wanted.removesuffix(".png"))
    if drawn is None:
        raise Missing(f"no figure {wanted!r} in {name}")
    return Response(drawn, media_type="image/png")


def file(labs: Labs, request: Request) -> Response:
    """Return a table or figure of the report as a file."""
    name, wanted = (request.path_params[key] for key in ("name", "file"))
    made = _requested_lab(labs, request).results.file(name, wanted)
    if made is None:
        raise Missing(f"no file {wanted!r} in the report of {name}")
    return Response(made, media_type="application/octet-stream")


def _by_state(counts: Mapping[RunState, int]) -> dict[str, int]:
    """Return the number of runs by state, in the order of `RunState`; states without runs are omitted."""
    return {state.value: counts[state] for state in RunState if counts.get(state)}


def _cost_text(rows: Sequence[RunStatus]) -> str:
    """Write the cost so far, next to the planned cost; empty if both are unknown."""
    costs = [row.cost for row in rows if not row.is_repeat]
    planned = sum(cost.total_flops or 0.0 for cost in costs)
    spent = sum(cost.actual_flops or 0.0 for cost in costs if cost.total_flops)
    hours = sum(cost.actual_hours or 0.0 for cost in costs)
    flops = f"{units.flops(spent)} of {units.flops(planned)}, {spent / planned:.0%}" if planned else ""
    return "; ".join(filter(None, (flops, units.duration(hours) if hours else "")))


def _requested_lab(labs: Labs, request: Request) -> Served:
    return labs.with_experiment(request.path_params["name"], request.query_params.get("lab"))


def _data_address(name: str, request: Request, kind: str) -> str:
    query = {key: request.query_params.get(key) for key in ("lab", "find", "state")}
    return address("experiment", name, kind, **query)


def _requested_rows(rows: Sequence[RunStatus], request: Request) -> list[tuple[int, RunStatus]]:
    """Return the runs that a request asks for, filtered and sorted, with their indices in the study."""
    find, state = request.query_params.get("find", "").lower(), request.query_params.get("state", "")
    chosen = [
        (index, row)
        for index, row in enumerate(rows)
        if (not state or row.run.state == state)
        and (not find or find in f"{row.run.label}/{row.run.seed} {row.run.fingerprint}".lower())
    ]
    sort = request.query_params.get("sort", "")
    if not sort:
        return chosen
    key = SORTS.get(sort.removeprefix("-"))
    if key is None:
        raise UserError(f"sort {sort!r}: expected one of {', '.join(SORTS)}, with - before it to reverse")
    known = [pair for pair in chosen if key(pair[1]) is not None]
    known.sort(key=lambda pair: key(pair[1]), reverse=sort.startswith("-"))
    return known + [pair for pair in chosen if key(pair[1]) is None]


# ---- curves

_WIDEST, _NARROWEST = 400, 20  # columns of pixels for each curve
_COLUMNS = 4_000  # for all curves of a plot, which browsers redraw often

_QUERY = text(
    "SELECT metric.step, metric.value FROM metric WHERE metric.run_id = "
    "(SELECT id FROM run WHERE fingerprint = :run) AND metric.name_id = "
    "(SELECT id FROM metric_name WHERE name = :metric) ORDER BY metric.step"
)

Curve = tuple[list[int], list[float | None]]
"""Steps and values; None for a value that isn't finite, where the line breaks."""


def curves_of(
    store: Store, fingerprints: Sequence[str], metric: str, width: int | None = None
) -> dict[str, Curve]:
    """Read the curve of a metric of each run, thinned for a plot.

    `width` is the width of the plot in pixels; None for a width that suits the number of curves.
    """
    width = width or max(_NARROWEST, min(_WIDEST, _COLUMNS // max(1, len(fingerprints))))
    curves = {}
    with store.reading() as connection:
        for run in fingerprints:
            rows = connection.execute(_QUERY, {"run": run, "metric": metric}).cursor
            points = np.array(rows.fetchall() if rows is not None else [], np.float64).reshape(-1, 2)
            points = points[thinned(points[:, 0], points[:, 1], width)]
            values = [value if math.isfinite(value) else None for value in points[:, 1].tolist()]
            curves[run] = points[:, 0].astype(np.int64).tolist(), values
    return curves
