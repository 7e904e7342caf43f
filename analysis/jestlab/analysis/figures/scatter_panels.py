"""Drawing of named points in panels beside each other, with bars in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..drawing import add_axes, canvas
from ..plots import Texts
from ..style import GREY
from .naming import name_points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTHS = {1: 4.6}  # of a panel, by how many there are, inches
_NARROW, _HEIGHT = 3.0, 2.6
_LEFT, _BELOW, _HEADING, _GAP = 0.6, 0.42, 0.2, 0.15


def draw_scatter_panels(data: pd.DataFrame, texts: Texts) -> Figure:
    """Each panel on the same scales, with the baseline at the crossing of the dotted lines.

    Args:
        data: As of `references.against_reference`.
        texts: The words.
    """
    panels = list(data.groupby("panel", sort=False))
    each = _WIDTHS.get(len(panels), _NARROW)
    heading = _HEADING if data["panel"].ne("").any() else 0.0
    figure, below = canvas(texts, len(panels) * (_LEFT + each + _GAP), _BELOW + _HEIGHT + heading, left=_LEFT)
    for place, (name, panel) in enumerate(panels):
        axes = add_axes(figure, place * (_LEFT + each + _GAP) + _LEFT, below + _BELOW, each, _HEIGHT)
        axes.set(xlabel=texts.x, ylabel=texts.y)
        axes.set_title(str(name), size=8, pad=4)
        _draw_points(axes, panel)
    return figure


def _draw_points(axes: Axes, panel: pd.DataFrame) -> None:
    means, seeds = (panel[panel["kind"] == kind] for kind in ("mean", "seed"))
    axes.axhline(0, color="black", linestyle=":", linewidth=0.9, zorder=1)
    axes.axvline(0, color="black", linestyle=":", linewidth=0.9, zorder=1)
    if means["connected"].any():
        axes.plot(means["x"], means["y"], color=GREY, linewidth=0.8, zorder=2)
    colours = list(means["colour"])
    axes.vlines(means["x"], means["low"], means["high"], colors=colours, linewidth=0.9, zorder=3)
    axes.hlines(means["y"], means["x_low"], means["x_high"], colors=colours, linewidth=0.9, zorder=3)
    axes.scatter(seeds["x"], seeds["y"], s=6, c=seeds["colour"], alpha=0.6, linewidths=0, zorder=3)
    for _, mean in means.iterrows():
        axes.scatter(mean["x"], mean["y"], s=36, marker=mean["marker"], color=mean["colour"], zorder=4)
    axes.margins(x=0.16, y=0.14)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    name_points(axes, means, seeds[["x", "y"]].to_numpy(), [])
