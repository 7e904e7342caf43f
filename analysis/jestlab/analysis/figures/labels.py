"""The names of what panels show: right of the ends of lines, and around markers where they cover least.

The names are the Matplotlib labels of the artists.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import ink, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST = 1.3  # inches that names next to lines must leave to the panel
_MOST_COVERED = 0.16  # of a panel by the names of points
_WRAPPED = 28  # letters of a line of the name of a point
_MOST_POINTS = 12  # with names around them in a panel
_DISTANCES = np.array([0.7, 1.0, 1.4, 1.8, 2.6, 3.6, 5.0])  # of names from points, relative to their height
_LINE = 1.3  # distance between names, relative to the font size


def labeled(axes: Axes) -> list[Any]:
    """Artists of a panel that have a label, one for each label."""
    return list(by_label(axes.get_legend_handles_labels()[0]).values())


def by_label(handles: Iterable[Any]) -> Mapping[str, Any]:
    """Label → the first artist that has it."""
    found: dict[str, Any] = {}
    for handle in handles:
        found.setdefault(handle.get_label(), handle)
    return found


def is_curve(handle: Any) -> bool:
    """Whether an artist is a line or a marker, not a bar."""
    return hasattr(handle, "get_xydata")


def _is_line(handle: Any) -> bool:
    return handle.get_linestyle() not in ("None", "none", "")


def look_of(handle: Any) -> Any:
    """What distinguishes an artist in a legend."""
    if not is_curve(handle):
        return id(handle)
    return handle.get_color(), handle.get_marker(), str(handle._dash_pattern), handle.get_fillstyle()


def is_crowded(axes: Axes, names: Sequence[Any]) -> bool:
    """Whether names leave too little of a panel: lines have become narrow, or names would cover much."""
    from matplotlib.text import Text

    frame, dpi = axes.get_window_extent(), axes.figure.dpi
    boxes = [Text.get_window_extent(name) for name in names if not _is_beside(name)]
    lines = sum(map(_is_beside, names))
    return (
        (lines > 0 and frame.width < _LEAST * dpi)
        or lines * _LINE * size_of("name") * dpi / 72 > frame.height
        or len(boxes) > _MOST_POINTS
        or sum(box.width * box.height for box in boxes) > _MOST_COVERED * frame.width * frame.height
    )


def _is_beside(name: Any) -> bool:
    """Whether a name is right of the panel, as that of a line."""
    return bool(name.anncoords == "axes fraction")


def write_name(axes: Axes, handle: Any) -> Any:
    """Write the name of a line at the right of its panel, joined to its end; that of a point next to it."""
    color = handle.get_color()
    style: dict[str, Any] = {"size": size_of("name"), "color": ink(color), "zorder": 6}
    x, y = (np.asarray(each, float) for each in handle.get_data(orig=False))
    arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.5}
    if not _is_line(handle):
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
        Whether no name of a point covers anything.
    """
    of_lines = [name for name in names if _is_beside(name)]
    if of_lines:
        frame = axes.get_window_extent()
        ends = [name._get_position_xy(None)[1] for name in of_lines]
        gap = _LINE * size_of("name") * axes.figure.dpi / 72
        levels = spread(ends, gap, frame.y0 + gap / 2, frame.y1 - gap / 2)
        for name, level in zip(of_lines, levels, strict=True):
            name.set_position((1.03, (level - frame.y0) / frame.height))
    of_points = [name for name in names if not _is_beside(name)]
    return not of_points or _place(axes, of_points)


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

    frame, to_data = axes.get_window_extent(), axes.transData.inverted()
    drawn, taken = _drawn(axes), np.empty((0, 4))
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    is_clear = True
    for name in names:
        box, at = Text.get_window_extent(name), axes.transData.transform(name.xy)
        half = np.array([box.width, box.height]) / 2 + 0.15 * box.height
        far = np.repeat(box.height * _DISTANCES, len(angles))
        turned = np.tile(np.column_stack([np.cos(angles), np.sin(angles)]), (len(_DISTANCES), 1))
        places = at + turned * (half + far[:, None])
        low, high = places - half, places + half
        covered = ((drawn > low[:, None]) & (drawn < high[:, None])).all(axis=2).sum(axis=1)
        lapped = ((taken[:, :2] < high[:, None]) & (taken[:, 2:] > low[:, None])).all(axis=2).sum(axis=1)
        outside = (low < frame.min).any(axis=1) | (high > frame.max).any(axis=1)
        faults = 10 * covered + 30 * lapped + 10_000 * outside
        best = int(np.argmin(faults + far / box.height))
        is_clear &= not faults[best]
        taken = np.vstack([taken, [*low[best], *high[best]]])
        name.set_position(to_data.transform(places[best]))
        is_far = far[best] > box.height
        name.arrow_patch.set_alpha(0.8 if is_far else 0.0)
        if is_far:
            drawn = np.vstack([drawn, np.linspace(at, np.clip(at, low[best], high[best]), 9)])
    return is_clear


def _drawn(axes: Axes) -> Any:
    """Pixels of a panel that are drawn on, a few apart, [n, 2]."""
    lines = [line.get_xydata() for line in axes.get_lines() if line.get_transform() == axes.transData]
    across = (
        np.asarray(line.get_ydata(), float)
        for line in axes.get_lines()
        if line.get_transform() != axes.transData
    )
    lines += [np.column_stack([axes.get_xlim(), level]) for level in across if level[0] == level[-1]]
    rim = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    rim = np.column_stack([np.cos(rim), np.sin(rim)]) * axes.figure.dpi / 72 / 2  # of a marker of one point
    found = [np.empty((0, 2))]
    for line in axes.get_lines():
        if not _is_line(line):
            at = axes.transData.transform(line.get_xydata())
            found.append((at[:, None] + line.get_markersize() * rim).reshape(-1, 2))
    for each in axes.collections:
        if hasattr(each, "get_segments"):
            lines += each.get_segments()
        else:
            at = axes.transData.transform(np.reshape(each.get_offsets(), (-1, 2)))
            found.append((at[:, None] + 3 * rim).reshape(-1, 2))
    for points in lines:
        pixels = axes.transData.transform(points)
        pixels = pixels[np.isfinite(pixels).all(axis=1)]
        length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(pixels, axis=0).T))])
        at = np.linspace(0.0, length[-1], max(1, int(length[-1] / 5)))
        found.append(np.column_stack([np.interp(at, length, side) for side in pixels.T]))
    return np.concatenate(found)
