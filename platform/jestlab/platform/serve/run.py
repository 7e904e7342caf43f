"""The page of a run, and the comparison of several runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from jestlab.analysis.claims import studies
from jestlab.analysis.configs import flat
from jestlab.analysis.results import Snapshot
from jestlab.platform import logs
from jestlab.platform.errors import StoreError, UserError, one_line_errors
from jestlab.platform.launch.status import LOSS
from jestlab.platform.planning import compare as comparison
from jestlab.platform.serve.experiment import cells, curves_of
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import address, as_text, number, parse_whole, render
from jestlab.platform.store.annotations import Subject, notes, tags
from jestlab.platform.store.records import ADOPTED
from jestlab.platform.store.store import Store

TAIL_BYTES = 64 * 1024
"""Size of the part of a log that is sent at first, its end, and maximum size of each later part."""

PICTURES = 12
"""Number of selected examples shown for a step; the number of rejected ones is the same."""

MOST_CURVES = 12
"""Maximum number of metrics of a run in one plot."""

MOST_COMPARED = 20
"""Maximum number of compared runs."""

_ID = "(SELECT id FROM run WHERE fingerprint = :run)"
_QUERIES = {
    # The run's experiments, and its label and seed in each.
    "places": (
        "SELECT experiment, label, seed FROM v_runs WHERE fingerprint = :run ORDER BY experiment, position"
    ),
    "scores": f"SELECT dataset, metric, step, value FROM evaluation WHERE run_id = {_ID} ORDER BY step",
    # Each with its code, versions, and machine.
    "attempts": (
        "SELECT DISTINCT number, state, reason, executor, host, device, claimed_at, started_at, ended_at, "
        "exit_code, git_commit, git_patch, code_commit, code_patch, versions, environment, lab "
        "FROM v_attempts WHERE fingerprint = :run ORDER BY number"
    ),
    "needs": (
        "SELECT need.role, needed.fingerprint, needed.state, needed.directory FROM need "
        f"JOIN run AS needed ON needed.id = need.needs_id WHERE need.run_id = {_ID} ORDER BY need.role"
    ),
    "metrics": (
        "SELECT name FROM metric_name WHERE EXISTS "
        f"(SELECT 1 FROM metric WHERE metric.name_id = metric_name.id AND metric.run_id = {_ID})"
    ),
}


def _read(store: Store, fingerprint: str, *queries: str) -> dict[str, Any]:
    """Read data of a run: a list of rows for each query, as the templates show them."""
    with store.reading() as connection:
        data: dict[str, Any] = {
            name: [
                dict(row._mapping) for row in connection.execute(text(_QUERIES[name]), {"run": fingerprint})
            ]
            for name in queries or _QUERIES
        }
    if "scores" in data:
        last = {f"{row['dataset']}/{row['metric']}": row for row in data["scores"]}
        data["scores"] = [
            {"name": name, "value": number(row["value"]) or "not a number", "step": f"{row['step']:,}"}
            for name, row in sorted(last.items())
        ]
    for row in data.get("attempts", ()):
        row |= {name: json.loads(row[name]) if row[name] else {} for name in ("versions", "environment")}
        row |= {name: str(row[name] or "")[:19] for name in ("claimed_at", "started_at", "ended_at")}
    if "metrics" in data:
        names = [row["name"] for row in data["metrics"]]
        data["metrics"] = sorted(names, key=lambda name: (name != LOSS, name))
    return data


def page(labs: Labs, request: Request) -> Any:
    """Show a run."""
    served, fingerprint = _requested_run(labs, request)
    lab, store = request.query_params.get("lab"), served.store
    if fingerprint != request.path_params["fingerprint"]:
        return RedirectResponse(address("run", fingerprint, lab=lab), 303)
    data = _read(store, fingerprint)
    experiment = data["places"][0]["experiment"] if data["places"] else None
    record = store.run(fingerprint)
    subject = Subject(fingerprint=fingerprint)
    return render(
        "run.html.j2",
        here="",
        served=served,
        several=len(labs) > 1,
        fingerprint=fingerprint,
        record=record,
        row=_row(served, experiment, fingerprint) if experiment else None,
        title=_title(data, fingerprint),
        config=[(key, as_text(value)) for key, value in sorted(flat(record.config).items())],
        baseline=_baseline(store, experiment, fingerprint) if experiment else None,
        pictures=_recorded_steps(served, fingerprint),
        notes=notes(store, subject),
        tags=tags(store, subject),
        writes=labs.writes,
        data=lambda kind, **query: address("run", fingerprint, kind, lab=lab, **query),
        **data,
    )


def curves(labs: Labs, request: Request) -> dict[str, Any]:
    """Return the curves of some metrics of a run, thinned for a plot of a given width in pixels."""
    served, fingerprint = _requested_run(labs, request)
    given = parse_whole(request.query_params.get("width", ""))
    width = 800 if given is None else min(max(given, 50), 4_000)
    names = request.query_params.getlist("metric")[:MOST_CURVES] or [LOSS]
    found = {name: curves_of(served.store, [fingerprint], name, width)[fingerprint] for name in names}
    return {"curves": {name: {"x": x, "y": y} for name, (x, y) in found.items()}}


def log(labs: Labs, request: Request) -> Response:
    """Return the end of a run's log, or its part after an offset.

    The header `start` is the offset of the part. A response without this header explains why no log exists.
    """
    served, fingerprint = _requested_run(labs, request)
    path = served.lab.inside(f"{served.store.run(fingerprint).directory}/{logs.NAME}")
    if not path.is_file():  # opening a pipe would wait for a writer
        return PlainTextResponse(_no_log(served, fingerprint))
    given = parse_whole(request.query_params.get("from", ""))
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        start = given if given is not None and given <= size else max(0, size - TAIL_BYTES)
        stream.seek(start)
        part = stream.read(TAIL_BYTES)
    return Response(part, headers={"start": str(start)}, media_type="application/octet-stream")


def batch(labs: Labs, request: Request) -> Response:
    """Return a picture of selected and rejected examples at the recorded step nearest to a step, as PNG."""
    from jestlab.analysis.figures.selected import super_batch
    from jestlab.platform.reports.selected import RecordedRun, sample

    served, fingerprint = _requested_run(labs, request)
    places = _read(served.store, fingerprint, "places")["places"]
    if not places:
        raise Missing(f"run {fingerprint[:8]} belongs to no experiment")
    if (wanted := parse_whole(request.path_params["step"])) is None:
        raise Missing(f"no step {request.path_params['step'][:40]!r}")
    [recorded, *_] = served.store.runs(places[0]["experiment"], [fingerprint])
    with one_line_errors():
        run = RecordedRun(served.lab, served.store, recorded)
        step = run.nearest(wanted)
        examples = run.batch(step)
        shown = [each for part in sample(examples, PICTURES) for each in run.examples(step, examples, part)]
        caption = (
            f"Step {step:,}: selected examples in drawing order, rejected ones evenly spread; with captions "
            "and scores."
        )
        drawn = super_batch(f"step-{step}", shown, "", caption).png()
    return Response(drawn, media_type="image/png")


def compare(labs: Labs, request: Request) -> Any:
    """Compare the runs of `?run=…&run=…`; with `data` in the address, return their curves."""
    wanted = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST_COMPARED]
    lab, metric = request.query_params.get("lab"), request.query_params.get("metric", LOSS)
    runs: list[dict[str, Any]] = []
    for served, fingerprint in (labs.with_run(each, lab) for each in wanted):
        run = {"run": fingerprint} | _read(served.store, fingerprint, "places", "scores", "metrics")
        run["name"] = _title(run, fingerprint)
        if "data" in request.query_params:
            run["x"], run["y"] = curves_of(served.store, [fingerprint], metric)[fingerprint]
        else:
            record = served.store.run(fingerprint)
            config = flat(record.config) | {"program": record.program}
            run["config"] = {key: as_text(value) for key, value in config.items()}
            run["scores"] = {each["name"]: each["value"] for each in run["scores"]}
        runs.append(run)
    if "data" in request.query_params:
        return {"series": [{key: run[key] for key in ("run", "name", "x", "y")} for run in runs], "left": 0}
    config_rows = _side_by_side([run["config"] for run in runs])
    return render(
        "compare.html.j2",
        here="",
        runs=runs,
        config=[(key, row) for key, row in config_rows if len(set(row)) > 1],
        scores=_side_by_side([run["scores"] for run in runs]),
        metrics=list(dict.fromkeys(name for run in runs for name in run["metrics"])),
        metric=metric,
        most=MOST_COMPARED,
        lab=lab,
    )


def _side_by_side(columns: list[dict[str, str]]) -> list[tuple[str, list[str]]]:
    keys = sorted({key for column in columns for key in column})
    return [(key, [column.get(key, "–") for column in columns]) for key in keys]


def _title(data: dict[str, Any], fingerprint: str) -> str:
    places = data["places"]
    return "{experiment}/{label}/{seed}".format(**places[0]) if places else f"run {fingerprint[:8]}"


def _requested_run(labs: Labs, request: Request) -> tuple[Served, str]:
    return labs.with_run(request.path_params["fingerprint"], request.query_params.get("lab"))


def _row(served: Served, experiment: str, fingerprint: str) -> dict[str, Any] | None:
    """Return the run's cells on its experiment's page."""
    for index, row in enumerate(served.status(experiment)):
        if row.run.fingerprint == fingerprint:
            return cells(row, index)
    return None


def _baseline(store: Store, experiment: str, fingerprint: str) -> dict[str, Any] | None:
    """Compare a run's config with the baseline's, if possible of the same seed; None without a baseline."""
    with store.reading() as connection, one_line_errors():
        study = studies(Snapshot("", connection)).get(experiment)
    if study is None or study.baseline is None:
        return None
    rows = store.runs(experiment)
    run = next(row for row in rows if row.fingerprint == fingerprint)
    baselines = [row for row in rows if study.baseline in (row.label, row.name)]
    if not baselines or run in baselines:
        return None
    other = next((row for row in baselines if row.seed == run.seed), baselines[0])
    different = comparison.compare(store, other.fingerprint, fingerprint)["config"]
    return {
        "title": f"{other.label}/{other.seed}",
        "fingerprint": other.fingerprint,
        "differences": [(key, *map(as_text, values)) for key, values in different.items()],
    }


def _recorded_steps(served: Served, fingerprint: str) -> list[int]:
    """Choose up to three steps with recorded examples."""
    from jestlab.models.training import records

    try:
        folder: Path = served.lab.inside(served.store.run(fingerprint).directory)
    except (UserError, StoreError):
        return []
    steps = records.recorded(folder)
    return sorted({steps[0], steps[len(steps) // 4], steps[-1]}) if steps else []


def _no_log(served: Served, fingerprint: str) -> str:
    if served.store.run(fingerprint).program == ADOPTED:
        return "This run was imported; see the original tool for its log."
    attempts = _read(served.store, fingerprint, "attempts")["attempts"]
    labs = [each["lab"] for each in attempts if each["lab"]]
    return f"The log is in the lab at {labs[-1]}." if labs else "The log is not written yet."
