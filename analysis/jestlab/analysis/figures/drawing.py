"""Figures as they are printed, drawn with matplotlib from data that is ready: no numbers are made here.

Learning curves and bars have modules of their own. `charts` hands curves and the Pareto plot to the page,
from the same data. All sizes are in inches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..sheet import Sheet
from .canvas import (
    EDGE,
    LOG_FROM,
    Slot,
    band,
    few_ticks,
    figure_of,
    fit,
    round_ticks,
    row,
    scale_scores,
    single,
    tick_at_values,
)
from .drawing_bars import bar_names, draw_cost_bars, factor, widest_line
from .drawing_curves import MOST_TOGETHER
from .names import Box, End, Key, Naming, name_ends, name_level, name_points, widest
from .plot import Texts, axis_unit, near_references
from .style import GRAY, ink, points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMES, _GAP = 0.14, 0.1  # between a plotting area and the names right of it, and right of these
_LEFT = 0.55  # room for the ticks and label of a vertical axis
_DOTTED: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9, "zorder": 1}


def draw_pareto(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw points with error bars, their front as steps, and a name beside each marker.

    Args:
        data: As of `pareto`.
        texts: The words.
        sheet: Size, font, legend.
    """
    competing = data[data["role"] != "reference"]
    scale, x_label = axis_unit(texts.x, competing["cost"])
    costs = ["cost", "cost_low", "cost_high"]
    competing = competing.assign(**{each: competing[each] / scale for each in costs})
    means, seeds, paths, attained = (
        competing[competing["kind"] == kind] for kind in ("mean", "seed", "trajectory", "attained")
    )
    seeds = seeds[seeds["label"].isin(means.loc[means["seeds"] > 1, "label"])]  # a single one is its mean
    named = means.rename(columns={"cost": "x", "score": "y"})
    naming = Naming.of_points(sheet, _keys(means))
    axes = single(texts, sheet, x_label, naming.right or 2 * EDGE, naming.foot, naming.height)
    round_ticks(axes, log=0 < LOG_FROM * means["cost"].min() < means["cost"].max())
    scale_scores(axes, texts.metric.scale == "log", [*means["low"], *means["high"]])
    for _, path in paths.groupby("label", sort=False):
        axes.plot(
            path["cost"], path["score"], color=path["color"].iloc[0], alpha=0.35, linewidth=0.8, zorder=2
        )
    _dots(axes, seeds["cost"], seeds["score"], seeds["color"])
    for _, mean in means.iterrows():
        _draw_mean(axes, mean)
    axes.margins(x=0.14, y=0.1)
    references = data[(data["role"] == "reference") & (data["kind"] == "mean")]
    levels = _references(axes, references.rename(columns={"score": "mean"}), [*means["low"], *means["high"]])
    fit([axes], sheet)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # what follows adapts to the frame, not the reverse
    obstacles = [box for level, text in levels for box in name_level(axes, level, text)]
    for _, surface in attained.groupby("at_least") if not attained.empty else ():
        obstacles += _draw_steps(axes, surface, texts, linestyle=":", linewidth=0.9)
    obstacles += _draw_steps(axes, means[means["on_front"]], texts, linewidth=1.0)
    if naming.where == "direct":
        name_points(axes, named, seeds[["cost", "score"]].to_numpy(), obstacles)
    naming.draw([axes], 0.45)
    return figure_of(axes)


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


def draw_published(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw published methods as points with their names.

    Args:
        data: As of `published_scores`.
        texts: The words.
        sheet: Size, font, legend.
    """
    naming = Naming.of_points(sheet, _keys(data)) if sheet.legend else Naming("direct", ())
    slot = Slot(0.62, 4.6, max(0.2, naming.right))
    axes = row(texts, sheet, [slot], 2.9, below=0.45, foot=naming.foot)[0]
    few_ticks([axes], sheet)
    _draw_methods(axes, data)
    fit([axes], sheet)
    if naming.where == "direct":
        _name_methods(axes, data)
    naming.draw([axes], 0.45)
    return figure_of(axes)


def draw_speedup(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw learning curves, bars of FLOPs, and published methods where there are any.

    Args:
        data: As of `speedup`.
        texts: The words.
        sheet: Size, font, legend.
    """
    of = {str(name): panel for name, panel in data.groupby("panel", sort=False)}
    curves, bars, methods = of["curves"], of.get("costs"), of.get("published")
    keys = [
        Key(_with_factor(curves, curve), curve["color"], curve["line"])
        for _, curve in _of(curves, "curve").drop_duplicates("label").iterrows()
    ]
    naming = Naming.of_lines(sheet, keys, sheet.width or math.inf, _LEFT, 0.31)
    slots = [Slot(_LEFT, 2.4, naming.right if naming.where == "direct" else _GAP)]
    if bars is not None:
        factors = max(widest(map(factor, bars.to_dict("records"))), 0.3)
        bars = bars.assign(text=bar_names(bars["text"], sheet))
        slots.append(Slot((0.16 + widest_line(bars["text"])) / points(1), 1.9, 0.16 + factors))
    if methods is not None:
        slots.append(Slot(_LEFT, 3.0, 0.15))
    if naming.where == "right":
        slots[0] = slots[0]._replace(right=naming.right)
    heights = [2.3]
    if bars is not None:  # many bars make the figure higher
        heights.append(0.22 * (len(bars) + 1))
    if methods is not None:
        heights.append(2.3)
    all_axes = row(texts, sheet, slots, heights, foot=naming.foot)
    few_ticks(all_axes, sheet)
    first, *others = all_axes
    ends = _draw_curves_with_factors(first, curves, texts)
    if bars is not None:
        draw_cost_bars(others.pop(0), bars)
    if methods is not None:
        _draw_methods(others[0], methods)
    fit(all_axes, sheet)
    if naming.where == "direct":
        name_ends(first, ends)
    if methods is not None:
        _name_methods(others[0], methods)
    naming.draw(all_axes if naming.where == "below" else [first], 0.42)
    return figure_of(first)


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


def _references(axes: Axes, data: pd.DataFrame, scores: Iterable[float]) -> list[tuple[float, str]]:
    """Draw a gray line at the score of each reference near the others' scores; return levels and names."""
    levels = near_references(data, scores)
    for level, _ in levels:
        axes.axhline(level, color=GRAY, linestyle=(0, (6, 2)), linewidth=0.8, zorder=1)
    return levels


_FILLS = {"front": "full", "ambiguous": "left", "dominated": "full"}  # dominated: with white


def _draw_mean(axes: Axes, mean: pd.Series[Any]) -> None:
    """A marker, filled by its standing, with bars from the lowest to the highest seed."""
    axes.errorbar(
        mean["cost"], mean["score"], color=mean["color"], elinewidth=0.9, capsize=2, zorder=4,
        yerr=_error(mean["score"], mean["low"], mean["high"]),
        xerr=_error(mean["cost"], mean["cost_low"], mean["cost_high"]),
    )  # fmt: skip
    axes.plot(
        mean["cost"], mean["score"], color="none", marker=mean["marker"], markersize=7, zorder=5,
        fillstyle=_FILLS[mean["standing"]], markerfacecoloralt="white",
        markerfacecolor="white" if mean["standing"] == "dominated" else mean["color"],
        markeredgecolor=mean["color"], markeredgewidth=1.2,
    )  # fmt: skip


def _error(middle: float, low: float, high: float) -> list[list[float]] | None:
    return [[middle - low], [high - middle]] if high > low else None


def _draw_steps(axes: Axes, steps: pd.DataFrame, texts: Texts, **style: Any) -> list[Box]:
    """The border of what has been reached, as steps across the frame, upwards or downwards to what is better;
    returned as boxes to keep clear."""
    if steps.empty:
        return []
    steps = steps.sort_values("cost")
    right, worst = axes.get_xlim()[1], axes.get_ylim()[texts.metric.goal == "min"]
    corners = [(steps["cost"].iloc[0], worst)]
    for cost, score in zip(steps["cost"], steps["score"], strict=True):
        corners += [(cost, corners[-1][1]), (cost, score)]
    corners.append((right, corners[-1][1]))
    xs, ys = zip(*corners, strict=True)
    axes.plot(xs, ys, color=GRAY, zorder=2, **style)
    pixels = axes.transData.transform(corners)
    return [
        Box(min(a[0], b[0]) - 3, min(a[1], b[1]) - 3, max(a[0], b[0]) + 3, max(a[1], b[1]) + 3)
        for a, b in pairwise(pixels)
    ]


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


def _draw_methods(axes: Axes, data: pd.DataFrame) -> None:
    """Published methods; the source's own and the experiment's larger than the others."""
    round_ticks(axes, log=0 < 4 * data["x"].min() < data["x"].max())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}%")
    axes.set(xlabel="training FLOPs relative to the baseline", ylabel="mean score (%)")
    for _, point in data.iterrows():
        size = 18 if point["kind"] == "published" else 30
        axes.scatter(point["x"], point["y"], s=size, marker=point["marker"], color=point["color"], zorder=3)
    axes.margins(x=0.16, y=0.12)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())


def _name_methods(axes: Axes, data: pd.DataFrame) -> None:
    name_points(axes, data.assign(low=data["y"], high=data["y"]), np.empty((0, 2)))


def _draw_curves_with_factors(axes: Axes, data: pd.DataFrame, texts: Texts) -> list[End]:
    """Learning curves, and a dot where each reaches the baseline's final score; the names are returned."""
    divisor, x_label = axis_unit(texts.x, data["x"])
    data = data.assign(x=data["x"] / divisor)
    axes.set(xlabel=x_label, ylabel=texts.y)
    axes.locator_params(axis="x", nbins=5)
    round_ticks(axes)
    ends, few = [], _of(data, "curve")["label"].nunique() <= MOST_TOGETHER
    for _, curve in _of(data, "curve").groupby("label", sort=False):
        last = curve.iloc[-1]
        if few:
            band(axes, curve["x"], curve["low"], curve["high"], last["color"], alpha=0.14)
        axes.plot(curve["x"], curve["y"], color=last["color"], linestyle=last["line"], zorder=3)
        if last["role"] == "baseline":
            axes.axhline(last["y"], color=last["color"], **_DOTTED)
        ends.append(End(last["x"], last["y"], _with_factor(data, last), last["color"]))
    matches = _of(data, "match")
    axes.scatter(
        matches["x"], matches["y"], s=22, c=matches["color"], edgecolors="white", linewidths=0.6, zorder=4
    )
    return ends


def _with_factor(data: pd.DataFrame, curve: pd.Series[Any]) -> str:
    """A curve's name with its factor, since beside the crossings many factors would overlap."""
    match = _of(data, "match")[lambda rows: rows["label"] == curve["label"]]
    return f"{curve['text']}, {match['factor'].iloc[0]:.1f}×" if len(match) else str(curve["text"])
