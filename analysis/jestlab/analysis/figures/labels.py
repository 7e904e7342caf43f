"""Write names in panels: right of the ends of lines, and around markers where they cover nothing.

The names are the Matplotlib labels of the artists.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import ink, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST = 1.3  # inches that names next to lines must leave to the panel
_LINE = 1.3  # distance between names of lines, relative to the font size
_MOST_POINTS = 12  # with names around them in a panel
_WRAPPED = 28  # letters of a line of the name of a point
_DISTANCES = np.array([0.7, 1.0, 1.4, 1.8, 2.6, 3.6, 5.0])  # of names from points, relative to their height
_PALE = 200  # grid lines and bands are brighter: names may cover them


def by_label(handles: Iterable[Any]) -> list[Any]:
    """Return the first artist of each label."""
    found: dict[str, Any] = {}
    for handle in handles:
        found.setdefault(handle.get_label(), handle)
    return list(found.values())


def is_curve(handle: Any) -> bool:
    """Return whether an artist is a line or a marker, not a bar."""
    return hasattr(handle, "get_xydata")


def alike(handles: Iterable[Any]) -> list[Any]:
    """Return the lines and markers that have the look of another."""
    look_of = {
        handle: (handle.get_color(), handle.get_marker(), str(handle._dash_pattern), handle.get_fillstyle())
        for handle in handles
        if is_curve(handle)
    }
    count = Counter(look_of.values())
    return [handle for handle, look in look_of.items() if count[look] > 1]


def write_name(axes: Axes, handle: Any) -> Any:
    """Write the name of a line at the right of its panel, joined to its end; that of a point next to it."""
    color = handle.get_color()
    style: dict[str, Any] = {"size": size_of("name"), "color": ink(color), "zorder": 6}
    x, y = (np.asarray(each, float) for each in handle.get_data(orig=False))
    arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.5}
    if handle.get_linestyle() in ("None", "none", ""):
        text = textwrap.fill(handle.get_label(), _WRAPPED)
        name = axes.annotate(
            text, (x[-1], y[-1]), xytext=(x[-1], y[-1]), ha="center", va="center",
            arrowprops=arrow | {"shrinkA": 0, "shrinkB": 3}, **style,
        )  # fmt: skip
        name.set_in_layout(False)
        return name
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    end = (x[known[-1]], y[known[-1]]) if known.size else (1.0, 0.0)
    arrow |= {"alpha": 0.6 if known.size else 0.0, "shrinkA": 1, "shrinkB": 2, "relpos": (0, 0.5)}
    return axes.annotate(
        handle.get_label(), end, xycoords=handle.get_transform() if known.size else "axes fraction",
        xytext=(1.03, 0.5), textcoords="axes fraction", va="center_baseline", annotation_clip=False,
        arrowprops=arrow, **style,
    )  # fmt: skip


def place_names(axes: Axes, names: Sequence[Any]) -> bool:
    """Move names apart: those of lines up and down, near the level of their ends; others around points.

    Returns:
        Whether they leave enough of the panel, and no name of a point covers anything.
    """
    frame, dpi = axes.get_window_extent(), axes.figure.dpi
    of_lines = [name for name in names if name.anncoords == "axes fraction"]
    of_points = [name for name in names if name not in of_lines and np.isfinite(name.xy).all()]
    gap = _LINE * size_of("name") * dpi / 72
    if of_lines:
        ends = [name._get_position_xy(None)[1] for name in of_lines]
        levels = spread(ends, gap, frame.y0 + gap / 2, frame.y1 - gap / 2)
        for name, level in zip(of_lines, levels, strict=True):
            name.set_position((1.03, (level - frame.y0) / frame.height))
    is_clear = not of_points or _place(axes, of_points)
    fits = not of_lines or (frame.width > _LEAST * dpi and len(of_lines) * gap < frame.height)
    return is_clear and fits and len(of_points) <= _MOST_POINTS


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions apart, each as little as possible (least squares), and keep their order.

    With q[i] = p[i] − i·gap, p[i+1] − p[i] ≥ gap is isotonic regression.

    Args:
        wanted: Positions, in any order.
        gap: Least distance between neighbors.
        low: Lower end of the room.
        high: Upper end of the room. Positions exceed it if the room is too small.
    """
    from scipy.optimize import isotonic_regression

    order, steps = np.argsort(wanted, kind="stable"), gap * np.arange(len(wanted))
    found = isotonic_regression(np.asarray(wanted, float)[order] - steps).x
    placed = np.empty(len(wanted))
    placed[order] = np.clip(found, low, max(low, high - steps[-1])) + steps
    return placed.tolist()


def _place(axes: Axes, names: Sequence[Any]) -> bool:
    """Move each name from its point to the nearest place around it that covers least; a line joins the two.

    adjustText 1.4 covered more of the same plots, and took 80 s for 19 names.
    """
    from matplotlib.text import Text

    frame, to_data, taken = axes.get_window_extent(), axes.transData.inverted(), drawn(axes, names)
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    turned = np.tile(np.column_stack([np.cos(angles), np.sin(angles)]), (len(_DISTANCES), 1))
    is_clear = True
    for name in names:
        box, at = Text.get_window_extent(name), axes.transData.transform(name.xy)
        half = np.array([box.width, box.height]) / 2 + 0.15 * box.height
        far = np.repeat(box.height * _DISTANCES, len(angles))
        places = at + turned * (half + far[:, None])
        low, high = places - half, places + half
        outside = (low < frame.min).any(axis=1) | (high > frame.max).any(axis=1)
        corners = np.clip([low, high], frame.min, frame.max).astype(int)
        (x0, y0), (x1, y1) = corners.swapaxes(1, 2)
        sums = taken.cumsum(0).cumsum(1)
        faults = sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0] + 1e6 * outside
        best = int(np.argmin(faults + far / box.height))
        is_clear &= not faults[best]
        name.set_position(to_data.transform(places[best]))
        is_far = far[best] > box.height
        name.arrow_patch.set_alpha(0.8 if is_far else 0.0)
        taken[y0[best] : y1[best], x0[best] : x1[best]] = True
        if is_far:
            column, row = np.linspace(at, np.clip(at, low[best], high[best]), 100).astype(int).T
            taken[row, column] = True
    return is_clear


def drawn(axes: Axes, without: Iterable[Any] = ()) -> Any:
    """Return which pixels of a figure are dark, [rows from the bottom, columns], without some artists."""
    figure: Any = axes.figure
    for each in without:
        each.set_visible(False)
    figure.canvas.draw()
    for each in without:
        each.set_visible(True)
    return np.asarray(figure.canvas.buffer_rgba())[::-1, :, :3].min(axis=2) < _PALE
