"""The page of a run: config, difference to the baseline, curves, log, pictures, attempts."""

from __future__ import annotations

import codecs
import stat
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from jestlab.analysis.configs import flat
from jestlab.platform import logs
from jestlab.platform.errors import StoreError, UserError, one_line_errors
from jestlab.platform.launch.status import LOSS
from jestlab.platform.serve import facts
from jestlab.platform.serve.curves import curves_of
from jestlab.platform.serve.experiment import row
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import address, rendered, whole
from jestlab.platform.store.annotations import Subject, notes, tags
from jestlab.platform.store.records import ADOPTED

TAIL_BYTES = 64 * 1024
"""How much of the end of a log is shown at first, and of what has come since at a time."""

PICTURES = 12
"""Pictures of the selected, and of the rejected, at a step."""

_CONTINUED = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 with which no character begins."""

MOST_CURVES = 12
"""Curves of a run that are drawn at a time."""


def page(labs: Labs, request: Request) -> Any:
    """Show a run."""
    served, fingerprint = _found(labs, request)
    lab = request.query_params.get("lab")
    if fingerprint != request.path_params["fingerprint"]:
        return RedirectResponse(address("run", fingerprint, lab=lab), 303)
    of = facts.places(served.store, fingerprint)
    record = served.store.run(fingerprint)
    experiment = of[0]["experiment"] if of else None
    line = _line(served, experiment, fingerprint) if experiment else None
    return rendered(
        "run.html.j2",
        here="",
        served=served,
        several=len(labs) > 1,
        fingerprint=fingerprint,
        record=record,
        of=of,
        line=line,
        title=f"{of[0]['label']}/{of[0]['seed']}" if of else f"run {fingerprint[:8]}",
        config=[(key, facts.plain(value)) for key, value in sorted(flat(record.config).items())],
        baseline=facts.baseline(served.store, experiment, fingerprint) if experiment else None,
        scores=facts.scores(served.store, fingerprint),
        attempts=facts.attempts(served.store, fingerprint),
        needs=facts.needs(served.store, fingerprint),
        metrics=facts.metrics(served.store, fingerprint),
        pictures=_pictures(served, fingerprint),
        notes=notes(served.store, Subject(fingerprint=fingerprint)),
        tags=tags(served.store, Subject(fingerprint=fingerprint)),
        writes=labs.writes,
        own=partial(address, "run", fingerprint, lab=lab),
        data=lambda kind, **query: address("run", fingerprint, kind, lab=lab, **query),
    )


def live(labs: Labs, request: Request) -> dict[str, Any]:
    """Return how a run stands now."""
    served, fingerprint = _found(labs, request)
    of = facts.places(served.store, fingerprint)
    return {"row": _line(served, of[0]["experiment"], fingerprint) if of else None}


def curves(labs: Labs, request: Request) -> dict[str, Any]:
    """Return curves of metrics of a run, thinned for a width in pixels so that spikes survive."""
    served, fingerprint = _found(labs, request)
    given = whole(request.query_params.get("width", ""))
    width = 800 if given is None else min(max(given, 50), 4_000)
    names = request.query_params.getlist("metric")[:MOST_CURVES] or [LOSS]
    found = {name: curves_of(served, [fingerprint], name, width)[fingerprint] for name in names}
    return {"curves": {name: {"x": x, "y": y} for name, (x, y) in found.items()}}


def log(labs: Labs, request: Request) -> dict[str, Any]:
    """Return the end of a run's log, or what has come to it since an offset."""
    served, fingerprint = _found(labs, request)
    directory = served.store.run(fingerprint).directory
    given = whole(request.query_params.get("from", ""))
    try:
        path = served.lab.inside(f"{directory}/{logs.NAME}")
        if not stat.S_ISREG((status := path.stat()).st_mode):  # to open a pipe waits for a writer
            raise OSError(f"it is not a file: {directory}/{logs.NAME}")
        size = status.st_size
        start = given if given is not None and given <= size else max(0, size - TAIL_BYTES)
        with path.open("rb") as stream:
            stream.seek(start)
            block = stream.read(TAIL_BYTES)
    except FileNotFoundError:
        return {"text": "", "to": 0, "why": _no_log(served, fingerprint)}
    except (OSError, RuntimeError) as error:  # the latter of a loop of links
        why = f"Its log cannot be read: {getattr(error, 'strerror', None) or error}."
        return {"text": "", "to": 0, "why": why}
    # The rest of a character that begins before is left out; the beginning of one comes again with its rest.
    whole_block = block.lstrip(_CONTINUED) if 0 < start != given else block
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(whole_block)
    to = start + len(block) - len(decoder.getstate()[0])
    return {"text": text, "to": to, "cut": start > 0 and given is None}


def batch(labs: Labs, request: Request) -> Response:
    """Return a picture of what a run selected and rejected at a step, as PNG."""
    from jestlab.analysis.figures.selected import super_batch
    from jestlab.platform.reports.selected import RecordedRun, sample

    served, fingerprint = _found(labs, request)
    of = facts.places(served.store, fingerprint)
    if not of:
        raise Missing(f"run {fingerprint[:8]} belongs to no experiment")
    [recorded, *_] = served.store.runs(of[0]["experiment"], [fingerprint])
    with one_line_errors():
        run = RecordedRun(served.lab, served.store, recorded)
        if (asked := whole(request.path_params["step"])) is None:
            raise Missing(f"no step {request.path_params['step'][:40]!r}")
        step = run.nearest(asked)
        found = run.batch(step)
        shown = [each for part in sample(found, PICTURES) for each in run.examples(step, found, part)]
        caption = (
            f"Step {step:,}: selected as they were drawn, rejected spread evenly; with captions and scores."
        )
        drawn = super_batch(f"step-{step}", shown, "", caption).png()
    return Response(drawn, media_type="image/png")


def _found(labs: Labs, request: Request) -> tuple[Served, str]:
    return labs.with_run(request.path_params["fingerprint"], request.query_params.get("lab"))


def _line(served: Served, experiment: str, fingerprint: str) -> dict[str, Any] | None:
    """Return what the experiment's page shows of a run."""
    for place, line in enumerate(served.tail(experiment).snapshot().lines):
        if line.run.fingerprint == fingerprint:
            return row(line, place)
    return None


def _pictures(served: Served, fingerprint: str) -> list[int]:
    """Return the steps of which pictures of what was selected can be shown; none where there are none."""
    from jestlab.models.training import batches

    try:
        folder: Path = served.lab.inside(served.store.run(fingerprint).directory)
    except (UserError, StoreError):
        return []
    steps = batches.recorded(folder)
    return sorted({steps[0], steps[len(steps) // 4], steps[-1]}) if steps else []


def _no_log(served: Served, fingerprint: str) -> str:
    if served.store.run(fingerprint).program == ADOPTED:
        return "It was adopted: its log is where its tool has left it."
    places = [each["lab"] for each in facts.attempts(served.store, fingerprint) if each["lab"]]
    return f"Its log is in the lab at {places[-1]}." if places else "It has no log yet."
