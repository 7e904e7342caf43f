"""Drawing of lines over few points, in panels beside each other, each line named at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import units
from ..drawing import End, add_axes, canvas, name_ends, widest
from ..plots import Texts
from ..style import ink

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 2.2  # of the panels, inches
_WIDTHS = {1: 3.4, 2: 2.1}  # of a panel, by how many there are
_NARROW = 1.7
_LEFT, _BELOW, _HEADING = 0.55, 0.42, 0.2  # room for ticks and labels, and for headings
_NAMES, _GAP = 0.14, 0.1  # room between a panel and its names, and right of them
_LOG_FROM = 8.0  # values that differ by such a factor stand on a logarithmic axis
_FEW_TICKS = 7


def draw_line_panels(data: pd.DataFrame, texts: Texts) -> Figure:
    """Means with bars from the lowest to the highest seed and a dot a seed; levels across the panel.

    Args:
        data: Rows of kind "mean", "seed" and "level": panel, title, x_label, y_label, line, text, colour,
            marker, dash, x, tick (what to write there; None for the number), y, low, high, seeds, planned.
        texts: The words.
    """
    panels = list(data.groupby("panel", sort=False))
    each = _WIDTHS.get(len(panels), _NARROW)
    names = [_NAMES + widest(panel["text"]) + _GAP for _, panel in panels]
    heading = _HEADING if data["title"].ne("").any() else 0.0
    width = sum(_LEFT + each + room for room in names)
    figure, below = canvas(texts, width, _BELOW + _HEIGHT + heading, left=_LEFT)
    left, all_axes = 0.0, []
    for room in names:
        all_axes.append(add_axes(figure, left + _LEFT, below + _BELOW, each, _HEIGHT))
        left += _LEFT + each + room
    if data["y_label"].nunique() == 1:  # the same quantity: heights compare across panels
        for axes in all_axes[1:]:
            axes.sharey(all_axes[0])
    ends = [_draw_panel(axes, panel) for axes, (_, panel) in zip(all_axes, panels, strict=True)]
    for axes, of_panel in zip(all_axes, ends, strict=True):  # when all heights are settled
        name_ends(axes, of_panel)
    return figure


def _draw_panel(axes: Axes, panel: pd.DataFrame) -> list[End]:
    """All but the names, which are returned."""
    first = panel.iloc[0]
    axes.set(xlabel=first["x_label"], ylabel=first["y_label"])
    axes.set_title(first["title"], size=8, pad=4)
    means = panel[panel["kind"] == "mean"]
    ends = []
    for _, line in means.groupby("line", sort=False):
        ends.append(_draw_line(axes, line))
    seeds = panel[panel["kind"] == "seed"]
    axes.scatter(seeds["x"], seeds["y"], s=6, c=seeds["colour"], alpha=0.6, linewidths=0, zorder=3)
    _set_ticks(axes, means)
    right = axes.get_xlim()[1]
    for _, level in panel[panel["kind"] == "level"].iterrows():
        axes.axhline(level["y"], color=level["colour"], linestyle=":", linewidth=0.9, zorder=1)
        if level["high"] > level["low"]:
            axes.axhspan(
                level["low"], level["high"], color=level["colour"], alpha=0.08, linewidth=0, zorder=0
            )
        ends.append(End(right, level["y"], level["text"], level["colour"]))
    axes.set_xlim(axes.get_xlim()[0], right)
    return ends


def _draw_line(axes: Axes, line: pd.DataFrame) -> End:
    """A line with its markers: open where seeds are missing."""
    last = line.iloc[-1]
    colour = last["colour"]
    axes.plot(line["x"], line["y"], color=colour, linestyle=last["dash"], zorder=2)
    bars = line[line["high"] > line["low"]]
    axes.vlines(bars["x"], bars["low"], bars["high"], colors=colour, linewidth=0.9, zorder=3)
    faces = ["white" if row["seeds"] < row["planned"] else colour for _, row in line.iterrows()]
    axes.scatter(
        line["x"],
        line["y"],
        s=24,
        marker=last["marker"],
        c=faces,
        edgecolors=colour,
        linewidths=1.0,
        zorder=4,
    )
    return End(last["x"], last["y"], last["text"], ink(colour))


def _set_ticks(axes: Axes, means: pd.DataFrame) -> None:
    """Words, or the values themselves where they are few."""
    from matplotlib.ticker import NullFormatter, NullLocator

    values = means["x"].drop_duplicates().sort_values()
    if means["tick"].notna().any():
        said = means.drop_duplicates("x").sort_values("x")
        axes.set_xticks(said["x"], list(said["tick"]))
        axes.set_xlim(values.min() - 0.35, values.max() + 0.35)
        axes.xaxis.grid(False)
        return
    if values.min() > 0 and values.max() >= _LOG_FROM * values.min():
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
    if len(values) <= _FEW_TICKS:
        axes.set_xticks(list(values))
    axes.xaxis.set_major_formatter(lambda x, _: units.tick(x))
    axes.margins(x=0.08)
