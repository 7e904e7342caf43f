"""The page of an experiment: live runs, and results as in its report."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select, text
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from jestlab.analysis.colors import LabelColor
from jestlab.analysis.curves import thinned
from jestlab.analysis.report.html import BETWEEN
from jestlab.platform.errors import UserError
from jestlab.platform.launch.status import LOSS, RunStatus
from jestlab.platform.serve.groups import COLUMNS, Scores, Status, by_label, cells
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import GLYPHS, address, parse_whole, render
from jestlab.platform.store.annotations import Subject, all_tags, notes
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import ExperimentRow

PER_PAGE = 50
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
    """Show an experiment; for a live update, without the results."""
    served, name, query = _requested_lab(labs, request), request.path_params["name"], request.query_params
    status, made = served.status(name), served.results.latest(name)
    is_whole = len(status.rows) <= MADE_FIRST and "live" not in request.headers
    if is_whole:
        with suppress(UserError):  # the request for the results reports it
            made = served.results.of(name)
    scores, sort = made.scores if made else Scores(), query.get("sort", "")
    chosen = _requested_groups(status, query)
    labels = _in_order(chosen.values(), scores, sort)
    pages = max(1, -(-len(labels) // PER_PAGE))
    number = min(pages, max(1, parse_whole(query.get("page", "")) or 1))
    opened, groups = set(query.getlist("open")), []
    for rows in labels[(number - 1) * PER_PAGE : number * PER_PAGE]:
        group = cells(rows, scores) | {"seeds": []}
        if group["label"] in opened and len(rows) > 1:
            group["seeds"] = [cells(run, scores) for run in _in_order([[row] for row in rows], scores, sort)]
        group["toggle"] = _link(request, open=sorted(opened ^ {group["label"]}) or None)
        groups.append(group)
    shown = [row for group in groups for row in (group, *group["seeds"])]
    [about] = served.store.rows(
        select(ExperimentRow.name, ExperimentRow.question, ExperimentRow.scale).where(
            ExperimentRow.name == name
        )
    )
    marked = all_tags(served.store)
    return render(
        "experiment.html.j2",
        here="",
        about=about,
        served=served,
        several=len(labs) > 1,
        groups=groups,
        most_seeds=MOST_SEEDS,
        columns=_columns(shown, scores),
        status=status,
        marked=marked,
        shown=sum(map(len, chosen.values())),
        labels=len(labels),
        page=number,
        pages=pages,
        query=query,
        sorts=SORTS,
        notes=notes(served.store, Subject(experiment=name)),
        tags=marked.get(name, []),
        writes=labs.writes,
        made=made if is_whole else None,
        between=BETWEEN,
        link=partial(_link, request),
        data_address=partial(_data_address, name, request),
    )


def _in_order(parts: Iterable[list[RunStatus]], scores: Scores, sort: str) -> list[list[RunStatus]]:
    """Sort labels, or single runs, by a column; unknown values are last.

    Raises:
        UserError: The column is unknown.
    """
    if (key := sort.removeprefix("-")) not in ("", *SORTS):
        raise UserError(f"sort {sort!r}: expected one of {', '.join(SORTS)}, with - before it to reverse")
    of_state = list(GLYPHS).index
    values: dict[str, Callable[[list[RunStatus]], Any]] = {
        "": lambda rows: None,
        "run": lambda rows: (rows[0].run.label, rows[0].run.seed),
        "state": lambda rows: max(of_state(row.run.state) for row in rows),
        "score": scores.value,
    }
    value = values[key] if key in values else COLUMNS[key].mean
    found = [(value(rows), rows) for rows in parts]
    known = [pair for pair in found if pair[0] is not None]
    known.sort(key=itemgetter(0), reverse=sort.startswith("-"))
    return [rows for _, rows in known] + [rows for each, rows in found if each is None]


def _columns(shown: Sequence[Mapping[str, Any]], scores: Scores) -> dict[str, str]:
    """Return key → header of the columns that have a value on the page; labels of several runs have means."""
    mean = "mean " if any(row["count"] > 1 for row in shown) else ""
    suffix = f", {scores.metric.suffix}" if scores.metric.suffix else ""
    titles = {"score": f"{mean}{scores.title}{suffix}", "delta": f"Δ {scores.baseline}"}
    titles |= {"trend": "trend", "state": "state"}
    titles |= {key: f"{mean}{column.title}" for key, column in COLUMNS.items() if key != "progress"}
    return {
        key: title for key, title in titles.items() if key == "state" or any(row.get(key) for row in shown)
    }


def losses(labs: Labs, request: Request) -> dict[str, Any]:
    """Return the curves of a metric, of the runs on the page; `left` is the number of runs left out."""
    served = _requested_lab(labs, request)
    status = served.status(request.path_params["name"])
    groups = _requested_groups(status, request.query_params)
    started = [row for rows in groups.values() for row in rows if row.run.step]
    started.sort(key=lambda row: row.run.state != RunState.RUNNING)
    unique = {row.run.fingerprint: row.run for row in started}
    runs = dict(list(unique.items())[:MOST_CURVES])
    curves = curves_of(served.store, list(runs), metric := request.query_params.get("metric", LOSS))
    lines = [
        {"run": run, "label": of.label, "name": f"{of.label}/{of.seed}", **paint(status.colors[of.label])}
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
    return HTMLResponse(made.html, headers=headers)


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


def _requested_groups(status: Status, query: QueryParams) -> Mapping[str, list[RunStatus]]:
    """Return the runs that a request asks for, by label."""
    find, state = query.get("find", "").lower(), query.get("state", "")
    if not find and not state:
        return status.groups
    return by_label(
        row
        for row in status.rows
        if state in ("", row.run.state)
        and find in f"{row.run.label}/{row.run.seed} {row.run.fingerprint}".lower()
    )


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


def curves_of(store: Store, fingerprints: Sequence[str], metric: str) -> dict[str, Curve]:
    """Read the curve of a metric of each run, thinned for a plot, the more the more curves it has."""
    width = max(_NARROWEST, min(_WIDEST, _COLUMNS // max(1, len(fingerprints))))
    curves = {}
    with store.reading() as connection:
        # The driver's rows are read much faster than SQLAlchemy's, which takes some of them from a stream.
        connection = connection.execution_options(stream_results=False)
        for run in fingerprints:
            rows: Any = connection.execute(_QUERY, {"run": run, "metric": metric}).cursor
            points = np.array(rows.fetchall(), np.float64).reshape(-1, 2)
            x, y = points[:, 0], points[:, 1]
            kept = thinned(x, y, width)
            curves[run] = {"x": x[kept].astype(np.int64).tolist(), "y": finite(y[kept])}
            if len(kept) < len(points):
                columns = np.minimum((x - x[0]) * width // (x[-1] - x[0]), width - 1).astype(np.int64)
                known = np.isfinite(y)
                sums, counts = (np.bincount(columns[known], weights, width) for weights in (y[known], None))
                with np.errstate(invalid="ignore"):  # a column without a finite value
                    curves[run]["mean"] = finite((sums / counts)[columns[kept]])
    return curves


def finite(values: NDArray[np.float64]) -> list[float | None]:
    """Return values for JSON; None for those that aren't finite."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
