"""The page of an experiment: its runs live, and its results as the report shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from jestlab.analysis import units
from jestlab.platform.errors import UserError
from jestlab.platform.launch.status import LOSS, RunStatus
from jestlab.platform.serve.curves import curves_of, finite
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import address, number, rendered, whole
from jestlab.platform.store.annotations import Subject, notes, tags, tags_of_runs
from jestlab.platform.store.records import RunState

PER_PAGE = 200
"""Rows of a page of the table of runs."""

MOST_CURVES = 200
"""Runs whose losses are drawn at first, those that run before others."""

_UNFINISHED = (RunState.PENDING, RunState.BLOCKED, RunState.RUNNING, RunState.PREEMPTED)
"""States of runs that go on; once there are none, the results stand above the runs."""

SORTS: dict[str, Callable[[RunStatus], Any]] = {
    "run": lambda line: (line.run.label, line.run.seed),
    "state": lambda line: list(RunState).index(line.run.state),
    "progress": lambda line: line.run.step / line.run.total_steps if line.run.total_steps else None,
    "loss": lambda line: line.loss,
    "speed": lambda line: line.rate,
    "left": lambda line: line.eta_seconds,
    "flops": lambda line: line.cost.actual_flops,
    "hours": lambda line: line.cost.actual_hours,
}
"""Columns that the table can be sorted by."""


def page(labs: Labs, request: Request) -> str:
    """Show an experiment."""
    served = _served(labs, request)
    name = request.path_params["name"]
    snapshot = served.tail(name).snapshot()
    shown = _chosen(snapshot.lines, request)
    start = (max(1, whole(request.query_params.get("page", "")) or 1) - 1) * PER_PAGE
    subject = Subject(experiment=name)
    [about] = [row for row in served.store.experiments() if row.name == name]
    part = shown[start : start + PER_PAGE]
    marked = tags_of_runs(served.store, [line.run.fingerprint for _, line in part])
    return rendered(
        "experiment.html.j2",
        here="",
        about=about,
        served=served,
        several=len(labs) > 1,
        rows=[row(line, place) | {"tags": marked.get(line.run.fingerprint, [])} for place, line in part],
        shown=len(shown),
        total=len(snapshot.lines),
        page=start // PER_PAGE + 1,
        pages=max(1, -(-len(shown) // PER_PAGE)),
        sort=request.query_params.get("sort", ""),
        state=request.query_params.get("state", ""),
        find=request.query_params.get("find", ""),
        counts=snapshot.totals.states(),
        over=not any(snapshot.totals.counts[state] for state in _UNFINISHED),
        why=snapshot.why,
        sums=str(snapshot.totals),
        notes=notes(served.store, subject),
        tags=tags(served.store, subject),
        cursor=snapshot.cursor,
        writes=labs.writes,
        here_address=partial(address, "experiment", name, lab=request.query_params.get("lab")),
        data_address=partial(_data_address, name, request),
    )


def live(labs: Labs, request: Request) -> dict[str, Any]:
    """Return what has changed since a cursor: rows, sums, and points of losses."""
    served = _served(labs, request)
    changes = served.tail(request.path_params["name"]).since(request.query_params.get("since", ""))
    snapshot = changes.snapshot
    points: dict[str, list[list[Any]]] = {}
    for point in changes.points:
        points.setdefault(point.fingerprint, []).append([point.step, finite(point.value)])
    return {
        "cursor": snapshot.cursor,
        "anew": changes.anew,
        "rows": [] if changes.anew else [row(line, place) for place, line in changes.lines],
        "points": points,
        "counts": snapshot.totals.states(),
        "why": snapshot.why,
        "sums": str(snapshot.totals),
    }


def losses(labs: Labs, request: Request) -> dict[str, Any]:
    """Return the curves of a metric of many runs, thinned so that spikes survive."""
    served = _served(labs, request)
    snapshot = served.tail(request.path_params["name"]).snapshot()
    begun = [line for _, line in _chosen(snapshot.lines, request) if line.run.step]
    running = [line for line in begun if line.run.state == RunState.RUNNING]
    others = [line for line in begun if line.run.state != RunState.RUNNING]
    unique = {line.run.fingerprint: line for line in [*running, *others]}
    chosen = dict(list(unique.items())[:MOST_CURVES])
    return {
        "left": len(unique) - len(chosen),
        "series": [
            {"run": run, "name": f"{chosen[run].run.label}/{chosen[run].run.seed}", "x": x, "y": y}
            for run, (x, y) in curves_of(
                served, list(chosen), request.query_params.get("metric", LOSS)
            ).items()
        ],
    }


def row(line: RunStatus, place: int) -> dict[str, Any]:
    """Return what the table shows of a run, as texts."""
    run, cost = line.run, line.cost
    return {
        "place": place,
        "run": run.fingerprint,
        "label": run.label,
        "seed": run.seed,
        "state": run.state.value,
        "step": f"{run.step:,}" + (f" of {run.total_steps:,}" if run.total_steps else ""),
        "share": min(1.0, run.step / run.total_steps) if run.total_steps else None,
        "loss": number(line.loss),
        "speed": "" if line.rate is None else f"{line.rate:,.0f}/s",
        "left": "" if line.eta_seconds is None else units.duration(line.eta_seconds / 3600),
        "flops": "" if not cost.actual_flops else units.flops(cost.actual_flops),
        "hours": "" if cost.actual_hours is None else units.hours(cost.actual_hours),
        "reason": run.reason or "",
    }


def results(labs: Labs, request: Request) -> Response:
    """Return the answer, claims, tables and figures as HTML; 304 if the browser has them already."""
    made = _served(labs, request).results.of(request.path_params["name"])
    headers = {"etag": made.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == made.etag:
        return Response(status_code=304, headers=headers)
    return HTMLResponse(made.html, headers=headers)


def figure(labs: Labs, request: Request) -> Response:
    """Return a figure that is shown as it is printed, as PNG."""
    name, study, asked = (request.path_params[key] for key in ("name", "study", "figure"))
    drawn = _served(labs, request).results.still(name, study, asked.removesuffix(".png"))
    if drawn is None:
        raise Missing(f"no figure {asked!r} in {name}")
    return Response(drawn, media_type="image/png")


def file(labs: Labs, request: Request) -> Response:
    """Return a table or figure as a file."""
    name, asked = (request.path_params[key] for key in ("name", "file"))
    made = _served(labs, request).results.file(name, asked)
    if made is None:
        raise Missing(f"no file {asked!r} in the report of {name}")
    return Response(made, media_type="application/octet-stream")


def _served(labs: Labs, request: Request) -> Served:
    return labs.with_experiment(request.path_params["name"], request.query_params.get("lab"))


def _data_address(name: str, request: Request, kind: str) -> str:
    asked = {key: request.query_params.get(key) for key in ("lab", "find", "state")}
    return address("experiment", name, kind, **asked)


def _chosen(lines: Sequence[RunStatus], request: Request) -> list[tuple[int, RunStatus]]:
    """Return the rows that an address asks for, in its order, with their places."""
    find, state = request.query_params.get("find", "").lower(), request.query_params.get("state", "")
    chosen = [
        (place, line)
        for place, line in enumerate(lines)
        if (not state or line.run.state == state)
        and (not find or find in f"{line.run.label}/{line.run.seed} {line.run.fingerprint}".lower())
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
