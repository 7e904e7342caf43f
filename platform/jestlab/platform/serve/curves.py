"""Curves of metrics, thinned for the width of a plot so that spikes stay visible."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sqlalchemy import text

from jestlab.analysis.thinning import thinned
from jestlab.platform.store.store import Store

_WIDEST, _NARROWEST = 400, 20  # columns of pixels for each curve
_COLUMNS = 4_000  # for all curves of a plot, which browsers redraw often

_QUERY = text(
    "SELECT metric.step, metric.value FROM metric WHERE metric.run_id = "
    "(SELECT id FROM run WHERE fingerprint = :run) AND metric.name_id = "
    "(SELECT id FROM metric_name WHERE name = :metric) ORDER BY metric.step"
)

Curve = tuple[list[int], list[float | None]]
"""Steps and values; None breaks the line where the value isn't finite."""


def curves_of(
    store: Store, fingerprints: Sequence[str], metric: str, width: int | None = None
) -> dict[str, Curve]:
    """Read the curve of a metric of each run.

    `width` is in columns of pixels; None for a width that suits the number of curves.
    """
    width = width or max(_NARROWEST, min(_WIDEST, _COLUMNS // max(1, len(fingerprints))))
    curves = {}
    with store.reading() as connection:
        for run in fingerprints:
            rows = connection.execute(_QUERY, {"run": run, "metric": metric}).cursor
            points = np.array(rows.fetchall() if rows is not None else [], np.float64).reshape(-1, 2)
            points = points[thinned(points[:, 0], points[:, 1], width)]
            values = [value if math.isfinite(value) else None for value in points[:, 1].tolist()]
            curves[run] = points[:, 0].astype(np.int64).tolist(), values
    return curves
