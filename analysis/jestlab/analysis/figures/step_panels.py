"""Drawing of a training metric over steps: raw lines faint, smoothed lines bold, in panels on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import units
from ..drawing import End, add_axes, canvas, name_ends, widest
from ..plots import Texts

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 2.2  # of the panels, inches
_WIDTHS = {1: 3.6}  # of a panel, by how many there are
_NARROW = 2.2
_LEFT, _BELOW, _HEADING = 0.55, 0.42, 0.2  # room for ticks and labels, and for headings
_NAMES, _GAP = 0.14, 0.1  # room between a panel and its names, and right of them


def draw_step_panels(data: pd.DataFrame, texts: Texts) -> Figure:
    """One panel beside the other.

    Args:
        data: As of `optimiser.optimiser_spikes`, with text, colour and dash.
        texts: The words.
    """
    panels = list(data.groupby("panel", sort=False))
    each = _WIDTHS.get(len(panels), _NARROW)
    rooms = [_NAMES + widest(panel.loc[panel["kind"] == "end", "text"]) + _GAP for _, panel in panels]
    figure, below = canvas(
        texts, sum(_LEFT + each + room for room in rooms), _BELOW + _HEIGHT + _HEADING, left=_LEFT
    )
    left = 0.0
    drawn: list[tuple[Axes, list[End]]] = []
    for (name, panel), room in zip(panels, rooms, strict=True):
        axes = add_axes(figure, left + _LEFT, below + _BELOW, each, _HEIGHT)
        left += _LEFT + each + room
        if drawn:
            axes.sharey(drawn[0][0])
        axes.set(xlabel=texts.x, ylabel=texts.y)
        axes.set_title(str(name), size=8, pad=4)
        axes.xaxis.set_major_formatter(lambda x, _: units.tick(x))
        axes.margins(x=0)
        ends = []
        for kind, width, alpha, order in (("raw", 0.7, 0.55, 2), ("smooth", 1.6, 1.0, 3)):
            of_kind = panel[panel["kind"] == kind]
            for _, line in of_kind.groupby(["line", "label", "seed"], sort=False, dropna=False):
                axes.plot(
                    line["step"], line["value"], color=line["colour"].iloc[0], linewidth=width, alpha=alpha,
                    linestyle="-" if kind == "raw" else line["dash"].iloc[0], zorder=order,
                )  # fmt: skip
        for _, end in panel[panel["kind"] == "end"].iterrows():
            ends.append(End(end["step"], end["value"], end["text"], end["colour"]))
        drawn.append((axes, ends))
    for axes, ends in drawn:
        name_ends(axes, ends)
    return figure
