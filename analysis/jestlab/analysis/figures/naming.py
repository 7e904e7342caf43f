"""Names beside the points of a scatter plot, so that no reader has to look them up in a legend."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..drawing import LABEL_SIZE, extent, frame_of
from ..labels import Box, place
from ..style import ink

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def name_points(axes: Axes, means: pd.DataFrame, dots: npt.NDArray[np.float64], obstacles: list[Box]) -> None:
    """Names beside the markers, clear of all that is drawn; a fine line where it is not plain whose it is.

    Args:
        axes: With limits that are settled.
        means: A row a marker: x, y, the ends low and high of its bar, text, colour.
        dots: Small points to keep clear, [n, 2].
        obstacles: What else to keep clear, pixels.
    """
    point = axes.figure.dpi / 72  # pixels
    names = [
        axes.text(0, 0, mean["text"], size=LABEL_SIZE, color=ink(mean["colour"]), zorder=5)
        for _, mean in means.iterrows()
    ]
    extents = [extent(axes, name) for name in names]
    pad = 1.5 * point
    sizes = [(box.right - box.left + 2 * pad, box.top - box.bottom + 2 * pad) for box in extents]
    centres, lows, highs = (
        axes.transData.transform(means[["x", end]].to_numpy(float)) for end in ("y", "low", "high")
    )
    kept = list(obstacles)
    for (x, y), low, high in zip(centres, lows, highs, strict=True):
        kept.append(Box(x - 4 * point, y - 4 * point, x + 4 * point, y + 4 * point))
        kept.append(Box(x - 2 * point, low[1], x + 2 * point, high[1]))
    for x, y in axes.transData.transform(dots) if len(dots) else ():
        kept.append(Box(x - point, y - point, x + point, y + point))
    boxes = place([(float(x), float(y)) for x, y in centres], sizes, kept, frame_of(axes))
    for name, box, (x, y) in zip(names, boxes, centres, strict=True):
        left, bottom = axes.transAxes.inverted().transform((box.left + pad, box.bottom + pad))
        name.set(x=left, y=bottom, transform=axes.transAxes, va="bottom")
        far = _distance(box, x, y) > 1.5 * (box.top - box.bottom)
        if far or any(_distance(box, *other) < _distance(box, x, y) for other in centres):
            ends = axes.transAxes.inverted().transform([(x, y), _nearest(box, x, y)])
            axes.plot(
                ends[:, 0], ends[:, 1], color=name.get_color(), linewidth=0.5, alpha=0.7,
                transform=axes.transAxes, zorder=2,
            )  # fmt: skip


def _nearest(box: Box, x: float, y: float) -> tuple[float, float]:
    """The point of a box that lies nearest to (x, y)."""
    return min(max(x, box.left), box.right), min(max(y, box.bottom), box.top)


def _distance(box: Box, x: float, y: float) -> float:
    return math.dist(_nearest(box, x, y), (x, y))
