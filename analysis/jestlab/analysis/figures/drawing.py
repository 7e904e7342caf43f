"""Figures as they are printed, drawn with matplotlib from data that is ready: no numbers are made here.

Learning curves and bars have modules of their own. `charts` hands curves and the Pareto plot to the page,
from the same data. All sizes are in inches.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..sheet import Sheet
from .canvas import (
    Slot,
    few_ticks,
    figure_of,
    fit,
    round_ticks,
    row,
    tick_at_values,
)
from .names import End, Key, Naming, name_ends, name_points, widest
from .plot import Texts
from .style import GRAY, ink, points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMES, _GAP = 0.14, 0.1  # between a plotting area and the names right of it, and right of these
_LEFT = 0.55  # room for the ticks and label of a vertical axis
_DOTTED: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9, "zorder": 1}


def draw_line_panels(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw means with bars from the lowest to the highest seed, a dot a seed, and levels across the panel.

    Args:
        data: As of `against`.
        texts: The words.
        sheet: Size, font, legend.
    """
    panels = [panel for _, panel in data.groupby("panel", sort=False)]
    width = {1: 3.4, 2: 2.1}.get(len(panels), 1.7)
    looks = data[data["kind"].isin(["mean", "level"])].drop_duplicates("line")
    naming = Naming.of_lines(sheet, _keys(looks, "dash"), sheet.width or math.inf, _LEFT, _NAMES + _GAP)
    direct = naming.where == "direct"
    slots = [
        Slot(_LEFT, width, _NAMES + widest(panel["text"]) + _GAP if direct else _GAP) for panel in panels
    ]
    slots[-1] = slots[-1]._replace(right=max(slots[-1].right, 0.0 if direct else naming.right))
    above = 0.2 if data["title"].ne("").any() else 0.0
    all_axes = row(texts, sheet, slots, 2.2, above=above, foot=naming.foot)
    few_ticks(all_axes, sheet)
    if data["y_label"].nunique() == 1:  # the same quantity: heights compare across panels
        for axes in all_axes[1:]:
            axes.sharey(all_axes[0])
    ends = [_draw_line_panel(axes, panel) for axes, panel in zip(all_axes, panels, strict=True)]
    fit(all_axes, sheet)
    for axes, of_panel in zip(all_axes, ends, strict=True):  # when all heights are final
        if direct:
            name_ends(axes, of_panel)
    naming.draw(all_axes, 0.42)
    return figure_of(all_axes[0])


def draw_step_panels(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw a training metric over steps, raw lines faint and smoothed ones bold, in panels on one scale.

    Args:
        data: As of `optimizer_spikes`.
        texts: The words.
        sheet: Size, font, legend.
    """
    panels = list(data.groupby("panel", sort=False))
    ends = [
        [End(*end) for end in _of(panel, "end")[["step", "value", "text", "color", "dash"]].to_numpy()]
        for _, panel in panels
    ]
    keys = (end.key for of_panel in ends for end in of_panel)
    naming = Naming.of_lines(sheet, keys, sheet.width or math.inf, _LEFT, _NAMES + _GAP)
    direct = naming.where == "direct"
    slots = [
        Slot(
            _LEFT,
            3.6 if len(panels) == 1 else 2.2,
            _NAMES + widest(end.text for end in of_panel) + _GAP if direct else _GAP,
        )
        for of_panel in ends
    ]
    slots[-1] = slots[-1]._replace(right=max(slots[-1].right, 0.0 if direct else naming.right))
    all_axes = row(texts, sheet, slots, 2.2, above=0.2, foot=naming.foot)
    few_ticks(all_axes, sheet)
    for axes, (name, panel) in zip(all_axes, panels, strict=True):
        if axes is not all_axes[0]:
            axes.sharey(all_axes[0])
        axes.set(xlabel=texts.x, ylabel=texts.y)
        axes.set_title(str(name), size=points(8), pad=4)
        round_ticks(axes)
        axes.margins(x=0)
        for kind, line_width, alpha, order in (("raw", 0.7, 0.55, 2), ("smooth", 1.6, 1.0, 3)):
            for _, line in _of(panel, kind).groupby(["line", "label", "seed"], sort=False, dropna=False):
                axes.plot(
                    line["step"], line["value"], color=line["color"].iloc[0], linewidth=line_width,
                    linestyle="-" if kind == "raw" else line["dash"].iloc[0], alpha=alpha, zorder=order,
                )  # fmt: skip
    fit(all_axes, sheet)
    for axes, of_panel in zip(all_axes, ends, strict=True):
        if direct:
            name_ends(axes, of_panel)
    naming.draw(all_axes, 0.42)
    return figure_of(all_axes[0])


def draw_scatter_panels(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw named points with bars in both directions; the baseline is where the dotted lines cross.

    Args:
        data: As of `against_reference`.
        texts: The words.
        sheet: Size, font, legend.
    """
    panels = list(data.groupby("panel", sort=False))
    naming = Naming.of_points(sheet, _keys(_of(data, "mean").drop_duplicates("text")))
    slots = [Slot(0.6, 4.6 if len(panels) == 1 else 3.0, 0.15)] * len(panels)
    slots[-1] = slots[-1]._replace(right=max(0.15, naming.right))
    above = 0.2 if data["panel"].ne("").any() else 0.0
    all_axes = row(texts, sheet, slots, 2.6, above=above, foot=naming.foot)
    few_ticks(all_axes, sheet)
    for axes, (name, panel) in zip(all_axes, panels, strict=True):
        axes.set(xlabel=texts.x, ylabel=texts.y)
        axes.set_title(str(name), size=points(8), pad=4)
        means, seeds = _of(panel, "mean"), _of(panel, "seed")
        axes.axhline(0, color="black", **_DOTTED)
        axes.axvline(0, color="black", **_DOTTED)
        if means["connected"].any():
            axes.plot(means["x"], means["y"], color=GRAY, linewidth=0.8, zorder=2)
        bars: dict[str, Any] = {"colors": list(means["color"]), "linewidth": 0.9, "zorder": 3}
        axes.vlines(means["x"], means["low"], means["high"], **bars)
        axes.hlines(means["y"], means["x_low"], means["x_high"], **bars)
        _dots(axes, seeds["x"], seeds["y"], seeds["color"])
        for _, mean in means.iterrows():
            axes.scatter(mean["x"], mean["y"], s=36, marker=mean["marker"], color=mean["color"], zorder=4)
        axes.margins(x=0.16, y=0.14)
        axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    fit(all_axes, sheet)
    for axes, (_, panel) in zip(all_axes, panels, strict=True):
        if naming.where == "direct":
            name_points(axes, _of(panel, "mean"), _of(panel, "seed")[["x", "y"]].to_numpy())
    naming.draw(all_axes, 0.42)
    return figure_of(all_axes[0])


def _keys(rows: pd.DataFrame, line: str | None = None) -> list[Key]:
    """Entries of a legend: a row each, with its line, or only its marker."""
    return [
        Key(str(row["text"]), row["color"], "" if line is None else _dash(row[line]), _marker(row))
        for _, row in rows.iterrows()
    ]


def _dash(line: Any) -> Any:
    return ":" if isinstance(line, float) else line  # a level has none


def _marker(row: pd.Series[Any]) -> str:
    marker = row.get("marker", "")
    return marker if isinstance(marker, str) else ""


def _of(data: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Rows of a kind."""
    return data[data["kind"] == kind]


def _dots(axes: Axes, x: Any, y: Any, colors: Any) -> None:
    """One small point a seed."""
    axes.scatter(x, y, s=6, c=colors, alpha=0.6, linewidths=0, zorder=3)


def _draw_line_panel(axes: Axes, panel: pd.DataFrame) -> list[End]:
    """Everything but the names, which are returned."""
    first = panel.iloc[0]
    axes.set(xlabel=first["x_label"], ylabel=first["y_label"])
    axes.set_title(first["title"], size=points(8), pad=4)
    means, seeds, ends = _of(panel, "mean"), _of(panel, "seed"), []
    for _, line in means.groupby("line", sort=False):
        last = line.iloc[-1]
        color = last["color"]
        axes.plot(line["x"], line["y"], color=color, linestyle=last["dash"], zorder=2)
        bars = line[line["high"] > line["low"]]
        axes.vlines(bars["x"], bars["low"], bars["high"], colors=color, linewidth=0.9, zorder=3)
        faces = ["white" if missing else color for missing in line["seeds"] < line["planned"]]
        axes.scatter(
            line["x"], line["y"], s=24, marker=last["marker"], c=faces, edgecolors=color, linewidths=1.0,
            zorder=4,
        )  # fmt: skip
        ends.append(End(last["x"], last["y"], last["text"], ink(color)))
    _dots(axes, seeds["x"], seeds["y"], seeds["color"])
    tick_at_values(axes, means)
    right = axes.get_xlim()[1]
    for _, level in _of(panel, "level").iterrows():
        axes.axhline(level["y"], color=level["color"], **_DOTTED)
        if level["high"] > level["low"]:
            axes.axhspan(level["low"], level["high"], color=level["color"], alpha=0.08, lw=0, zorder=0)
        ends.append(End(right, level["y"], level["text"], level["color"]))
    axes.set_xlim(axes.get_xlim()[0], right)
    return ends
