"""Drawing, from data that is ready: no numbers are made here.

Axes are placed by hand, in inches, so that the plotting area keeps its size whatever is written around it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from . import units
from .labels import Box, place, spread
from .plots import Texts
from .style import GREY, ink

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

_WIDTH, _HEIGHT = 5.5, 2.9  # of the figure (the text width of a paper); of the plotting area; inches
_LEAST_WIDTH = 3.4  # of the plotting area; where names leave less, the figure grows
_DPI = 200  # names are measured as finely as they are printed, since hinting makes coarse ones narrower
_LEFT, _BOTTOM, _EDGE = 0.62, 0.45, 0.08  # margins, inches
_TITLE_LINE, _CAPTION_LINE = 0.17, 0.115  # inches
_TITLE_CHARACTERS, _CAPTION_CHARACTERS = 74, 112  # that fit a line
_LABEL_SIZE, _CAPTION_SIZE = 7.5, 6.5  # points
_LOG_FROM = 8.0  # costs that differ by a greater factor get a logarithmic axis
_NEAR = 0.35  # a reference farther from the scores than this share of their range would squeeze them: no line


class End(NamedTuple):
    """Where a line ends, and how it is named."""

    x: float
    y: float
    text: str
    colour: str


def draw_curves(data: pd.DataFrame, texts: Texts) -> Figure:
    """Mean curves with bands, each named at its end.

    Args:
        data: One row a label and point: label, text, role, colour, marker, line, seeds, effort, mean, low,
            high, final.
        texts: The words.
    """
    competing = data[data["role"] != "reference"]
    scale, x_label = _unit(texts.x, competing["effort"])
    axes = _axes(texts, x_label, right=widest(data["text"]) + 0.3)
    ends = []
    for _, curve in competing.groupby("label", sort=False):
        last = curve.iloc[-1]
        effort = curve["effort"] / scale
        if last["seeds"] > 1:
            axes.fill_between(
                effort, curve["low"], curve["high"], color=last["colour"], alpha=0.16, linewidth=0
            )
        axes.plot(
            effort,
            curve["mean"],
            color=last["colour"],
            linestyle=last["line"],
            marker=last["marker"],
            markersize=3.8,
            markeredgewidth=0,
        )
        if last["role"] == "baseline" and last["final"]:
            axes.axhline(last["mean"], color=last["colour"], linestyle=":", linewidth=0.9, zorder=1)
        ends.append(End(effort.iloc[-1], last["mean"], last["text"], last["colour"]))
    right = axes.get_xlim()[1]
    levels = _reference_levels(axes, data, [*competing["low"], *competing["high"]])
    ends += [End(right, level, text, GREY) for level, text in levels]
    axes.set_xlim(axes.get_xlim()[0], right)
    name_ends(axes, ends)
    return _figure(axes)


def draw_pareto(data: pd.DataFrame, texts: Texts) -> Figure:
    """Points with error bars, their front as steps, each named beside its marker.

    Args:
        data: Rows of kind "mean", "seed" and "trajectory": label, text, role, colour, marker, flops, score,
            and of means spread and on_front.
        texts: The words.
    """
    competing = data[data["role"] != "reference"]
    scale, x_label = _unit(texts.x, competing["flops"])
    competing = competing.assign(flops=competing["flops"] / scale)
    means, seeds, ways = (competing[competing["kind"] == kind] for kind in ("mean", "seed", "trajectory"))
    axes = _axes(texts, x_label, right=2 * _EDGE)
    if means["flops"].max() > _LOG_FROM * means["flops"].min():
        _logarithmic(axes)
    for _, way in ways.groupby("label", sort=False):
        axes.plot(
            way["flops"], way["score"], color=way["colour"].iloc[0], alpha=0.35, linewidth=0.8, zorder=2
        )
    axes.scatter(seeds["flops"], seeds["score"], s=6, c=seeds["colour"], alpha=0.6, linewidths=0, zorder=3)
    for _, mean in means.iterrows():
        axes.errorbar(  # dominated: open
            mean["flops"],
            mean["score"],
            yerr=None if math.isnan(mean["spread"]) else mean["spread"],
            color=mean["colour"],
            marker=mean["marker"],
            markersize=6,
            markerfacecolor=mean["colour"] if mean["on_front"] else "white",
            markeredgewidth=1.2,
            elinewidth=0.9,
            capsize=2,
            zorder=4,
        )
    axes.margins(x=0.14, y=0.1)
    references = data[(data["role"] == "reference") & (data["kind"] == "mean")]
    levels = _reference_levels(axes, references.rename(columns={"score": "mean"}), seeds["score"])
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # what follows adapts to the frame, not the reverse
    obstacles = [box for level, text in levels for box in _name_level(axes, level, text)]
    obstacles += _draw_front(axes, means[means["on_front"]])
    _name_points(axes, means, seeds, obstacles)
    return _figure(axes)


def _axes(texts: Texts, x_label: str, right: float) -> Axes:
    """Axes of a new figure with title and caption around them; `right` is the margin in inches."""
    width = max(_WIDTH, _LEFT + _LEAST_WIDTH + right)
    figure, below = canvas(texts, width, _BOTTOM + _HEIGHT)
    axes = add_axes(figure, _LEFT, below + _BOTTOM, width - _LEFT - right, _HEIGHT)
    axes.set(xlabel=x_label, ylabel=texts.y)
    axes.xaxis.set_major_formatter(lambda x, _: units.tick(x))
    return axes


def canvas(texts: Texts, width: float, height: float, left: float = _LEFT) -> tuple[Figure, float]:
    """A new figure with title and caption, and room between them.

    Args:
        texts: The words.
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
    below = _EDGE + _CAPTION_LINE * len(caption)
    total = below + height + 2 * _EDGE + _TITLE_LINE * len(title)
    figure = Figure(figsize=(width, total), dpi=_DPI)
    FigureCanvasAgg(figure)  # measures texts, whatever the figure is saved as
    figure.text(left / width, 1 - _EDGE / total, "\n".join(title), va="top", size=9)
    figure.text(
        _EDGE / width,
        0.6 * _EDGE / total,
        "\n".join(caption),
        va="bottom",
        size=_CAPTION_SIZE,
        color=GREY,
        linespacing=1.15,
    )
    return figure, below


def add_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place given in inches."""
    whole, total = figure.get_size_inches()
    return figure.add_axes((left / whole, bottom / total, width / whole, height / total))


def _logarithmic(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    formatter = axes.xaxis.get_major_formatter()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(formatter)
    axes.xaxis.set_minor_formatter(NullFormatter())


def _unit(x_label: str, values: pd.Series[float]) -> tuple[float, str]:
    """What the horizontal axis is divided by, and its label with the unit that this gives."""
    if "FLOP" not in x_label:
        return 1.0, x_label
    scale, unit = units.flops_unit([values.max()])
    return scale, f"{x_label} ({unit})"


def _reference_levels(axes: Axes, data: pd.DataFrame, scores: Iterable[float]) -> list[tuple[float, str]]:
    """A grey line at the final score of each reference near the others' scores; returned with its name."""
    low, high = min(scores), max(scores)
    room = _NEAR * (high - low)
    levels = []
    for _, reference in data[data["role"] == "reference"].groupby("label", sort=False):
        last = reference.iloc[-1]
        if low - room <= last["mean"] <= high + room:
            axes.axhline(last["mean"], color=GREY, linestyle=(0, (6, 2)), linewidth=0.8, zorder=1)
            levels.append((float(last["mean"]), str(last["text"])))
    return levels


def _draw_front(axes: Axes, front: pd.DataFrame) -> list[Box]:
    """The border of what has been reached, as steps across the frame; returned as boxes to keep clear."""
    front = front.sort_values("flops")
    (_, right), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    corners = [(front["flops"].iloc[0], bottom)]
    for flops, score in zip(front["flops"], front["score"], strict=True):
        corners += [(flops, corners[-1][1]), (flops, score)]
    corners.append((right, corners[-1][1]))
    xs, ys = zip(*corners, strict=True)
    axes.plot(xs, ys, color=GREY, linewidth=1.0, zorder=2)
    pixels = axes.transData.transform(corners)
    return [
        Box(min(a[0], b[0]) - 3, min(a[1], b[1]) - 3, max(a[0], b[0]) + 3, max(a[1], b[1]) + 3)
        for a, b in pairwise(pixels)
    ]


def _name_level(axes: Axes, level: float, text: str) -> list[Box]:
    """Name a horizontal line at its left end, above it; returned as boxes to keep clear: name and line."""
    name = axes.annotate(
        text, (0.01, level), xycoords=("axes fraction", "data"), xytext=(0, 1.5),
        textcoords="offset points", size=_LABEL_SIZE, color=GREY,
    )  # fmt: skip
    frame = _frame(axes)
    y = float(axes.transData.transform((0.0, level))[1])
    return [_extent(axes, name), Box(frame.left, y - 1, frame.right, y + 1)]


def name_ends(axes: Axes, ends: list[End]) -> None:
    """Names to the right of the axes, as level with the ends as they can be without touching."""
    frame = _frame(axes)
    pixels = axes.transData.transform([(end.x, end.y) for end in ends])
    gap = _LABEL_SIZE * 1.35 * axes.figure.dpi / 72
    levels = spread([float(y) for y in pixels[:, 1]], gap, frame.bottom + gap / 2, frame.top - gap / 2)
    for end, level in zip(ends, levels, strict=True):
        axes.annotate(
            end.text,
            (end.x, end.y),
            xytext=(1.035, (level - frame.bottom) / (frame.top - frame.bottom)),
            textcoords="axes fraction",
            va="center_baseline",
            size=_LABEL_SIZE,
            color=ink(end.colour),
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "linewidth": 0.5,
                "alpha": 0.6,
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def _name_points(axes: Axes, means: pd.DataFrame, seeds: pd.DataFrame, obstacles: list[Box]) -> None:
    """Names beside the markers, clear of all that is drawn; a fine line where it is not plain whose it is."""
    point = axes.figure.dpi / 72  # pixels
    names = [
        axes.text(0, 0, mean["text"], size=_LABEL_SIZE, color=ink(mean["colour"]), zorder=5)
        for _, mean in means.iterrows()
    ]
    extents = [_extent(axes, name) for name in names]
    pad = 1.5 * point
    sizes = [(box.right - box.left + 2 * pad, box.top - box.bottom + 2 * pad) for box in extents]
    centres = axes.transData.transform(means[["flops", "score"]].to_numpy())
    spreads = means["spread"].fillna(0).to_numpy()
    for (x, y), low, high in zip(
        centres,
        axes.transData.transform(means[["flops"]].assign(y=means["score"] - spreads).to_numpy()),
        axes.transData.transform(means[["flops"]].assign(y=means["score"] + spreads).to_numpy()),
        strict=True,
    ):
        obstacles.append(Box(x - 4 * point, y - 4 * point, x + 4 * point, y + 4 * point))
        obstacles.append(Box(x - 2 * point, low[1], x + 2 * point, high[1]))
    for x, y in axes.transData.transform(seeds[["flops", "score"]].to_numpy()):
        obstacles.append(Box(x - point, y - point, x + point, y + point))
    frame = _frame(axes)
    boxes = place([(float(x), float(y)) for x, y in centres], sizes, obstacles, frame)
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


def widest(texts: Iterable[str]) -> float:
    """Width of the widest label, inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(size=_LABEL_SIZE)
    return max(TextPath((0, 0), text, prop=font).get_extents().width for text in set(texts)) / 72


def _extent(axes: Axes, text: Text) -> Box:
    """Where a text lies, pixels."""
    extent = text.get_window_extent()
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)


def _frame(axes: Axes) -> Box:
    """The plotting area, pixels."""
    box: Any = axes.get_window_extent()
    return Box(box.x0, box.y0, box.x1, box.y1)


def _figure(axes: Axes) -> Figure:
    from matplotlib.figure import Figure

    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure
