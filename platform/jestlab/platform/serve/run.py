"""The page of a run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError
from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from jestlab.analysis.claims import studies
from jestlab.analysis.configs import flat
from jestlab.analysis.metrics import MOST_SHARE, Metrics
from jestlab.analysis.results import Snapshot
from jestlab.analysis.tables.show import heading
from jestlab.platform import logs, programs
from jestlab.platform.errors import StoreError, UserError, one_line_errors
from jestlab.platform.launch.status import LOSS
from jestlab.platform.planning import compare as comparison
from jestlab.platform.programs.failures import headline, kind_of
from jestlab.platform.serve.experiment import Curve, curves_of
from jestlab.platform.serve.groups import cells
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import address, as_text, duration, parse_whole, render, when
from jestlab.platform.store.annotations import Subject, notes, tags
from jestlab.platform.store.records import ADOPTED, RunRecord
from jestlab.platform.store.store import Store

TAIL_BYTES = 64 * 1024
"""Size of the part of a log that is sent at first, its end, and maximum size of each later part."""

PICTURES = 12
"""Number of selected examples shown for a step; the number of rejected ones is the same."""

MOST_CURVES = 12
"""Maximum number of metrics of a run in one request, and of small charts on its page."""

_Data = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows of a run, by the name of their query."""

_EFFORTS = ("examples_seen", "distinct_examples", "flops_total", "seconds")
"""Metrics that measure progress, which need no chart."""

_CLOCKS = {"examples": "examples_seen", "seconds": "seconds"}
"""Horizontal axis → column of evaluations, and metric, with its values."""

_ID = "(SELECT id FROM run WHERE fingerprint = :run)"
_QUERIES = {
    # The run's experiments, and its label and seed in each.
    "places": (
        "SELECT experiment, label, seed FROM v_runs WHERE fingerprint = :run ORDER BY experiment, position"
    ),
    "scores": (
        "SELECT dataset, metric, step, value, examples_seen, seconds FROM evaluation "
        f"WHERE run_id = {_ID} ORDER BY step"
    ),
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


def read(store: Store, fingerprint: str, *queries: str) -> dict[str, list[dict[str, Any]]]:
    """Read data of a run: a list of rows for each query."""
    with store.reading() as connection:
        return {
            name: [
                dict(row._mapping) for row in connection.execute(text(_QUERIES[name]), {"run": fingerprint})
            ]
            for name in queries or _QUERIES
        }


def last_scores(rows: Sequence[Mapping[str, Any]], metrics: Metrics) -> list[dict[str, Any]]:
    """Return the last value of each score as pages show it."""
    last = {_name(row): row for row in rows}
    return [
        {
            "name": heading(name, metrics.of(name)),
            "key": name,
            "value": row["value"],
            "text": "not a number" if row["value"] is None else metrics.of(name).text(row["value"]),
            "step": f"{row['step']:,}",
        }
        for name, row in sorted(last.items())
    ]


def metrics_of(served: Served, data: _Data, program: str) -> Metrics:
    """Return the meaning of the metrics of a run, by the spec of its experiment and by its program.

    As in `Frames.declared`, scores that are too large for a share of 1 are percentages.
    """
    with served.store.reading() as connection:
        spec = Snapshot("", connection).study(data["places"][0]["experiment"])[1] if data["places"] else {}
    metrics = Metrics.of_spec(spec, [program])
    large = (row for row in data["scores"] if abs(row["value"] or 0.0) > MOST_SHARE)
    named = {name: Metrics(metrics.declared).of(name) for name in map(_name, large)}
    of_hundred = {name: metric.of_hundred for name, metric in named.items() if metric.in_percent}
    return replace(metrics, declared={**metrics.declared, **of_hundred})


def _name(score: Mapping[str, Any]) -> str:
    return f"{score['dataset']}/{score['metric']}"


def _folded(attempts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return attempts as the page shows them; consecutive ones with the same end are one row."""
    rows: list[dict[str, Any]] = []
    for attempt in attempts:
        start, end = (  # SQLite returns text
            datetime.fromisoformat(str(attempt[name])) if attempt[name] else None
            for name in ("started_at", "ended_at")
        )
        row = {
            **{name: attempt[name] for name in ("state", "host", "executor", "device")},
            "error": headline(attempt["reason"] or ""),
            "detail": attempt["reason"] or "",
            "code": _code(attempt),
            "number": attempt["number"],
            "times": 1,
            "started": when(start),
            "took": duration((end - start).total_seconds()) if start and end else "",
        }
        kind = [*(row[name] for name in ("state", "host", "executor", "code")), kind_of(row["error"])]
        if rows and rows[-1]["kind"] == kind:
            before = rows.pop()
            row |= {"number": before["number"], "started": before["started"], "times": before["times"] + 1}
        rows.append(row | {"kind": kind, "last": attempt["number"]})
    return rows


def _code(attempt: Mapping[str, Any]) -> str:
    """Describe the versions of jestlab and of custom code."""
    own, custom = (
        (attempt[commit] or "")[:10] + (" and changes" if attempt[patch] else "")
        for commit, patch in (("git_commit", "git_patch"), ("code_commit", "code_patch"))
    )
    return f"{own}; custom {custom}" if custom else own


def page(labs: Labs, request: Request) -> Any:
    """Show a run."""
    served, fingerprint = _requested_run(labs, request)
    lab, store = request.query_params.get("lab"), served.store
    if fingerprint != request.path_params["fingerprint"]:
        return RedirectResponse(address("run", fingerprint, lab=lab), 303)
    data = read(store, fingerprint)
    places, attempts = data["places"], data["attempts"]
    experiment = places[0]["experiment"] if places else None
    record = store.run(fingerprint)
    metrics = metrics_of(served, data, record.program)
    scores = last_scores(data["scores"], metrics)
    subject = Subject(fingerprint=fingerprint)
    last = attempts[-1] if attempts else {}
    row = _row(served, experiment, fingerprint) if experiment else None
    return render(
        "run.html.j2",
        here="",
        served=served,
        several=len(labs) > 1,
        fingerprint=fingerprint,
        record=record,
        row=row,
        title=title_of(data, fingerprint),
        places=places,
        charts=charts_of(data, metrics),
        scores=scores,
        attempts=_folded(attempts),
        versions=json.loads(last.get("versions") or "{}"),
        environment=json.loads(last.get("environment") or "{}"),
        needs=data["needs"],
        config=[(key, as_text(value)) for key, value in sorted(flat(record.config).items())],
        baseline=_baseline(store, experiment, fingerprint) if experiment else None,
        changed=_changed(record),
        pictures=_recorded_steps(served, fingerprint),
        notes=notes(store, subject),
        tags=tags(store, subject),
        writes=labs.writes,
        data=lambda kind, **query: address("run", fingerprint, kind, lab=lab, **query),
    )


def charts_of(data: _Data, metrics: Metrics) -> dict[str, str]:
    """Return name → title of the charts of a run: the loss, scores, then all other metrics."""
    logged = sorted({row["name"] for row in data["metrics"]} - {*_EFFORTS})
    first = [LOSS] if LOSS in logged else []
    names = dict.fromkeys([*first, *sorted(map(_name, data["scores"])), *logged]) or [LOSS]
    return {name: heading(name, metrics.of(name)) for name in names}


def curves(labs: Labs, request: Request) -> dict[str, Any]:
    """Return the curves of some metrics of a run, thinned for a plot of a given width in pixels.

    `x` has values for each horizontal axis: steps, and examples and seconds if they were recorded. Between
    their records, which are rarer than steps, they are interpolated.
    """
    served, fingerprint = _requested_run(labs, request)
    given = parse_whole(request.query_params.get("width", ""))
    width = 800 if given is None else min(max(given, 50), 4_000)
    names = request.query_params.getlist("metric")[:MOST_CURVES] or [LOSS]
    clocks = {axis: _clock(served.store, fingerprint, column) for axis, column in _CLOCKS.items()}
    charts = {}
    for name, (steps, values) in curves_in_units(served, fingerprint, names, width).items():
        x = {"steps": steps} | {axis: _at(clock, steps) for axis, clock in clocks.items() if len(clock) > 1}
        charts[name] = [{"x": x, "y": values}]
    return {"charts": charts, "left": 0}


def curves_in_units(
    served: Served, fingerprint: str, names: Sequence[str], width: int | None = None
) -> dict[str, Curve]:
    """Return the curves of metrics, or of scores where no metric has the name, in their units."""
    data, found = read(served.store, fingerprint, "places", "scores"), {}
    metrics = metrics_of(served, data, served.store.run(fingerprint).program)
    for name in names:
        steps, values = curves_of(served.store, [fingerprint], name, width)[fingerprint]
        if not steps:
            points = [row for row in data["scores"] if _name(row) == name]
            steps, values = [row["step"] for row in points], [row["value"] for row in points]
        factor = metrics.of(name).factor
        known = (math.nan if value is None else factor * value for value in values)
        found[name] = steps, [value if math.isfinite(value) else None for value in known]
    return found


def _clock(store: Store, fingerprint: str, column: str) -> dict[int, float]:
    """Return the examples or seconds at the start and at the steps where they were recorded."""
    logged = curves_of(store, [fingerprint], column)[fingerprint]
    rows = read(store, fingerprint, "scores")["scores"]
    points = [*((row["step"], row[column]) for row in rows), *zip(*logged, strict=True)]
    return {0: 0.0} | {step: value for step, value in points if value is not None}


def _at(clock: Mapping[int, float], steps: Sequence[int]) -> list[float | None]:
    """Interpolate examples or seconds at steps; None after the last record."""
    xs, ys = zip(*sorted(clock.items()), strict=True)
    return [None if step > xs[-1] else float(np.interp(step, xs, ys)) for step in steps]


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
    places = read(served.store, fingerprint, "places")["places"]
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


def title_of(data: dict[str, Any], fingerprint: str) -> str:
    """Return `experiment/label/seed`, in the first experiment of a run, or the start of its fingerprint."""
    places = data["places"]
    return "{experiment}/{label}/{seed}".format(**places[0]) if places else f"run {fingerprint[:8]}"


def _requested_run(labs: Labs, request: Request) -> tuple[Served, str]:
    return labs.with_run(request.path_params["fingerprint"], request.query_params.get("lab"))


def _row(served: Served, experiment: str, fingerprint: str) -> dict[str, Any] | None:
    """Return the run's cells on its experiment's page."""
    rows = served.status(experiment).rows
    return next((cells([row]) for row in rows if row.run.fingerprint == fingerprint), None)


def _changed(record: RunRecord) -> list[tuple[str, str, str]]:
    """Return the config keys that differ from the program's defaults: key, default, and value."""
    try:
        config = programs.get(record.program).read(record.config)
    except (UserError, ValidationError):  # the program is gone or has changed
        return []
    if not isinstance(config, BaseModel):
        return []
    values = flat(config.model_dump(mode="json", exclude_defaults=True))
    defaults = flat(type(config).model_construct().model_dump(mode="json", warnings=False))
    return [
        (key, as_text(defaults[key]) if key in defaults else "", as_text(value))
        for key, value in sorted(values.items())
    ]


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
    attempts = read(served.store, fingerprint, "attempts")["attempts"]
    labs = [each["lab"] for each in attempts if each["lab"]]
    return f"The log is in the lab at {labs[-1]}." if labs else "The log is not written yet."
