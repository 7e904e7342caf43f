"""Curves for pages: thinned out so that spikes survive."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sqlalchemy import text

from jestlab.analysis.thinning import thinned
from jestlab.platform.serve.labs import Served

WIDEST = 400
"""Columns of pixels that curves are thinned to where nobody says how wide they are shown."""

COLUMNS = 4_000
"""Columns of all curves that are shown together: what a browser draws again and again, and stays at hand."""

NARROWEST = 20
"""Columns of each curve, however many are shown."""

_QUERY = text(
    "SELECT metric.step, metric.value FROM metric WHERE metric.run_id = "
    "(SELECT id FROM run WHERE fingerprint = :run) AND metric.name_id = "
    "(SELECT id FROM metric_name WHERE name = :metric) ORDER BY metric.step"
)

Curve = tuple[list[int], list[float | None]]
"""Steps and values; None is no number, and breaks the line."""


def curves_of(
    served: Served, fingerprints: Sequence[str], metric: str, width: int | None = None
) -> dict[str, Curve]:
    """Read the curve of a metric of each run.

    Args:
        served: Where the runs are.
        fingerprints: They.
        metric: Its name.
        width: Columns of pixels; None for as many as do for so many curves.
    """
    width = width or max(NARROWEST, min(WIDEST, COLUMNS // max(1, len(fingerprints))))
    found = {}
    with served.store.reading() as connection:
        for run in fingerprints:
            rows = connection.execute(_QUERY, {"run": run, "metric": metric}).cursor
            points = np.array(rows.fetchall() if rows is not None else [], np.float64).reshape(-1, 2)
            points = points[thinned(points[:, 0], points[:, 1], width)]
            values = points[:, 1].tolist()
            if not np.isfinite(points[:, 1]).all():
                values = [finite(value) for value in values]
            found[run] = points[:, 0].astype(np.int64).tolist(), values
    return found


def finite(value: float | None) -> float | None:
    """Return a number, or None for what JSON cannot write."""
    return None if value is None or not math.isfinite(value) else value
