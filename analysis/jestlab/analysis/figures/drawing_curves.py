"""Learning curves as they are printed: together, or each in a panel of its own where they are many.

More than seven curves with their bands hide each other. Then each has a panel, in which it alone is
colored: the baseline is black and the others are thin and gray, so that all are compared with all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..sheet import Sheet
from .canvas import (
    WIDTH,
    Slot,
    band,
    few_ticks,
    figure_of,
    fit,
    grid,
    round_ticks,
    row,
    scale_scores,
    single,
)
from .names import End, Key, Naming, name_ends, wrapped_apart
from .plot import Texts, axis_unit, near_references
from .style import ACCENT, GRAY, SURVIVORS, label_size, points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TOGETHER = 7
"""Curves that are drawn in one panel: of more, the bands cannot be told apart."""

MOST_ALONE = 30
"""Panels of a curve each."""

_FAINT = "#c4c4c4"  # curves that are there for comparison
_DOTTED: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9, "zorder": 1}
_LEFT = 0.62
_MOST_MARKERS = 40  # on a curve


def draw_curves(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw mean curves with bands.

    Args:
        data: As of `learning_curves`.
        texts: The words.
        sheet: Size, font, legend.
    """
    panels = [panel for _, panel in data.groupby("panel", sort=False)]
    if len(panels) > 1:
        return _metrics(panels, texts, sheet)
    if data["alone"].any():
        return _multiples(data, texts, sheet)
    shown = data[data["role"] != "reference"]
    scale, x_label = axis_unit(texts.x, shown["effort"])
    ends = _ends(data, scale)
    naming = Naming.of_lines(sheet, (end.key for end in ends), sheet.width or math.inf, _LEFT)
    axes = single(texts, sheet, x_label, naming.right or 0.16, naming.foot, naming.height)
    scale_scores(axes, texts.metric.scale == "log", [*shown["mean"]])
    right = _draw(axes, data, scale)
    fit([axes], sheet)
    if naming.where == "direct":
        levels = [end for end in ends if math.isnan(end.x)]
        name_ends(
            axes, [end for end in ends if end not in levels] + [end._replace(x=right) for end in levels]
        )
    naming.draw([axes], 0.45)
    return figure_of(axes)


def _metrics(panels: list[pd.DataFrame], texts: Texts, sheet: Sheet) -> Figure:
    """A panel a metric, with one legend."""
    scale, x_label = axis_unit(texts.x, panels[0]["effort"])
    keys: dict[str, Key] = {}
    for key in (end.key for panel in panels for end in _ends(panel, scale)):
        if key.marker or key.text not in keys:  # long curves have no markers
            keys[key.text] = key
    where = "below" if sheet.legend in (None, "direct") else sheet.legend
    placed = Sheet(sheet.width or WIDTH, sheet.height, legend=where)
    naming = Naming.of_lines(placed, keys.values(), math.inf, _LEFT)
    columns = min(len(panels), 2 if (sheet.width or WIDTH) < 6.5 else 3)
    slots = [Slot(0.56, 2.0, 0.14 + (naming.right if place % columns == columns - 1 else 0.0))
             for place in range(len(panels))]  # fmt: skip
    all_axes = row(
        texts, placed, slots, 1.7, above=0.08, foot=naming.foot, narrowest=_share(placed, columns), equal=True
    )
    few_ticks(all_axes, placed)
    for axes, panel in zip(all_axes, panels, strict=True):
        axes.set(xlabel=x_label, ylabel=panel["y_label"].iloc[0])
        round_ticks(axes)
        competing = panel[panel["role"] != "reference"]
        scale_scores(axes, bool(panel["log"].iloc[0]), [*competing["mean"]])
        _draw(axes, panel, scale)
    fit(all_axes, placed)
    naming.draw(all_axes, 0.42)
    return figure_of(all_axes[0])


def _share(sheet: Sheet, columns: int) -> float:
    """Least width of a plotting area so that there are so many of them in a row."""
    return 0.9 * ((sheet.width or WIDTH) / columns - points(0.56) - 0.14)


def _multiples(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """A panel a curve, with all others in gray."""
    shown = data[data["role"] != "reference"]
    baseline = shown[shown["role"] == "baseline"]
    curves = [curve for _, curve in shown[shown["role"] != "baseline"].groupby("label", sort=False)]
    panels = [curve for curve in curves if curve["alone"].any()]
    scale, x_label = axis_unit(texts.x, shown["effort"])
    width = sheet.width or WIDTH
    least = 0.85 if width < 4 or len(panels) > 12 else 1.1
    columns = max(1, min(len(panels), int((width - points(0.5)) / least)))
    keys = [Key(baseline["text"].iloc[0], "#000000")] if len(baseline) else []
    keys += [Key("this run", ACCENT), Key("the other runs", _FAINT)]
    placed = Sheet(width, sheet.height, legend="none" if sheet.legend == "none" else "below")
    naming = Naming.of_lines(placed, keys, math.inf, _LEFT)
    first = Slot(0.5, (width - points(0.5)) / columns - 0.1, 0.1)
    names = wrapped_apart([str(curve["text"].iloc[0]) for curve in panels], first.width)
    above = 0.06 + 0.125 * max(map(len, names))
    # Only the panels at the left and at the bottom have numbers at their axes.
    height = max(0.55, min(1.0, 0.75 * first.width))
    all_axes = grid(
        texts, placed, len(panels), columns, height, left=0.5, between=0.1, below=0.36, above=above,
        foot=naming.foot,
    )  # fmt: skip
    everything = [*shown["mean"]]
    for place, (axes, curve, name) in enumerate(zip(all_axes, panels, names, strict=True)):
        axes.locator_params(axis="both", nbins=3)
        round_ticks(axes)
        scale_scores(axes, texts.metric.scale == "log", everything)
        for other in (each for each in curves if each is not curve):
            axes.plot(other["effort"] / scale, other["mean"], color=_FAINT, linewidth=0.6, zorder=1)
        if len(baseline):
            axes.plot(baseline["effort"] / scale, baseline["mean"], color="black", linewidth=0.9, zorder=3)
            if baseline["final"].iloc[-1]:
                axes.axhline(baseline["mean"].iloc[-1], color="black", **_DOTTED)
        if curve["seeds"].iloc[-1] > 1:
            band(axes, curve["effort"] / scale, curve["low"], curve["high"], ACCENT, alpha=0.25)
        line = SURVIVORS if curve["line"].iloc[0] == SURVIVORS else "-"
        axes.plot(curve["effort"] / scale, curve["mean"], color=ACCENT, linestyle=line, zorder=4)
        axes.set_title("\n".join(name), size=label_size(), pad=2, loc="left", linespacing=1.0)
        if place:
            axes.sharex(all_axes[0])
            axes.sharey(all_axes[0])
        axes.tick_params(
            labelleft=place % columns == 0, labelbottom=place + columns >= len(panels), which="both"
        )
    fit(all_axes, placed)
    figure = figure_of(all_axes[0])
    whole, total = figure.get_size_inches()
    frames = [axes.get_position() for axes in all_axes]
    low, high = min(frame.y0 for frame in frames), max(frame.y1 for frame in frames)
    middle = (frames[0].x0 + max(frame.x1 for frame in frames)) / 2
    figure.text(middle, low - points(0.2) / total, x_label, ha="center", va="top", size=points(8))
    figure.text(
        points(0.03) / whole, (low + high) / 2, texts.y, rotation=90, ha="left", va="center", size=points(8)
    )
    naming.draw(all_axes, 0.36)
    return figure


def _draw(axes: Axes, data: pd.DataFrame, scale: float) -> float:
    """Curves with bands, the baseline's end and the references; returns the right end of the axis."""
    competing = data[data["role"] != "reference"]
    dense = _is_dense(data)
    for _, curve in competing.groupby("label", sort=False):
        last = curve.iloc[-1]
        effort = curve["effort"] / scale
        if last["role"] == "other":
            axes.plot(effort, curve["mean"], color=_FAINT, linewidth=0.7, zorder=1)
            continue
        if last["seeds"] > 1:
            band(axes, effort, curve["low"], curve["high"], last["color"])
        axes.plot(
            effort, curve["mean"], color=last["color"], linestyle=last["line"], markersize=3.8,
            markeredgewidth=0, marker="" if dense else last["marker"], linewidth=1.1 if dense else None,
        )  # fmt: skip
        if last["role"] == "baseline" and last["final"]:
            axes.axhline(last["mean"], color=last["color"], **_DOTTED)
    right = float(axes.get_xlim()[1])
    for level, _ in near_references(data, [*competing["mean"]]):
        axes.axhline(level, color=GRAY, linestyle=(0, (6, 2)), linewidth=0.8, zorder=1)
    axes.set_xlim(axes.get_xlim()[0], right)
    return right


def _is_dense(data: pd.DataFrame) -> bool:
    """Whether markers would cover the lines."""
    return bool(data.groupby("label").size().max() > _MOST_MARKERS)


def _ends(data: pd.DataFrame, scale: float) -> list[End]:
    """Where curves end, and how they are named; levels of references are everywhere, their x is NaN."""
    competing = data[data["role"] != "reference"]
    dense, ends = _is_dense(data), []
    for _, curve in competing[competing["role"] != "other"].groupby("label", sort=False):
        last = curve.iloc[-1]
        look = (last["color"], last["line"], "" if dense else last["marker"])
        ends.append(End(last["effort"] / scale, last["mean"], last["text"], *look))
    for level, text in near_references(data, [*competing["mean"]]):
        ends.append(End(math.nan, level, text, GRAY, (0, (6, 2))))
    return ends
