"""The page of an experiment: live runs, and results as in its report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from jestlab.analysis import units
from jestlab.analysis.colors import LabelColor
from jestlab.analysis.curves import thinned
from jestlab.platform.errors import UserError
from jestlab.platform.launch.status import LOSS, RunStatus, reason_lines
from jestlab.platform.serve.groups import (
    COLUMNS,
    Scores,
    by_label,
    by_state,
    cells,
    combined,
)
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import GLYPHS, address, parse_whole, render
from jestlab.platform.serve.results import MadeResults
from jestlab.platform.store.annotations import Subject, all_tags, notes, tags
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

PER_PAGE = 100
"""Labels per page of the table of runs."""

MOST_SEEDS = 500
"""Maximum number of runs that the table shows under an open label."""

MOST_CURVES = 200
"""Maximum number of curves of a plot, running runs first."""

MADE_FIRST = 1_000
"""Maximum number of runs of an experiment whose page has the results; otherwise they follow in a request."""

SORTS = ("run", "state", "score", *COLUMNS)
"""Columns by which the table of runs can be sorted."""


def page(labs: Labs, request: Request) -> str:
    """Show an experiment."""
    served, name, query = _requested_lab(labs, request), request.path_params["name"], request.query_params
    status = served.status(name)
    is_whole = len(status) <= MADE_FIRST and "live" not in request.headers
    made = _results(served, name, is_whole)
    scores = made.parts.scores if made else Scores()
    chosen = _requested_rows(status, request)
    labels = _sorted(by_label(chosen), scores, query.get("sort", ""))
    start = (max(1, parse_whole(query.get("page", "")) or 1) - 1) * PER_PAGE
    opened = set(query.getlist("open"))
    groups = [_group(rows, scores, label in opened) for label, rows in labels[start : start + PER_PAGE]]
    for group in groups:
        group["toggle"] = _link(request, open=sorted(opened ^ {group["label"]}) or None)
    [about] = [row for row in served.store.experiments() if row.name == name]
    subject = Subject(experiment=name)
    return render(
        "experiment.html.j2",
        here="",
        about=about,
        served=served,
        several=len(labs) > 1,
        groups=groups,
        columns=_columns(groups, scores),
        colors=served.colors(name),
        marked=all_tags(served.store),
        shown=len(chosen),
        labels=len(labels),
        total=len(status),
        page=start // PER_PAGE + 1,
        pages=max(1, -(-len(labels) // PER_PAGE)),
        query=query,
        sorts=SORTS,
        counts=by_state(row for row in status if not row.is_repeat),
        totals=_cost_text(status),
        waits=" · ".join(line.strip() for line in reason_lines(row for row in status if row.wait)),
        notes=notes(served.store, subject),
        tags=tags(served.store, subject),
        writes=labs.writes,
        parts=_parts(made),
        made=made if is_whole else None,
        link=partial(_link, request),
        data_address=partial(_data_address, name, request),
    )


def _parts(made: MadeResults | None) -> tuple[str, str]:
    """Return the answer and the other results as HTML; empty if they were not made yet."""
    from jestlab.analysis.report.html import BETWEEN

    answer, _, others = made.parts.html.partition(BETWEEN) if made else ("", "", "")
    return answer, others


def _results(served: Served, name: str, is_whole: bool) -> MadeResults | None:
    """Return the results of an experiment; unless a whole page needs them, those that were made last."""
    if not is_whole:
        return served.results.latest(name)
    with suppress(UserError):  # the request for the results reports it
        return served.results.of(name)
    return None


def _sorted(
    groups: Mapping[str, list[RunStatus]], scores: Scores, sort: str
) -> list[tuple[str, list[RunStatus]]]:
    """Sort labels, and the runs of each, by a column; unknown values are last."""
    if not sort:
        return list(groups.items())
    if (key := sort.removeprefix("-")) not in SORTS:
        raise UserError(f"sort {sort!r}: expected one of {', '.join(SORTS)}, with - before it to reverse")
    of_state, is_reversed = list(GLYPHS).index, sort.startswith("-")

    def value(rows: list[RunStatus]) -> Any:
        """Return the value of a label, or of a single run."""
        if key == "run":
            return rows[0].run.label, rows[0].run.seed
        if key == "state":
            return max(of_state(row.run.state) for row in rows)
        if key == "score":
            return scores.run(rows[0].run) if len(rows) == 1 else scores.mean(rows[0].run.label)
        return combined(COLUMNS[key], rows)

    def in_order(parts: Iterable[list[RunStatus]]) -> list[list[RunStatus]]:
        found = [(value(rows), rows) for rows in parts]
        known = sorted(
            (pair for pair in found if pair[0] is not None), key=itemgetter(0), reverse=is_reversed
        )
        return [rows for _, rows in known] + [rows for each, rows in found if each is None]

    within = [[row for [row] in in_order([row] for row in rows)] for rows in groups.values()]
    return [(rows[0].run.label, rows) for rows in in_order(within)]


def _group(rows: Sequence[RunStatus], scores: Scores, is_open: bool) -> dict[str, Any]:
    """Return the cells of a label and, if it is open, of its runs."""
    seeds = [cells([row], scores) for row in rows[:MOST_SEEDS]] if is_open and len(rows) > 1 else []
    return cells(rows, scores) | {
        "seeds": seeds,
        "hidden": len(rows) - len(seeds),
        "is_open": is_open and len(rows) > 1,
    }


def _columns(groups: Sequence[Mapping[str, Any]], scores: Scores) -> dict[str, str]:
    """Return key → header of the columns that have a value on the page."""
    suffix = f", {scores.metric.suffix}" if scores.metric.suffix else ""
    titles = {"score": f"{scores.title}{suffix}", "delta": f"Δ {scores.baseline}"}
    titles |= {"trend": "trend", "state": "state"}
    titles |= {key: column.title for key, column in COLUMNS.items() if key != "progress"}
    rows = [row for group in groups for row in (group, *group["seeds"])]
    return {
        key: title for key, title in titles.items() if key == "state" or any(row.get(key) for row in rows)
    }


def losses(labs: Labs, request: Request) -> dict[str, Any]:
    """Return the curves of a metric, of the runs on the page; `left` is the number of runs left out."""
    served = _requested_lab(labs, request)
    status = served.status(request.path_params["name"])
    started = [row for row in _requested_rows(status, request) if row.run.step]
    started.sort(key=lambda row: row.run.state != RunState.RUNNING)
    unique = {row.run.fingerprint: row.run for row in started}
    runs = dict(list(unique.items())[:MOST_CURVES])
    colors = served.colors(request.path_params["name"])
    curves = curves_of(served.store, list(runs), metric := request.query_params.get("metric", LOSS))
    lines = [
        {"run": run, "label": of.label, "name": f"{of.label}/{of.seed}", **paint(colors[of.label])}
        | curves[run]
        for run, of in runs.items()
    ]
    return {"left": len(unique) - len(runs), "charts": {metric: lines}}


def paint(color: LabelColor) -> dict[str, str]:
    """Return the color and dash of a line, as scripts read them."""
    return {"color": color.css, "dash": color.dash}


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


def _cost_text(rows: Sequence[RunStatus]) -> str:
    """Write the cost so far, next to the planned cost; empty if both are unknown."""
    costs = [row.cost for row in rows if not row.is_repeat]
    planned = sum(cost.total_flops or 0.0 for cost in costs)
    spent = sum(cost.actual_flops or 0.0 for cost in costs if cost.total_flops)
    hours = sum(cost.actual_hours or 0.0 for cost in costs)
    flops = f"{units.flops(spent)} of {units.flops(planned)}, {spent / planned:.0%}" if planned else ""
    return "; ".join(filter(None, (flops, f"{units.duration(hours)} of compute" if hours else "")))


def _requested_lab(labs: Labs, request: Request) -> Served:
    return labs.with_experiment(request.path_params["name"], request.query_params.get("lab"))


def _data_address(name: str, request: Request, kind: str) -> str:
    query = {key: request.query_params.get(key) for key in ("lab", "find", "state")}
    return address("experiment", name, kind, **query)


def _link(request: Request, **changes: Any) -> str:
    """Return the address of the page with a changed query."""
    query = request.query_params
    known = {key: query.get(key) for key in ("lab", "find", "state", "sort", "page")}
    return address(
        "experiment", request.path_params["name"], **known | {"open": query.getlist("open") or None} | changes
    )


def _requested_rows(rows: Sequence[RunStatus], request: Request) -> list[RunStatus]:
    """Return the runs that a request asks for."""
    find, state = request.query_params.get("find", "").lower(), request.query_params.get("state", "")
    return [
        row
        for row in rows
        if (not state or row.run.state == state)
        and (not find or find in f"{row.run.label}/{row.run.seed} {row.run.fingerprint}".lower())
    ]


# ---- curves

_WIDEST, _NARROWEST = 800, 20  # columns of pixels for each curve
_COLUMNS = 4_000  # for all curves of a plot, which browsers redraw often

_QUERY = text(
    "SELECT metric.step, metric.value FROM metric WHERE metric.run_id = "
    "(SELECT id FROM run WHERE fingerprint = :run) AND metric.name_id = "
    "(SELECT id FROM metric_name WHERE name = :metric) ORDER BY metric.step"
)

Curve = dict[str, list[Any]]
"""Steps `x` and values `y`; None for a value that isn't finite, where the line breaks.

A thinned curve also has the `mean` of all values around each point, for smoothing: the points themselves
include all extremes.
"""


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
            kept = thinned(points[:, 0], points[:, 1], width)
            curves[run] = {"x": points[kept, 0].astype(np.int64).tolist(), "y": finite(points[kept, 1])}
            if len(kept) < len(points):
                curves[run]["mean"] = finite(_local_means(points, width)[kept])
    return curves


def finite(values: NDArray[np.float64]) -> list[float | None]:
    """Return values for JSON; None for those that aren't finite."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _local_means(points: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Average the finite values of steps and values [n, 2] in each column of pixels; NaN without any. [n]"""
    ends = np.linspace(points[0, 0], points[-1, 0], width + 1)[1:-1]
    columns = np.searchsorted(ends, points[:, 0], side="right")
    finite = np.isfinite(points[:, 1])
    counts = np.bincount(columns[finite], minlength=width)
    sums = np.bincount(columns[finite], points[finite, 1], width)
    with np.errstate(invalid="ignore"):
        return (sums / counts)[columns]
