"""Names in a printed figure: beside the curves and points that they name, or in a legend.

Curves and points are named where they are, so that no reader has to look them up, unless they are too many
for the width, or the user wants a legend.

Our own code places the names. adjustText (1.4, default forces), tried on the same Pareto plots, put names on
markers, error bars, the front and each other, joined most of them by lines, and took longer in two of three.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..sheet import Legend, Sheet
from .canvas import EDGE, WIDTH, figure_of
from .style import GRAY, ink, label_size, points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.font_manager import FontProperties
    from matplotlib.text import Text

_DIRECTIONS = 16  # from a point in which its name may be
_RADII = (1.0, 1.8, 3.0, 4.5, 6.5, 9.0)  # distances from near to far, in label heights
_LEAST = 1.3  # inches that names beside curves have to leave to these
_MOST_IN_A_COLUMN = 8  # points that are named beside themselves in a narrow figure
_MOST_NAMED = 20  # in a wide one
_NARROW = 4.2  # inches
_ROW, _HANDLE = 0.145, 0.36  # of a legend, inches: height of a row; width of a line and the gaps around it


class End(NamedTuple):
    """Where a line ends, how it is named, and how it looks."""

    x: float
    y: float
    text: str
    color: str
    line: Any = "-"
    marker: str = ""

    @property
    def key(self) -> Key:
        """Its entry in a legend."""
        return Key(self.text, self.color, self.line, self.marker)


class Key(NamedTuple):
    """An entry of a legend: a name, and the look of what it names; no line for markers alone."""

    text: str
    color: str
    line: Any = "-"
    marker: str = ""


class Box(NamedTuple):
    """A rectangle in pixels, from its left bottom corner to its right top one."""

    left: float
    bottom: float
    right: float
    top: float


def widest(texts: Iterable[str]) -> float:
    """Return the width of the widest name, inches."""
    from matplotlib.font_manager import FontProperties

    font = FontProperties(size=label_size())
    widths = (_points(text, font) for text in set(texts) if text.strip())
    return max(widths, default=0.0) / 72


@cache
def _points(text: str, font: FontProperties) -> float:
    """Return the width of a text; a figure asks for the same ones many times as it looks for room."""
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), text, prop=font).get_extents().width)


@dataclass(frozen=True)
class Naming:
    """How the curves or points of a figure are named.

    Attributes:
        where: Beside themselves, or in a legend at one of three places, or not at all.
        keys: Entries of the legend.
        right: Room that it takes right of a plotting area, inches.
        foot: Room that it takes below all plotting areas, inches.
        height: Of a legend beside them, inches.
    """

    where: Legend
    keys: tuple[Key, ...]
    right: float = 0.0
    foot: float = 0.0
    height: float = 0.0

    @classmethod
    def of_lines(
        cls, sheet: Sheet, keys: Iterable[Key], width: float, left: float, gap: float = 0.3
    ) -> Naming:
        """Choose for lines: beside their ends, if that leaves room for the lines.

        Args:
            sheet: Its legend, if any, is what is chosen.
            keys: Names and looks of all lines.
            width: Of the figure, inches; of its widest plotting area with what is around it, in a row.
            left: Room left of the plotting area, inches.
            gap: Room left and right of names beside lines, inches.
        """
        entries = tuple(dict.fromkeys(keys))
        room = width - left - widest(key.text for key in entries) - gap
        return cls._made(sheet, entries, "direct" if room >= _LEAST else "below", gap)

    @classmethod
    def of_points(cls, sheet: Sheet, keys: Iterable[Key]) -> Naming:
        """Choose for points: beside them, unless they are many in a narrow figure."""
        entries = tuple(dict.fromkeys(keys))
        narrow = (sheet.width or WIDTH) < _NARROW
        crowded = len(entries) > (_MOST_IN_A_COLUMN if narrow else _MOST_NAMED)
        return cls._made(sheet, entries, "below" if crowded else "direct", None)

    @classmethod
    def _made(cls, sheet: Sheet, keys: tuple[Key, ...], otherwise: Legend, gap: float | None) -> Naming:
        where = sheet.legend or otherwise
        if where == "direct":
            return cls(where, keys, 0.0 if gap is None else widest(key.text for key in keys) + gap)
        if where == "right":
            right = widest(key.text for key in keys) + points(_HANDLE) + 0.12
            return cls(where, keys, right, height=points(_ROW) * len(keys))
        if where == "below":
            rows = -(-len(keys) // _columns(keys, sheet.width or WIDTH))
            return cls(where, keys, foot=points(_ROW) * rows + 0.06)
        return cls(where, keys)

    def draw(self, all_axes: Sequence[Axes], below: float) -> None:
        """Draw the legend, if there is one.

        Args:
            all_axes: The plotting areas.
            below: Room for ticks and labels below them, inches, at the usual size of letters.
        """
        from matplotlib.lines import Line2D

        if self.where in ("direct", "none") or not self.keys:
            return
        figure = figure_of(all_axes[0])
        width, height = figure.get_size_inches()
        handles = [
            Line2D(
                [], [], color=key.color, linestyle=key.line or "none", marker=key.marker or "none",
                markersize=4.5, markeredgewidth=0, label=key.text,
            )
            for key in self.keys
        ]  # fmt: skip
        style: dict[str, Any] = {
            "handles": handles, "fontsize": label_size(), "frameon": False, "handlelength": 1.8,
            "handletextpad": 0.5, "columnspacing": 1.2, "borderaxespad": 0.0, "labelspacing": 0.35,
            "borderpad": 0.1,
        }  # fmt: skip
        frames = [axes.get_position() for axes in all_axes]
        if self.where == "inside":
            all_axes[0].legend(
                loc="best",
                **style | {"frameon": True, "framealpha": 0.7, "edgecolor": "none", "borderaxespad": 0.4},
            )
        elif self.where == "right":
            last = max(frames, key=lambda frame: (frame.x1, frame.y1))
            figure.legend(loc="upper left", bbox_to_anchor=(last.x1 + 0.12 / width, last.y1), **style)
        else:
            low = min(frame.y0 for frame in frames) - points(below) / height
            figure.legend(
                loc="upper center", bbox_to_anchor=(0.5, low), ncols=_columns(self.keys, width), **style
            )


def _columns(keys: Sequence[Key], width: float) -> int:
    """Number of columns of a legend below a figure."""
    each = widest(key.text for key in keys) + points(_HANDLE) + 0.08
    return max(1, min(len(keys), int((width - 2 * EDGE) / each)))


def wrapped_apart(names: Sequence[str], width: float) -> list[list[str]]:
    """Break names into lines as `wrapped` does; those that look the same lose their common beginning."""
    texts = [*names]
    for _ in names:
        places: dict[tuple[str, ...], list[int]] = {}
        for place, text in enumerate(texts):
            places.setdefault(tuple(wrapped(text, width)), []).append(place)
        alike = [same for same in places.values() if len({texts[place] for place in same}) > 1]
        for same in alike:
            letters = zip(*(texts[place] for place in same), strict=False)
            start = sum(1 for _ in takewhile(lambda each: len({*each}) == 1, letters))
            for place in same:
                texts[place] = f"…{texts[place][start:]}"
        if not alike:
            break
    return [wrapped(text, width) for text in texts]


def wrapped(name: str, width: float) -> list[str]:
    """Break a name into at most two lines of a width in inches, between its words; the middle is cut."""
    lines = [""]
    for word in re.findall(r"[^ _=,/-]+[ _=,/-]*|[ _=,/-]+", name):
        if lines[-1] and widest([(lines[-1] + word).rstrip()]) > width:
            lines.append("")
        lines[-1] += word
    lines = [line.rstrip() for line in lines]
    if len(lines) > 2:
        return [_cut(lines[0], width), _cut(name[len(lines[0]) :].strip(), width, head=0)]
    return [_cut(line, width) for line in lines]


def _cut(line: str, width: float, head: float = 0.5) -> str:
    """Shorten a line to a width in inches; of what is kept, a share is from its beginning."""

    def short(kept: int) -> str:
        first = int(head * kept)
        return f"{line[:first]}…{line[len(line) - kept + first :]}"

    if widest([line]) <= width:
        return line
    fitting = bisect_right(range(1, len(line)), width, key=lambda kept: widest([short(kept)]))
    return short(max(fitting, 1))


def name_ends(axes: Axes, ends: list[End]) -> None:
    """Write names to the right of the axes, as level with their lines' ends as they fit without touching.

    A line that ends at no finite score is named below, and joined to nothing.
    """
    frame, lowest = _box(axes), axes.get_ylim()[0]
    places = [(end.x, end.y if math.isfinite(end.y) else lowest) for end in ends]
    pixels = axes.transData.transform(places)
    gap = label_size() * 1.35 * axes.figure.dpi / 72
    levels = spread([float(y) for y in pixels[:, 1]], gap, frame.bottom + gap / 2, frame.top - gap / 2)
    for end, place, level in zip(ends, places, levels, strict=True):
        axes.annotate(
            end.text, place, textcoords="axes fraction", va="center_baseline", size=label_size(),
            xytext=(1.035, (level - frame.bottom) / (frame.top - frame.bottom)),
            color=ink(end.color), annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": end.color, "linewidth": 0.5,
                        "alpha": 0.6 if math.isfinite(end.y) else 0.0,
                        "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip


def name_level(axes: Axes, level: float, text: str) -> list[Box]:
    """Name a horizontal line above its left end.

    Returns:
        What other names have to keep clear of: this name and the line.
    """
    name = axes.annotate(
        text, (0.01, level), xycoords=("axes fraction", "data"), xytext=(0, 1.5),
        textcoords="offset points", size=label_size(), color=GRAY,
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
        means: One row a marker: x, y, the ends low and high of its error bar, text, color.
        dots: Small points to keep clear, [n, 2].
        obstacles: What else to keep clear.
    """
    point = axes.figure.dpi / 72  # pixels
    names = [
        axes.text(0, 0, mean["text"], size=label_size(), color=ink(mean["color"]), zorder=5)
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
