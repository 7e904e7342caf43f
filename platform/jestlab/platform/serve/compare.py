"""The comparison of several runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from jestlab.analysis.colors import in_order
from jestlab.analysis.configs import flat
from jestlab.analysis.intervals import direction
from jestlab.analysis.metrics import Metric
from jestlab.analysis.tables.show import MISSING
from jestlab.analysis.units import near
from jestlab.platform.launch.status import LOSS
from jestlab.platform.serve.experiment import paint
from jestlab.platform.serve.labs import Labs, Missing, Served
from jestlab.platform.serve.rendering import as_text, render
from jestlab.platform.serve.run import (
    MOST_CURVES,
    charts_of,
    curves_in_units,
    last_scores,
    metrics_of,
    read,
    title_of,
)

MOST_COMPARED = 20
"""Maximum number of compared runs."""


def page(labs: Labs, request: Request) -> Any:
    """Compare the runs of `?run=…&run=…`; with `data` in the address, return their curves.

    A run is `experiment/label/seed` or a fingerprint; `experiment/label` means all seeds of a label.
    """
    query, lab = request.query_params, request.query_params.get("lab")
    found = {
        pair[1]: pair for name in dict.fromkeys(query.getlist("run")) for pair in _named(labs, name, lab)
    }
    left, pairs = max(0, len(found) - MOST_COMPARED), list(found.values())[:MOST_COMPARED]
    runs = [_compared(served, fingerprint) for served, fingerprint in pairs]
    _, *colors = in_order(map(str, range(len(runs))), "").values()
    if "data" in query:
        names = query.getlist("metric")[:MOST_CURVES] or [LOSS]
        charts: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for (served, fingerprint), run, color in zip(pairs, runs, colors, strict=True):
            line = {"run": fingerprint, "label": run["name"], "name": run["name"], **paint(color)}
            for name, curve in curves_in_units(served, fingerprint, names).items():
                charts[name].append(line | dict(zip("xy", curve, strict=True)))
        return {"charts": charts, "left": left}
    config = _side_by_side([run["config"] for run in runs])
    return render(
        "compare.html.j2",
        here="",
        runs=runs,
        colors=colors,
        left=left,
        different=[(key, row) for key, row in config if len(set(row)) > 1],
        equal=[(key, row[0]) for key, row in config if len(set(row)) == 1],
        scores=_differences([run["scores"] for run in runs]),
        charts={name: title for run in runs for name, title in run["charts"].items()},
        most=MOST_COMPARED,
        lab=lab,
        names=[run["name"] for run in runs],
    )


def _named(labs: Labs, name: str, lab: str | None) -> list[tuple[Served, str]]:
    """Find the runs that a name of a comparison means; a run comes before a label of the same name."""
    experiment, _, rest = name.partition("/")
    if not rest:
        return [labs.with_run(name, lab)]
    served = labs.with_experiment(experiment, lab)
    rows = [row.run for row in served.status(experiment).rows]
    label, _, seed = rest.rpartition("/")
    one = [run.fingerprint for run in rows if (run.label, str(run.seed)) == (label, seed)]
    whole = [run.fingerprint for run in rows if run.label == rest]
    if not one and not whole:
        hint = near(name, (f"{experiment}/{run.label}/{run.seed}" for run in rows))
        raise Missing(f"no run {name!r}: expected experiment/label/seed; {hint}".rstrip("; "))
    return [(served, fingerprint) for fingerprint in one or whole]


def _compared(served: Served, fingerprint: str) -> dict[str, Any]:
    """Read a run for a comparison."""
    data = read(served.store, fingerprint, "places", "scores", "metrics")
    record = served.store.run(fingerprint)
    metrics = metrics_of(served, data, record.program)
    config = flat(record.config) | {"program": record.program}
    return {
        "run": fingerprint,
        "name": title_of(data, fingerprint),
        "config": {key: as_text(value) for key, value in config.items()},
        "scores": {
            each["name"]: (each["value"], metrics.of(each["key"]))
            for each in last_scores(data["scores"], metrics)
        },
        "charts": charts_of(data, metrics),
    }


def _side_by_side(columns: list[dict[str, str]]) -> list[tuple[str, list[str]]]:
    keys = sorted({key for column in columns for key in column})
    return [(key, [column.get(key, MISSING) for column in columns]) for key in keys]


def _differences(
    columns: Sequence[Mapping[str, tuple[float | None, Metric]]],
) -> list[tuple[str, list[dict[str, str]]]]:
    """Return score → for each run, its value, its difference from the first, and whether that is better."""
    table = []
    for key in sorted({key for column in columns for key in column}):
        metric = next(column[key][1] for column in columns if key in column)
        values = [column[key][0] if key in column else None for column in columns]
        known = [math.nan if value is None else value for value in values]
        deltas = [math.nan, *(value - known[0] for value in known[1:])]
        row = [
            {
                "text": MISSING if math.isnan(value) else metric.text(value),
                "delta": "" if math.isnan(delta) else metric.text(delta, "+"),
                "standing": {1: "good", -1: "bad"}.get(
                    direction(delta * metric.sign, delta * metric.sign), ""
                ),
            }
            for value, delta in zip(known, deltas, strict=True)
        ]
        table.append((key, row))
    return table
