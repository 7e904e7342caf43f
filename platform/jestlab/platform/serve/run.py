"""The page of a run, and the comparison of several runs."""

from __future__ import annotations

import codecs
import json
import stat
from pathlib import Path
from typing import Any

from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from jestlab.analysis.claims import studies
from jestlab.analysis.configs import flat
from jestlab.platform import logs
from jestlab.platform.errors import StoreError, UserError, one_line_errors
from jestlab.platform.launch.status import LOSS
from jestlab.platform.planning import compare as comparison
from jestlab.platform.serve.curves import curves_of
from jestlab.platform.serve.experiment import cells
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import address, number, plain, rendered, whole
from jestlab.platform.store.annotations import Subject, notes, tags
from jestlab.platform.store.records import ADOPTED
from jestlab.platform.store.store import Store

TAIL_BYTES = 64 * 1024
"""Bytes of the end of a log shown first, and maximum size of a later part."""

PICTURES = 12
"""Number of selected, and of rejected examples, shown for a step."""

MOST_CURVES = 12
"""Maximum number of metrics of a run in one plot."""

MOST_COMPARED = 20
"""Maximum number of compared runs."""

_CONTINUATION = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 within a character."""


def page(labs: Labs, request: Request) -> Any:
    """Show a run."""
    served, fingerprint = _found(labs, request)
    lab, store = request.query_params.get("lab"), served.store
    if fingerprint != request.path_params["fingerprint"]:
        return RedirectResponse(address("run", fingerprint, lab=lab), 303)
    places = _places(store, fingerprint)
    experiment = places[0]["experiment"] if places else None
    record = store.run(fingerprint)
    subject = Subject(fingerprint=fingerprint)
    return rendered(
        "run.html.j2",
        here="",
        served=served,
        several=len(labs) > 1,
        fingerprint=fingerprint,
        record=record,
        places=places,
        row=_row(served, experiment, fingerprint) if experiment else None,
        title=f"{places[0]['label']}/{places[0]['seed']}" if places else f"run {fingerprint[:8]}",
        config=[(key, plain(value)) for key, value in sorted(flat(record.config).items())],
        baseline=_baseline(store, experiment, fingerprint) if experiment else None,
        scores=_scores(store, fingerprint),
        attempts=_attempts(store, fingerprint),
        needs=_needs(store, fingerprint),
        metrics=_metrics(store, fingerprint),
        pictures=_recorded_steps(served, fingerprint),
        notes=notes(store, subject),
        tags=tags(store, subject),
        writes=labs.writes,
        data=lambda kind, **query: address("run", fingerprint, kind, lab=lab, **query),
    )


def curves(labs: Labs, request: Request) -> dict[str, Any]:
    """Return curves of metrics of a run for a width in pixels."""
    served, fingerprint = _found(labs, request)
    given = whole(request.query_params.get("width", ""))
    width = 800 if given is None else min(max(given, 50), 4_000)
    names = request.query_params.getlist("metric")[:MOST_CURVES] or [LOSS]
    found = {name: curves_of(served.store, [fingerprint], name, width)[fingerprint] for name in names}
    return {"curves": {name: {"x": x, "y": y} for name, (x, y) in found.items()}}


def log(labs: Labs, request: Request) -> dict[str, Any]:
    """Return the end of a run's log, or its part after an offset."""
    served, fingerprint = _found(labs, request)
    name = f"{served.store.run(fingerprint).directory}/{logs.NAME}"
    given = whole(request.query_params.get("from", ""))
    try:
        path = served.lab.inside(name)
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
            raise OSError(f"{name} is not a file")
        is_offset = given is not None and given <= status.st_size
        start = given if given is not None and is_offset else max(0, status.st_size - TAIL_BYTES)
        with path.open("rb") as stream:
            stream.seek(start)
            block = stream.read(TAIL_BYTES)
    except FileNotFoundError:
        return {"text": "", "to": 0, "why": _no_log(served, fingerprint)}
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a loop
        why = f"The log can't be read: {getattr(error, 'strerror', None) or error}."
        return {"text": "", "to": 0, "why": why}
    # A character at the start of the tail may be incomplete; one at its end is sent again when complete.
    complete = block.lstrip(_CONTINUATION) if 0 < start != given else block
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoded = decoder.decode(complete)
    to = start + len(block) - len(decoder.getstate()[0])
    return {"text": decoded, "to": to, "cut": start > 0 and given is None}


def batch(labs: Labs, request: Request) -> Response:
    """Return a picture of selected and rejected examples of a step, as PNG."""
    from jestlab.analysis.figures.selected import super_batch
    from jestlab.platform.reports.selected import RecordedRun, sample

    served, fingerprint = _found(labs, request)
    places = _places(served.store, fingerprint)
    if not places:
        raise Missing(f"run {fingerprint[:8]} belongs to no experiment")
    if (wanted := whole(request.path_params["step"])) is None:
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
    found = [labs.with_run(each, lab) for each in wanted]
    if "data" in request.query_params:
        series = []
        for served, fingerprint in found:
            x, y = curves_of(served.store, [fingerprint], metric)[fingerprint]
            series.append({"run": fingerprint, "name": _title(served.store, fingerprint), "x": x, "y": y})
        return {"series": series, "left": 0}
    runs: list[dict[str, Any]] = []
    metrics: dict[str, None] = {}
    for served, fingerprint in found:
        record = served.store.run(fingerprint)
        metrics |= dict.fromkeys(_metrics(served.store, fingerprint))
        config = flat(record.config) | {"program": record.program}
        runs.append(
            {
                "run": fingerprint,
                "title": _title(served.store, fingerprint),
                "config": {key: plain(value) for key, value in config.items()},
                "scores": {each["name"]: each["value"] for each in _scores(served.store, fingerprint)},
            }
        )
    config_rows = _side_by_side([each["config"] for each in runs])
    return rendered(
        "compare.html.j2",
        here="",
        runs=runs,
        config=[(key, row) for key, row in config_rows if len(set(row)) > 1],
        scores=_side_by_side([each["scores"] for each in runs]),
        metrics=list(metrics),
        metric=metric,
        most=MOST_COMPARED,
        lab=lab,
    )


def _side_by_side(columns: list[dict[str, str]]) -> list[tuple[str, list[str]]]:
    keys = sorted({key for column in columns for key in column})
    return [(key, [column.get(key, "–") for column in columns]) for key in keys]


def _title(store: Store, fingerprint: str) -> str:
    places = _places(store, fingerprint)
    return "{experiment}/{label}/{seed}".format(**places[0]) if places else fingerprint[:8]


def _found(labs: Labs, request: Request) -> tuple[Served, str]:
    return labs.with_run(request.path_params["fingerprint"], request.query_params.get("lab"))


def _row(served: Served, experiment: str, fingerprint: str) -> dict[str, Any] | None:
    """Return the run's cells on its experiment's page."""
    for index, row in enumerate(served.status(experiment)):
        if row.run.fingerprint == fingerprint:
            return cells(row, index)
    return None


# ---- data of a run


def _query(store: Store, sql: str, fingerprint: str) -> list[dict[str, Any]]:
    with store.reading() as connection:
        return [dict(row._mapping) for row in connection.execute(text(sql), {"run": fingerprint})]


_ID = "(SELECT id FROM run WHERE fingerprint = :run)"


def _places(store: Store, fingerprint: str) -> list[dict[str, Any]]:
    """Return the run's experiments, and its label and seed in each."""
    sql = "SELECT experiment, label, seed FROM v_runs WHERE fingerprint = :run ORDER BY experiment, position"
    return _query(store, sql, fingerprint)


def _scores(store: Store, fingerprint: str) -> list[dict[str, str]]:
    """Return the last value of each score."""
    sql = f"SELECT dataset, metric, step, value FROM evaluation WHERE run_id = {_ID} ORDER BY step"
    last = {f"{row['dataset']}/{row['metric']}": row for row in _query(store, sql, fingerprint)}
    return [
        {"name": name, "value": number(row["value"]) or "not a number", "step": f"{row['step']:,}"}
        for name, row in sorted(last.items())
    ]


def _attempts(store: Store, fingerprint: str) -> list[dict[str, Any]]:
    """Return all attempts in order, each with its code, versions, and machine."""
    sql = (
        "SELECT DISTINCT number, state, reason, executor, host, device, claimed_at, started_at, ended_at, "
        "exit_code, git_commit, git_patch, code_commit, code_patch, versions, environment, lab "
        "FROM v_attempts WHERE fingerprint = :run ORDER BY number"
    )
    rows = _query(store, sql, fingerprint)
    for row in rows:
        row |= {name: json.loads(row[name]) if row[name] else {} for name in ("versions", "environment")}
        row |= {name: str(row[name] or "")[:19] for name in ("claimed_at", "started_at", "ended_at")}
    return rows


def _needs(store: Store, fingerprint: str) -> list[dict[str, Any]]:
    """Return the dependencies of a run, by role."""
    sql = (
        "SELECT need.role, needed.fingerprint, needed.state, needed.directory FROM need "
        f"JOIN run AS needed ON needed.id = need.needs_id WHERE need.run_id = {_ID} ORDER BY need.role"
    )
    return _query(store, sql, fingerprint)


def _metrics(store: Store, fingerprint: str) -> list[str]:
    """Return the names of the run's metrics, the loss first."""
    sql = (
        "SELECT name FROM metric_name WHERE EXISTS "
        f"(SELECT 1 FROM metric WHERE metric.name_id = metric_name.id AND metric.run_id = {_ID})"
    )
    names = [row["name"] for row in _query(store, sql, fingerprint)]
    return sorted(names, key=lambda name: (name != LOSS, name))


def _baseline(store: Store, experiment: str, fingerprint: str) -> dict[str, Any] | None:
    """Compare a run's config with that of the baseline of the same seed; None for the baseline itself."""
    with store.reading() as connection, one_line_errors():
        study = studies(connection).get(experiment)
    if study is None or study.baseline is None:
        return None
    rows = store.runs(experiment)
    run = next(row for row in rows if row.fingerprint == fingerprint)
    baselines = [row for row in rows if study.baseline in (row.label, row.name)]
    if not baselines or run in baselines:
        return None
    other = next((row for row in baselines if row.seed == run.seed), baselines[0])
    different = comparison.compare(store, other.fingerprint, fingerprint).differences["config"]
    return {
        "title": f"{other.label}/{other.seed}",
        "fingerprint": other.fingerprint,
        "differences": [(key, plain(pair.first), plain(pair.second)) for key, pair in different.items()],
    }


def _recorded_steps(served: Served, fingerprint: str) -> list[int]:
    """Choose up to three steps with recorded examples."""
    from jestlab.models.training import batches

    try:
        folder: Path = served.lab.inside(served.store.run(fingerprint).directory)
    except (UserError, StoreError):
        return []
    steps = batches.recorded(folder)
    return sorted({steps[0], steps[len(steps) // 4], steps[-1]}) if steps else []


def _no_log(served: Served, fingerprint: str) -> str:
    if served.store.run(fingerprint).program == ADOPTED:
        return "This run was imported; see the original tool for its log."
    labs = [each["lab"] for each in _attempts(served.store, fingerprint) if each["lab"]]
    return f"The log is in the lab at {labs[-1]}." if labs else "The log is not written yet."
