"""The table of scaling laws: exponent, offset, and the value predicted for a larger size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ..errors import RequestError
from ..figures.against import Axis, scored
from ..figures.scaling import ladders
from ..frames import Frames
from ..metrics import Metric
from ..scaling import BAND
from ..units import nearest, tick
from . import show
from .core import Column, Record, Table

OPTIONS = ("x", "by", "to", "runs")
"""Options of the table."""

_ENDS = ("", "_low", "_high")
_HOW = (
    "y = c + a · x^(−b) by least squares to the means over seeds; "
    f"in brackets the {BAND:.0%} profile interval, in which each seed counts once"
)


def scaling_table(frames: Frames, options: Mapping[str, Any]) -> Table:
    """Build the table of scaling laws.

    Args:
        options: Some of `OPTIONS`; the others are those of the spec's first report `scaling`.

    Raises:
        ValueError: An option is unknown, `to` isn't a number above 1, x is missing, or no law can be fitted.
    """
    if unknown := sorted({*options}.difference(OPTIONS)):
        raise RequestError(f"the table scaling has no option {unknown[0]!r}: {nearest(unknown[0], OPTIONS)}")
    reports = (report for report in frames.spec.get("reports") or () if report["kind"] == "scaling")
    given = {"by": (), "to": 10.0, **next(reports, {}), **options}
    if "x" not in given:
        raise RequestError(
            "x is missing, the key of the size: --option x=KEY, or a report in the spec, scaling: {x: KEY}"
        )
    by, kept = ([given[key]] if isinstance(given.get(key), str) else given.get(key) for key in ("by", "runs"))
    try:
        to = float(given["to"])
    except (TypeError, ValueError):
        to = math.nan
    if not 1 < to < math.inf:
        raise RequestError(f"to is {given['to']!r}: give a number above 1, such as 10")
    frames, metric = frames.only(kept) if kept else frames, frames.score
    points = scored(frames, Axis(given["x"], tuple(by or ()), to=to), frames.baseline())
    fitted, size, rows = ladders(points, given["x"]), to * points["x"].max(), []
    for own, law, _ in fitted:
        estimates: dict[str, Any] = {}
        if law:
            estimates = {"offset": law.offset(), "predicted": law.at([size])[:, 0]}
            estimates = {key: [each / metric.factor for each in ends] for key, ends in estimates.items()}
            estimates["exponent"] = law.exponent()
        numbers = {
            f"{key}{end}": x for key in estimates for end, x in zip(_ENDS, estimates[key], strict=True)
        }
        counts = {"sizes": own["x"].nunique(), "seeds": own.loc[own["used"], "seed"].nunique()}
        rows.append(
            {"row": own["line"].iloc[0], "apart": False, "run": own["line"].iloc[0]} | numbers | counts
        )
    used = pd.concat([law.points[law.points["used"]] for law in fitted])
    parts = used.merge(frames.runs[["label", "seed", "fingerprint"]], on=["label", "seed"])
    parts = parts.assign(row=parts["line"], experiment=frames.experiment, score=parts["y"] / metric.factor)
    return Table(
        name="scaling",
        caption=f"{frames.experiment}: power laws of the score over {given['x']}.",
        frame=pd.DataFrame(rows),
        columns=(
            Column("run", "run", lambda row: str(row["run"]), align="left", importance=100),
            _column("exponent", "exponent b", Metric(digits=2)),
            _column("offset", show.heading("offset c", metric), metric),
            _column("predicted", show.heading(f"at {tick(float(f'{size:.3g}'))}", metric), metric),
            Column("sizes", "sizes", lambda row: str(row["sizes"]), importance=30),
            Column("seeds", "seeds", lambda row: str(row["seeds"]), importance=30),
        ),
        own_notes=(_HOW, *(law.note for law in fitted if law.note)),
        parts=parts[["row", "experiment", "label", "seed", "fingerprint", "score"]],
    )


def _column(key: str, header: str, metric: Metric) -> Column:
    def text(row: Record) -> str:
        value, low, high = (row[f"{key}{end}"] for end in _ENDS)
        return show.interval(value, low, high, metric).replace("inf", "∞")

    return Column(key, header, text, formula=f"{header} of {_HOW}", inputs=("score",), importance=80)
