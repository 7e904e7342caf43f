"""Scaling laws of the lines of `against`: power laws that are fitted to their points and extrapolated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import NotYet, RequestError
from ..scaling import BAND, PowerLaw, fit

if TYPE_CHECKING:
    import pandas as pd

CAPTION = f"Curves: c + a · x^(−b), dashed where extrapolated; shaded: {BAND:.0%} confidence interval."

_POINTS = 40  # of a curve, within its sizes and beyond them


class Ladder(NamedTuple):
    """A line of points with its law.

    Attributes:
        points: A row for each point and seed: the columns of `placed`, seed, y, and used (bool: whether the
            law is fitted to the seed, since it has a y at all sizes).
        law: None if no law can be fitted.
        note: The reason why a law, a part of it, or a seed is missing; else empty.
    """

    points: pd.DataFrame
    law: PowerLaw | None
    note: str


def ladders(points: pd.DataFrame, x: str) -> list[Ladder]:
    """Fit a law to each line of each panel.

    Args:
        points: A row for each point and seed: the columns of `placed`, seed, and y.
        x: Name of the axis, for messages.

    Raises:
        ValueError: An x isn't a number above 0, or no law can be fitted.
    """
    if not (points["is_number"] & (points["x"] > 0)).all():
        raise RequestError(f"{x} isn't a number above 0 in all runs, as a power law needs: choose `runs`")
    fitted = [_ladder(line) for _, line in points.groupby(["panel", "line"], sort=False)]
    if not any(ladder.law for ladder in fitted):
        raise NotYet(f"no power law over {x}: {fitted[0].note}")
    return fitted


def _ladder(points: pd.DataFrame) -> Ladder:
    wide = points.pivot(index="seed", columns="x", values="y")
    complete = wide.dropna()
    left_out = wide.index.difference(complete.index)
    law, notes = None, [f"without seed {seed}, which lacks a size" for seed in left_out]
    try:
        law = fit(wide.columns, complete)
        _, low, high = law.exponent()
        if math.isinf(low):
            law = None
            notes.append("the exponent isn't identified, and nothing can be predicted: add sizes or seeds")
        elif math.isnan(law.offset().value):
            notes.append("the offset isn't identified, since the exponent may be 0: add sizes or seeds")
        elif math.isinf(high):
            notes.append("the exponent has no upper bound, since only the smallest sizes differ")
    except NotYet as error:
        notes.append(str(error))
    note = f"{points['line'].iloc[0]}: {'; '.join(notes)}" if notes else ""
    return Ladder(points.assign(used=points["seed"].isin(complete.index)), law, note)


def curves(fitted: Sequence[Ladder], end: float) -> pd.DataFrame:
    """Return the curves up to x = `end`.

    Returns:
        Rows of kind "law": panel, line, y_label, x, y, low, high, and beyond (x is above all sizes).
    """
    import numpy as np
    import pandas as pd

    parts = []
    for points, law in ((ladder.points, ladder.law) for ladder in fitted if ladder.law):
        first, last = law.sizes[[0, -1]]
        x = np.concatenate([np.geomspace(first, last, _POINTS), np.geomspace(last, end, _POINTS)])
        rows = pd.DataFrame(np.vstack([x, law.at(x)]).T, columns=["x", "y", "low", "high"])
        same = points[["panel", "line", "y_label"]].head(1).assign(kind="law")
        parts.append(rows.assign(beyond=rows.index >= _POINTS).merge(same, how="cross"))
    return pd.concat(parts)
