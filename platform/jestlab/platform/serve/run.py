"""The page of a run."""

import json
import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from markupsafe import Markup
from pydantic import BaseModel, ValidationError
from sqlalchemy import select, text
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from jestlab.analysis.colors import BASELINE
from jestlab.analysis.provenance.code import parsed
from jestlab.analysis.tables.show import heading
from jestlab.platform import logs, programs
from jestlab.platform.errors import StoreError, UserError, one_line_errors
from jestlab.platform.programs.failures import headline, kind_of
from jestlab.platform.serve.compare import side_by_side
from jestlab.platform.serve.groups import Status, cells
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import address, as_texts, duration, parse_whole, render, when
from jestlab.platform.serve.search import last_scores
from jestlab.platform.serve.shown import ShownRun, charts
from jestlab.platform.store.annotations import Subject, notes, tags
from jestlab.platform.store.records import ADOPTED, RunRecord
from jestlab.platform.store.tables import AttemptRow, run_key

TAIL_BYTES = 64 * 1024
"""Size of the part of a log that is sent at first, its end, and maximum size of each later part."""

PICTURES = 12
"""Number of selected examples shown for a step; the number of rejected ones is the same."""


def page(labs: Labs, request: Request) -> Any:
    """Show a run."""
    served, fingerprint = _requested_run(labs, request)
    lab, store, is_live = request.query_params.get("lab"), served.store, "live" in request.headers
    if fingerprint != request.path_params["fingerprint"]:
        return RedirectResponse(address("run", fingerprint, lab=lab), 303)
    run = ShownRun.read(served, fingerprint)
    is_of_run = AttemptRow.run_id == run_key(fingerprint)
    attempts = store.rows(select(AttemptRow.__table__).where(is_of_run).order_by(AttemptRow.number))
    last = attempts[-1] if attempts else None
    status = served.status(run.places[0].experiment) if run.places else Status()
    baseline = next((label for label, color in status.colors.items() if color == BASELINE), None)
    peers = {row.run.seed: row.run.fingerprint for row in status.groups.get(baseline or "", ())}
    peer = peers.get(run.record.seed, next(iter(peers.values()), fingerprint))
    ours, theirs = as_texts(run.record.config), as_texts(store.run(peer).config)
    differ = {key for key in ours | theirs if ours.get(key) != theirs.get(key)}
    in_study = [{"experiment": place.experiment, "fingerprint": fingerprint} for place in run.places[:1]]
    subject = Subject(fingerprint=fingerprint)
    return render(
        "run.html.j2",
        run=run,
        lab=served.name if len(labs) > 1 else None,
        row=next((cells([row]) for row in status.rows if row.run.fingerprint == fingerprint), None),
        score=next(iter(last_scores(store, in_study).values()), ""),
        scores=[
            (heading(name, metric), "not a number" if row.value is None else metric.text(row.value), row.step)
            for name, row in run.last.items()
            for metric in [run.metrics.of(name)]
        ],
        attempts=_folded(attempts),
        recorded={
            "Package versions": json.loads((last and last.versions) or "{}"),
            "Environment": json.loads((last and last.environment) or "{}"),
        },
        config=_first(sorted(ours.items()), differ),
        baseline=baseline,
        changed=[] if is_live else _first(_changed(run.record), differ),
        pictures=[] if is_live else _recorded_steps(served, run.record),
        notes=notes(store, subject),
        tags=tags(store, subject),
        writes=labs.writes,
        data=lambda kind: address("run", fingerprint, kind, lab=lab),
    )


def _requested_run(labs: Labs, request: Request) -> tuple[Served, str]:
    return labs.with_run(request.path_params["fingerprint"], request.query_params.get("lab"))


def _folded(attempts: Iterable[Any]) -> list[dict[str, Any]]:
    """Return attempts as the page shows them; consecutive ones with the same end are one row."""
    rows: list[dict[str, Any]] = []
    for attempt in attempts:
        start, end = attempt.started_at, attempt.ended_at
        installed = (parsed(attempt.versions) or {}).get("jestlab", "")
        own = _code(attempt.git_commit, attempt.git_patch) or installed
        custom = _code(attempt.code_commit, attempt.code_patch)
        row = {
            "state": attempt.state,
            "where": ", ".join(filter(None, (attempt.executor, attempt.host, attempt.device))),
            "code": "; ".join(filter(None, (own, custom and f"custom {custom}"))),
            "error": headline(attempt.reason or ""),
            "detail": attempt.reason or "",
            "number": attempt.number,
            "times": 1,
            "started": when(start),
            "took": duration((end - start).total_seconds()) if start and end else "",
        }
        kind = row["state"], row["where"], row["code"], kind_of(row["error"])
        if rows and rows[-1]["kind"] == kind:
            before = rows.pop()
            row |= {"number": before["number"], "started": before["started"], "times": before["times"] + 1}
        rows.append(row | {"kind": kind, "last": attempt.number})
    return rows


def _code(commit: str | None, patch: str | None) -> str:
    """Describe a version of code."""
    return f"{commit[:10]}{' and changes' if patch else ''}" if commit else ""


def _first(rows: Collection[Sequence[str]], keys: set[str]) -> list[list[str]]:
    """Return the rows of a table with those of some keys first, in bold."""
    marked = [[Markup("<b>{}</b>").format(key), *texts] for key, *texts in rows if key in keys]
    return marked + [[*row] for row in rows if row[0] not in keys]


def _changed(record: RunRecord) -> list[list[str]]:
    """Return the config keys that differ from the program's defaults: key, default, and value."""
    try:
        config = programs.get(record.program).read(record.config)
    except (UserError, ValidationError):  # the program is gone or has changed
        return []
    if not isinstance(config, BaseModel):
        return []
    values = as_texts(config.model_dump(mode="json", exclude_defaults=True))
    defaults = as_texts(type(config).model_construct().model_dump(mode="json", warnings=False))
    return side_by_side([{key: defaults.get(key, "") for key in values}, values])


def _recorded_steps(served: Served, record: RunRecord) -> list[int]:
    """Choose up to three steps with recorded examples."""
    from jestlab.models.training import records

    try:
        steps = records.recorded(served.lab.inside(record.directory))
    except (UserError, StoreError):
        return []
    return sorted({steps[0], steps[len(steps) // 4], steps[-1]}) if steps else []


def curves(labs: Labs, request: Request) -> dict[str, Any]:
    """Return charts of a run: see `charts`."""
    run = ShownRun.read(*_requested_run(labs, request))
    return charts([(run, {})], request.query_params.getlist("metric"))


def log(labs: Labs, request: Request) -> Response:
    """Return the end of a run's log, or its part after an offset.

    The header `start` is the offset of the part. A response without this header explains why no log exists.
    """
    served, fingerprint = _requested_run(labs, request)
    record = served.store.run(fingerprint)
    path = served.lab.inside(f"{record.directory}/{logs.NAME}")
    if not path.is_file():  # opening a pipe would wait for a writer
        return PlainTextResponse(_no_log(served, record))
    given = parse_whole(request.query_params.get("from", ""))
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        start = given if given is not None and given <= size else max(0, size - TAIL_BYTES)
        stream.seek(start)
        part = stream.read(TAIL_BYTES)
    return Response(part, headers={"start": str(start)}, media_type="application/octet-stream")


def _no_log(served: Served, record: RunRecord) -> str:
    if record.program == ADOPTED:
        return "This run was imported; see the original tool for its log."
    query = text("SELECT lab FROM v_attempts WHERE fingerprint = :run AND lab IS NOT NULL ORDER BY number")
    labs = [lab for (lab,) in served.store.rows(query.bindparams(run=record.fingerprint))]
    return f"The log is in the lab at {labs[-1]}." if labs else "The log is not written yet."


def batch(labs: Labs, request: Request) -> Response:
    """Return a picture of selected and rejected examples at the recorded step nearest to a step, as PNG."""
    from jestlab.analysis.figures.selected import super_batch
    from jestlab.platform.reports.selected import RecordedRun, sample

    shown = ShownRun.read(*_requested_run(labs, request))
    if not shown.places:
        raise Missing(f"{shown.title} belongs to no experiment")
    if (wanted := parse_whole(request.path_params["step"])) is None:
        raise Missing(f"no step {request.path_params['step'][:40]!r}")
    served = shown.served
    [row, *_] = served.store.runs(shown.places[0].experiment, [shown.fingerprint])
    with one_line_errors():
        run = RecordedRun(served.lab, served.store, row)
        step = run.nearest(wanted)
        found = run.batch(step)
        examples = [each for part in sample(found, PICTURES) for each in run.examples(step, found, part)]
        caption = (
            f"Step {step:,}: selected examples in drawing order, rejected ones evenly spread; with captions "
            "and scores."
        )
        drawn = super_batch(f"step-{step}", examples, "", caption).png()
    return Response(drawn, media_type="image/png")
