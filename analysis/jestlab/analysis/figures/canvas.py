"""The sheet a printed figure is drawn on: title and caption, axes placed in inches, and names beside curves.

Axes are placed by hand, so that the plotting area keeps its size whatever is written around it. Curves and
points are named where they are, so that no reader has to look them up in a legend.

Our own code places the names. adjustText (1.4, default forces), tried on the same Pareto plots, put names on
markers, error bars, the front and each other, joined most of them by lines, and took longer in two of three.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import units
from .plot import Texts
from .style import GREY, ink

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

EDGE = 0.08  # outer margin, inches
LABEL_SIZE, _CAPTION_SIZE = 7.5, 6.5  # points
_DECADES = 30.0  # a logarithmic axis that spans such a factor has ticks at 1, 2, 5, 10, …
LOG_FROM = 8.0  # values that differ by such a factor get a logarithmic axis
_FEW_TICKS = 7  # up to so many values are themselves the ticks
_WIDTH = 5.5  # of a figure: the text width of a paper; inches
DPI = 200  # names are measured as finely as they are printed, since hinting makes coarse ones narrower
_TITLE_LINE, _CAPTION_LINE = 0.17, 0.115  # inches
_TITLE_CHARACTERS, _CAPTION_CHARACTERS = 74, 112  # that fit a line of a figure _WIDTH wide
_DIRECTIONS = 16  # from a point in which its name may be
_RADII = (1.0, 1.8, 3.0, 4.5, 6.5, 9.0)  # distances from near to far, in label heights


class Slot(NamedTuple):
    """Room for one plotting area in a row of them, in inches: left of it, its width, right of it."""

    left: float
    width: float
    right: float


class End(NamedTuple):
    """Where a line ends, and how it is named."""

    x: float
    y: float
    text: str
    colour: str


class Box(NamedTuple):
    """A rectangle in pixels, from its left bottom corner to its right top one."""

    left: float
    bottom: float
    right: float
    top: float


def row(
    texts: Texts,
    slots: Sequence[Slot],
    height: float,
    below: float = 0.42,
    above: float = 0.0,
    title_left: float | None = None,
) -> list[Axes]:
    """Create a figure with a row of plotting areas between title and caption.

    Args:
        texts: Title and caption.
        slots: Room for each plotting area.
        height: Of the plotting areas, inches.
        below: Room for ticks and labels below them, inches.
        above: Room for headings above them, inches.
        title_left: Where the title begins, inches; None for the left edge of the first plotting area.

    Returns:
        Axes for each slot.
    """
    left = slots[0].left if title_left is None else title_left
    figure, bottom = canvas(texts, sum(map(sum, slots)), below + height + above, left)
    starts = accumulate((sum(slot) for slot in slots), initial=0.0)
    return [
        add_axes(figure, start + slot.left, bottom + below, slot.width, height)
        for start, slot in zip(starts, slots, strict=False)
    ]


def single(texts: Texts, x_label: str, right: float) -> Axes:
    """Create a figure with one plotting area, which keeps a width of 3.4 inches whatever `right` leaves.

    Args:
        texts: The words.
        x_label: Of the horizontal axis, with its unit.
        right: Room right of the plotting area, inches.
    """
    axes = row(texts, [Slot(0.62, max(_WIDTH - 0.62 - right, 3.4), right)], 2.9, below=0.45)[0]
    axes.set(xlabel=x_label, ylabel=texts.y)
    round_ticks(axes)
    return axes


def canvas(texts: Texts, width: float, height: float, left: float) -> tuple[Figure, float]:
    """Create a figure with title and caption, and room between them.

    Args:
        texts: Title and caption.
        width: Of the figure, inches.
        height: Of the room, inches.
        left: Where the title begins, inches.

    Returns:
        The figure, and how far above its bottom the room begins, inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    title = textwrap.wrap(texts.title, int(_TITLE_CHARACTERS * width / _WIDTH))
    caption = textwrap.wrap(texts.caption, int(_CAPTION_CHARACTERS * width / _WIDTH))
    below = EDGE + _CAPTION_LINE * len(caption)
    total = below + height + 2 * EDGE + _TITLE_LINE * len(title)
    figure = Figure(figsize=(width, total), dpi=DPI)
    FigureCanvasAgg(figure)  # measures texts, whatever format the figure is saved in
    figure.text(left / width, 1 - EDGE / total, "\n".join(title), va="top", size=9)
    figure.text(
        EDGE / width, 0.6 * EDGE / total, "\n".join(caption), va="bottom", size=_CAPTION_SIZE, color=GREY,
        linespacing=1.15,
    )  # fmt: skip
    return figure, below


def add_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Add axes at a position given in inches."""
    whole, total = figure.get_size_inches()
    return figure.add_axes((left / whole, bottom / total, width / whole, height / total))


def figure_of(axes: Axes) -> Figure:
    """Return the figure that axes belong to."""
    from matplotlib.figure import Figure

    assert isinstance(axes.figure, Figure)
    return axes.figure


def round_ticks(axes: Axes, log: bool = False) -> None:
    """Write ticks of the horizontal axis as round numbers (5k, 2M); make it logarithmic if `log`."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(lambda x, _: units.tick(x))


def scale_scores(axes: Axes, texts: Texts, scores: Sequence[float]) -> None:
    """Make the vertical axis logarithmic, if the metric wants that, and all scores have a logarithm."""
    if texts.metric.scale == "log" and min(scores) > 0:
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

        axes.set_yscale("log")
        wide = max(scores) >= _DECADES * min(scores)
        ticks = LogLocator(subs=(1.0, 2.0, 5.0)) if wide else MaxNLocator(6, steps=[1, 2, 5, 10])
        axes.yaxis.set_major_locator(ticks)
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def tick_at_values(axes: Axes, means: pd.DataFrame) -> None:
    """Put ticks at words, or at the values themselves where they are few.

    Args:
        means: With columns x and tick (a word, or None for the number).
    """
    from matplotlib.ticker import NullFormatter, NullLocator

    values = means["x"].drop_duplicates().sort_values()
    if means["tick"].notna().any():
        words = means.drop_duplicates("x").sort_values("x")
        axes.set_xticks(words["x"], list(words["tick"]))
        axes.set_xlim(values.min() - 0.35, values.max() + 0.35)
        axes.xaxis.grid(False)
        return
    if values.min() > 0 and values.max() >= LOG_FROM * values.min():
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
    if len(values) <= _FEW_TICKS:
        axes.set_xticks(list(values))
    round_ticks(axes)
    axes.margins(x=0.08)


def band(axes: Axes, x: Any, low: Any, high: Any, colour: str, alpha: float = 0.16) -> None:
    """Shade the range around a line."""
    axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0)


def widest(texts: Iterable[str]) -> float:
    """Return the width of the widest name, inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(size=LABEL_SIZE)
    return max(TextPath((0, 0), text, prop=font).get_extents().width for text in set(texts)) / 72


def name_ends(axes: Axes, ends: list[End]) -> None:
    """Write names to the right of the axes, as level with their lines' ends as they fit without touching."""
    frame = _box(axes)
    pixels = axes.transData.transform([(end.x, end.y) for end in ends])
    gap = LABEL_SIZE * 1.35 * axes.figure.dpi / 72
    levels = spread([float(y) for y in pixels[:, 1]], gap, frame.bottom + gap / 2, frame.top - gap / 2)
    for end, level in zip(ends, levels, strict=True):
        axes.annotate(
            end.text, (end.x, end.y), textcoords="axes fraction", va="center_baseline", size=LABEL_SIZE,
            xytext=(1.035, (level - frame.bottom) / (frame.top - frame.bottom)),
            color=ink(end.colour), annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": end.colour, "linewidth": 0.5, "alpha": 0.6,
                        "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip


def name_level(axes: Axes, level: float, text: str) -> list[Box]:
    """Name a horizontal line above its left end.

    Returns:
        What other names have to keep clear of: this name and the line.
    """
    name = axes.annotate(
        text, (0.01, level), xycoords=("axes fraction", "data"), xytext=(0, 1.5),
        textcoords="offset points", size=LABEL_SIZE, color=GREY,
    )  # fmt: skip
    frame = _box(axes)
    y = float(axes.transData.transform((0.0, level))[1])
    return [_box(name), Box(frame.left, y - 1, frame.right, y + 1)]


def name_points(
    axes: Axes, means: pd.DataFrame, dots: npt.NDArray[np.float64], obstacles: Sequence[Box] = ()
) -> None:
    """Write names beside markers, clear of everything drawn; a fine line joins those that are far away.

    Args:
        axes: With final limits.
        means: One row a marker: x, y, the ends low and high of its error bar, text, colour.
        dots: Small points to keep clear, [n, 2].
        obstacles: What else to keep clear.
    """
    point = axes.figure.dpi / 72  # pixels
    names = [
        axes.text(0, 0, mean["text"], size=LABEL_SIZE, color=ink(mean["colour"]), zorder=5)
        for _, mean in means.iterrows()
    ]
    pad = 1.5 * point
    sizes = [(box.right - box.left + 2 * pad, box.top - box.bottom + 2 * pad) for box in map(_box, names)]
    centres, lows, highs = (
        axes.transData.transform(means[["x", end]].to_numpy(float)) for end in ("y", "low", "high")
    )
    kept = list(obstacles)
    for (x, y), low, high in zip(centres, lows, highs, strict=True):
        kept.append(Box(x - 4 * point, y - 4 * point, x + 4 * point, y + 4 * point))
        kept.append(Box(x - 2 * point, low[1], x + 2 * point, high[1]))
    for x, y in axes.transData.transform(dots) if len(dots) else ():
        kept.append(Box(x - point, y - point, x + point, y + point))
    boxes = place_beside([(float(x), float(y)) for x, y in centres], sizes, kept, _box(axes))
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


def spread(desired: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions on a line apart, each as little as possible.

    Least squares under p[i+1] − p[i] ≥ gap in the order of the desired positions: with q[i] = p[i] − i·gap
    this is isotonic regression, solved by pooling adjacent violators.

    Args:
        desired: Positions, in any order.
        gap: Least distance between neighbours.
        low: Lower end of the room.
        high: Upper end of the room; where it is too small, positions exceed it.

    Returns:
        Positions in the order of `desired`.
    """
    order = sorted(range(len(desired)), key=lambda i: desired[i])
    pools: list[tuple[float, int]] = []  # mean, size
    for rank, i in enumerate(order):
        mean, size = desired[i] - rank * gap, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    levels = [mean for mean, size in pools for _ in range(size)]
    room = max(low, high - (len(desired) - 1) * gap)
    positions = [0.0] * len(desired)
    for rank, i in enumerate(order):
        positions[i] = min(max(levels[rank], low), room) + rank * gap
    return positions


def place_beside(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    obstacles: Sequence[Box],
    frame: Box,
) -> list[Box]:
    """Choose a position beside each point for its label, clear of other labels, obstacles and the frame.

    Greedy: label by label, the nearest of the positions around the point that covers least.

    Args:
        points: What is labelled, pixels.
        sizes: Width and height of each label, pixels.
        obstacles: What should stay visible: markers, error bars, lines.
        frame: Where labels have to stay.

    Returns:
        A box for each label, in order.
    """
    taken = [*obstacles]
    placed: list[Box] = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        boxes = [
            _beside(x, y, width, height, 2 * math.pi * turn / _DIRECTIONS, radius * height)
            for radius in _RADII
            for turn in range(_DIRECTIONS)
        ]
        around = np.array(taken).reshape(-1, 4)
        # Each radius costs a little: of two positions that cover nothing, the nearer is taken.
        costs = [
            4 * _covered(box, around) + 4 * _outside(box, frame) + 0.01 * width * height * (i // _DIRECTIONS)
            for i, box in enumerate(boxes)
        ]
        best = boxes[int(np.argmin(costs))]
        taken.append(best)
        placed.append(best)
    return placed


def _box(drawn: Axes | Text) -> Box:
    """Area that axes or a text cover, pixels."""
    extent: Any = drawn.get_window_extent()
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)


def _beside(x: float, y: float, width: float, height: float, angle: float, distance: float) -> Box:
    """The box whose nearest point is at a distance from (x, y) in a direction."""
    towards, up = math.cos(angle), math.sin(angle)
    left = x + towards * distance + (towards - 1) * width / 2
    bottom = y + up * distance + (up - 1) * height / 2
    return Box(left, bottom, left + width, bottom + height)


def _covered(box: Box, others: npt.NDArray[np.float64]) -> float:
    """Area of a box that others cover, pixels²."""
    width = np.minimum(box.right, others[:, 2]) - np.maximum(box.left, others[:, 0])
    height = np.minimum(box.top, others[:, 3]) - np.maximum(box.bottom, others[:, 1])
    return float(np.sum(np.maximum(width, 0) * np.maximum(height, 0)))


def _outside(box: Box, frame: Box) -> float:
    """Area of a box outside a frame, pixels²."""
    whole = (box.right - box.left) * (box.top - box.bottom)
    return whole - _covered(box, np.array([frame]))


def _nearest(box: Box, x: float, y: float) -> tuple[float, float]:
    """The point of a box nearest to (x, y)."""
    return min(max(x, box.left), box.right), min(max(y, box.bottom), box.top)


def _distance(box: Box, x: float, y: float) -> float:
    return math.dist(_nearest(box, x, y), (x, y))
