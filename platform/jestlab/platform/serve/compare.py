"""Any runs side by side: where configs differ, last scores, curves."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from jestlab.analysis.configs import flat
from jestlab.platform.launch.status import LOSS
from jestlab.platform.serve import facts
from jestlab.platform.serve.curves import curves_of
from jestlab.platform.serve.labs import Labs
from jestlab.platform.serve.rendering import rendered

MOST = 20
"""Runs that are compared at a time."""


def page(labs: Labs, request: Request) -> Any:
    """Compare the runs that the address names, `?run=…&run=…`; with `data` in it, return their curves."""
    asked = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST]
    lab = request.query_params.get("lab")
    found = [labs.with_run(each, lab) for each in asked]
    metric = request.query_params.get("metric", LOSS)
    if "data" in request.query_params:
        series = []
        for served, fingerprint in found:
            x, y = curves_of(served, [fingerprint], metric)[fingerprint]
            series.append({"run": fingerprint, "name": _title(served, fingerprint), "x": x, "y": y})
        return {"series": series, "left": 0}
    runs: list[dict[str, Any]] = []
    metrics: dict[str, None] = {}
    for served, fingerprint in found:
        record = served.store.run(fingerprint)
        metrics |= dict.fromkeys(facts.metrics(served.store, fingerprint))
        runs.append(
            {
                "run": fingerprint,
                "title": _title(served, fingerprint),
                "state": record.state,
                "config": flat(record.config) | {"program": record.program},
                "scores": {each["name"]: each["value"] for each in facts.scores(served.store, fingerprint)},
            }
        )
    return rendered(
        "compare.html.j2",
        here="",
        runs=runs,
        config=_table([each["config"] for each in runs], differing=True),
        scores=_table([each["scores"] for each in runs], differing=False),
        metrics=list(metrics),
        metric=metric,
        most=MOST,
        lab=lab,
    )


def _title(served: Any, fingerprint: str) -> str:
    rows = facts.places(served.store, fingerprint)
    return f"{rows[0]['experiment']}/{rows[0]['label']}/{rows[0]['seed']}" if rows else fingerprint[:8]


def _table(columns: list[dict[str, Any]], *, differing: bool) -> list[tuple[str, list[str]]]:
    """Lay out what runs have under the same keys; of configs only where they differ."""
    rows = []
    for key in sorted({key for column in columns for key in column}):
        cells = [facts.plain(column.get(key)) if key in column else "–" for column in columns]
        if not differing or len(set(cells)) > 1:
            rows.append((key, cells))
    return rows
