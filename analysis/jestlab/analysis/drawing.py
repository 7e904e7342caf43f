"""Drawing, from data that is ready: no numbers are made here.

Axes are placed by hand, in inches, so that the plotting area keeps its size whatever is written around it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import units
from .labels import Box, spread
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
_LEFT, _BOTTOM, EDGE = 0.62, 0.45, 0.08  # margins, inches
_TITLE_LINE, _CAPTION_LINE = 0.17, 0.115  # inches
_TITLE_CHARACTERS, _CAPTION_CHARACTERS = 74, 112  # that fit a line
LABEL_SIZE, _CAPTION_SIZE = 7.5, 6.5  # points
LOG_FROM = 8.0  # costs that differ by a greater factor get a logarithmic axis
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
    scale, x_label = axis_unit(texts.x, competing["effort"])
    axes = single_axes(texts, x_label, right=widest(data["text"]) + 0.3)
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
    levels = reference_levels(axes, data, [*competing["low"], *competing["high"]])
    ends += [End(right, level, text, GREY) for level, text in levels]
    axes.set_xlim(axes.get_xlim()[0], right)
    name_ends(axes, ends)
    return figure_of(axes)


def single_axes(texts: Texts, x_label: str, right: float) -> Axes:
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
    below = EDGE + _CAPTION_LINE * len(caption)
    total = below + height + 2 * EDGE + _TITLE_LINE * len(title)
    figure = Figure(figsize=(width, total), dpi=_DPI)
    FigureCanvasAgg(figure)  # measures texts, whatever the figure is saved as
    figure.text(left / width, 1 - EDGE / total, "\n".join(title), va="top", size=9)
    figure.text(
        EDGE / width,
        0.6 * EDGE / total,
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


def logarithmic(axes: Axes) -> None:
    """A logarithmic horizontal axis with round numbers, written as before."""
    from matplotlib.ticker import LogLocator, NullFormatter

    formatter = axes.xaxis.get_major_formatter()
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(formatter)
    axes.xaxis.set_minor_formatter(NullFormatter())


def axis_unit(x_label: str, values: pd.Series[float]) -> tuple[float, str]:
    """What the horizontal axis is divided by, and its label with the unit that this gives."""
    if "FLOP" not in x_label:
        return 1.0, x_label
    scale, unit = units.flops_unit([values.max()])
    return scale, f"{x_label} ({unit})"


def near_references(data: pd.DataFrame, scores: Iterable[float]) -> list[tuple[float, str]]:
    """Final scores of the references near the others' scores, with their names: these get a line.

    Args:
        data: Rows of a figure: role, label, text, and the score as `mean`.
        scores: Those of the others.
    """
    known = list(scores)
    low, high = min(known), max(known)
    room = _NEAR * (high - low)
    ends = data[data["role"] == "reference"].groupby("label", sort=False).tail(1)
    return [
        (float(score), str(text))
        for score, text in zip(ends["mean"], ends["text"], strict=True)
        if low - room <= score <= high + room
    ]


def reference_levels(axes: Axes, data: pd.DataFrame, scores: Iterable[float]) -> list[tuple[float, str]]:
    """A grey line at the final score of each reference near the others' scores; returned with its name."""
    levels = near_references(data, scores)
    for level, _ in levels:
        axes.axhline(level, color=GREY, linestyle=(0, (6, 2)), linewidth=0.8, zorder=1)
    return levels


def name_level(axes: Axes, level: float, text: str) -> list[Box]:
    """Name a horizontal line at its left end, above it; returned as boxes to keep clear: name and line."""
    name = axes.annotate(
        text, (0.01, level), xycoords=("axes fraction", "data"), xytext=(0, 1.5),
        textcoords="offset points", size=LABEL_SIZE, color=GREY,
    )  # fmt: skip
    frame = frame_of(axes)
    y = float(axes.transData.transform((0.0, level))[1])
    return [extent(axes, name), Box(frame.left, y - 1, frame.right, y + 1)]


def name_ends(axes: Axes, ends: list[End]) -> None:
    """Names to the right of the axes, as level with the ends as they can be without touching."""
    frame = frame_of(axes)
    pixels = axes.transData.transform([(end.x, end.y) for end in ends])
    gap = LABEL_SIZE * 1.35 * axes.figure.dpi / 72
    levels = spread([float(y) for y in pixels[:, 1]], gap, frame.bottom + gap / 2, frame.top - gap / 2)
    for end, level in zip(ends, levels, strict=True):
        axes.annotate(
            end.text,
            (end.x, end.y),
            xytext=(1.035, (level - frame.bottom) / (frame.top - frame.bottom)),
            textcoords="axes fraction",
            va="center_baseline",
            size=LABEL_SIZE,
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


def widest(texts: Iterable[str]) -> float:
    """Width of the widest label, inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(size=LABEL_SIZE)
    return max(TextPath((0, 0), text, prop=font).get_extents().width for text in set(texts)) / 72


def extent(axes: Axes, text: Text) -> Box:
    """Where a text lies, pixels."""
    extent = text.get_window_extent()
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)


def frame_of(axes: Axes) -> Box:
    """The plotting area, pixels."""
    box: Any = axes.get_window_extent()
    return Box(box.x0, box.y0, box.x1, box.y1)


def figure_of(axes: Axes) -> Figure:
    """The figure that axes belong to."""
    from matplotlib.figure import Figure

    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure
