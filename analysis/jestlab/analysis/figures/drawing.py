"""Every figure as it is printed, drawn with matplotlib from data that is ready: no numbers are made here.

`charts` draws learning curves and the Pareto plot for the page, from the same data. All sizes are in inches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..efforts import WORDS, unit
from .canvas import (
    EDGE,
    LABEL_SIZE,
    LOG_FROM,
    Box,
    End,
    Slot,
    band,
    figure_of,
    name_ends,
    name_level,
    name_points,
    round_ticks,
    row,
    scale_scores,
    single,
    tick_at_values,
    widest,
)
from .plot import Texts, axis_unit, near_references
from .style import COMPONENT_LOOKS, GREY, ink

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMES, _GAP = 0.14, 0.1  # between a plotting area and the names right of it, and right of these
_LEFT = 0.55  # room for the ticks and label of a vertical axis
_DOTTED: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9, "zorder": 1}


def draw_curves(data: pd.DataFrame, texts: Texts) -> Figure:
    """Draw mean curves with bands, each named at its end.

    Args:
        data: As of `learning_curves`.
        texts: The words.
    """
    competing = data[data["role"] != "reference"]
    scale, x_label = axis_unit(texts.x, competing["effort"])
    axes = single(texts, x_label, right=widest(data["text"]) + 0.3)
    scale_scores(axes, texts, [*competing["low"], *competing["high"]])
    ends = []
    for _, curve in competing.groupby("label", sort=False):
        last = curve.iloc[-1]
        effort = curve["effort"] / scale
        if last["seeds"] > 1:
            band(axes, effort, curve["low"], curve["high"], last["colour"])
        axes.plot(
            effort, curve["mean"], color=last["colour"], linestyle=last["line"], marker=last["marker"],
            markersize=3.8, markeredgewidth=0,
        )  # fmt: skip
        if last["role"] == "baseline" and last["final"]:
            axes.axhline(last["mean"], color=last["colour"], **_DOTTED)
        ends.append(End(effort.iloc[-1], last["mean"], last["text"], last["colour"]))
    right = axes.get_xlim()[1]
    for level, text in _references(axes, data, [*competing["low"], *competing["high"]]):
        ends.append(End(right, level, text, GREY))
    axes.set_xlim(axes.get_xlim()[0], right)
    name_ends(axes, ends)
    return figure_of(axes)


def draw_pareto(data: pd.DataFrame, texts: Texts) -> Figure:
    """Draw points with error bars, their front as steps, and a name beside each marker.

    Args:
        data: As of `pareto`.
        texts: The words.
    """
    competing = data[data["role"] != "reference"]
    scale, x_label = axis_unit(texts.x, competing["cost"])
    costs = ["cost", "cost_low", "cost_high"]
    competing = competing.assign(**{each: competing[each] / scale for each in costs})
    means, seeds, paths, attained = (
        competing[competing["kind"] == kind] for kind in ("mean", "seed", "trajectory", "attained")
    )
    seeds = seeds[seeds["label"].isin(means.loc[means["seeds"] > 1, "label"])]  # a single one is its mean
    axes = single(texts, x_label, right=2 * EDGE)
    round_ticks(axes, log=means["cost"].max() > LOG_FROM * means["cost"].min())
    scale_scores(axes, texts, [*means["low"], *means["high"]])
    for _, path in paths.groupby("label", sort=False):
        axes.plot(
            path["cost"], path["score"], color=path["colour"].iloc[0], alpha=0.35, linewidth=0.8, zorder=2
        )
    _dots(axes, seeds["cost"], seeds["score"], seeds["colour"])
    for _, mean in means.iterrows():
        _draw_mean(axes, mean)
    axes.margins(x=0.14, y=0.1)
    references = data[(data["role"] == "reference") & (data["kind"] == "mean")]
    levels = _references(axes, references.rename(columns={"score": "mean"}), [*means["low"], *means["high"]])
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # what follows adapts to the frame, not the reverse
    obstacles = [box for level, text in levels for box in name_level(axes, level, text)]
    for _, surface in attained.groupby("at_least") if not attained.empty else ():
        obstacles += _draw_steps(axes, surface, texts, linestyle=":", linewidth=0.9)
    obstacles += _draw_steps(axes, means[means["on_front"]], texts, linewidth=1.0)
    named = means.rename(columns={"cost": "x", "score": "y"})
    name_points(axes, named, seeds[["cost", "score"]].to_numpy(), obstacles)
    return figure_of(axes)


def draw_line_panels(data: pd.DataFrame, texts: Texts) -> Figure:
    """Draw means with bars from the lowest to the highest seed, a dot a seed, and levels across the panel.

    Args:
        data: As of `against`.
        texts: The words.
    """
    panels = [panel for _, panel in data.groupby("panel", sort=False)]
    width = {1: 3.4, 2: 2.1}.get(len(panels), 1.7)
    slots = [Slot(_LEFT, width, _NAMES + widest(panel["text"]) + _GAP) for panel in panels]
    all_axes = row(texts, slots, 2.2, above=0.2 if data["title"].ne("").any() else 0.0)
    if data["y_label"].nunique() == 1:  # the same quantity: heights compare across panels
        for axes in all_axes[1:]:
            axes.sharey(all_axes[0])
    ends = [_draw_line_panel(axes, panel) for axes, panel in zip(all_axes, panels, strict=True)]
    for axes, of_panel in zip(all_axes, ends, strict=True):  # when all heights are final
        name_ends(axes, of_panel)
    return figure_of(all_axes[0])


def draw_step_panels(data: pd.DataFrame, texts: Texts) -> Figure:
    """Draw a training metric over steps, raw lines faint and smoothed ones bold, in panels on one scale.

    Args:
        data: As of `optimiser_spikes`.
        texts: The words.
    """
    panels = list(data.groupby("panel", sort=False))
    slots = [
        Slot(_LEFT, 3.6 if len(panels) == 1 else 2.2, _NAMES + widest(_of(panel, "end")["text"]) + _GAP)
        for _, panel in panels
    ]
    all_axes = row(texts, slots, 2.2, above=0.2)
    for axes, (name, panel) in zip(all_axes, panels, strict=True):
        if axes is not all_axes[0]:
            axes.sharey(all_axes[0])
        axes.set(xlabel=texts.x, ylabel=texts.y)
        axes.set_title(str(name), size=8, pad=4)
        round_ticks(axes)
        axes.margins(x=0)
        for kind, line_width, alpha, order in (("raw", 0.7, 0.55, 2), ("smooth", 1.6, 1.0, 3)):
            for _, line in _of(panel, kind).groupby(["line", "label", "seed"], sort=False, dropna=False):
                axes.plot(
                    line["step"], line["value"], color=line["colour"].iloc[0], linewidth=line_width,
                    linestyle="-" if kind == "raw" else line["dash"].iloc[0], alpha=alpha, zorder=order,
                )  # fmt: skip
    for axes, (_, panel) in zip(all_axes, panels, strict=True):
        ends = _of(panel, "end")[["step", "value", "text", "colour"]]
        name_ends(axes, [End(*end) for end in ends.itertuples(index=False)])
    return figure_of(all_axes[0])


def draw_scatter_panels(data: pd.DataFrame, texts: Texts) -> Figure:
    """Draw named points with bars in both directions; the baseline is where the dotted lines cross.

    Args:
        data: As of `against_reference`.
        texts: The words.
    """
    panels = list(data.groupby("panel", sort=False))
    slots = [Slot(0.6, 4.6 if len(panels) == 1 else 3.0, 0.15)] * len(panels)
    all_axes = row(texts, slots, 2.6, above=0.2 if data["panel"].ne("").any() else 0.0)
    for axes, (name, panel) in zip(all_axes, panels, strict=True):
        axes.set(xlabel=texts.x, ylabel=texts.y)
        axes.set_title(str(name), size=8, pad=4)
        means, seeds = _of(panel, "mean"), _of(panel, "seed")
        axes.axhline(0, color="black", **_DOTTED)
        axes.axvline(0, color="black", **_DOTTED)
        if means["connected"].any():
            axes.plot(means["x"], means["y"], color=GREY, linewidth=0.8, zorder=2)
        bars: dict[str, Any] = {"colors": list(means["colour"]), "linewidth": 0.9, "zorder": 3}
        axes.vlines(means["x"], means["low"], means["high"], **bars)
        axes.hlines(means["y"], means["x_low"], means["x_high"], **bars)
        _dots(axes, seeds["x"], seeds["y"], seeds["colour"])
        for _, mean in means.iterrows():
            axes.scatter(mean["x"], mean["y"], s=36, marker=mean["marker"], color=mean["colour"], zorder=4)
        axes.margins(x=0.16, y=0.14)
        axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
        name_points(axes, means, seeds[["x", "y"]].to_numpy())
    return figure_of(all_axes[0])


def draw_published(data: pd.DataFrame, texts: Texts) -> Figure:
    """Draw published methods as points with their names.

    Args:
        data: As of `published_scores`.
        texts: The words.
    """
    axes = row(texts, [Slot(0.62, 4.6, 0.2)], 2.9, below=0.45)[0]
    _draw_methods(axes, data)
    return figure_of(axes)


def draw_speedup(data: pd.DataFrame, texts: Texts) -> Figure:
    """Draw learning curves, bars of FLOPs, and published methods where there are any.

    Args:
        data: As of `speedup`.
        texts: The words.
    """
    of = {str(name): panel for name, panel in data.groupby("panel", sort=False)}
    curves, bars, methods = of["curves"], of.get("costs"), of.get("published")
    names = (_with_factor(curves, curve) for _, curve in curves.drop_duplicates("label").iterrows())
    slots = [Slot(_LEFT, 2.4, 0.16 + widest(names) + 0.15)]
    if bars is not None:
        factors = max(widest(map(_factor, bars.to_dict("records"))), 0.3)
        slots.append(Slot(0.16 + widest(bars["text"]), 1.9, 0.16 + factors))
    if methods is not None:
        slots.append(Slot(_LEFT, 3.0, 0.15))
    height = max(2.3, 0.19 * len(bars) if bars is not None else 0.0)  # many bars make the figure higher
    first, *others = row(texts, slots, height)
    _draw_curves_with_factors(first, curves, texts)
    if bars is not None:
        _draw_cost_bars(others.pop(0), bars)
    if methods is not None:
        _draw_methods(others.pop(0), methods)
    return figure_of(first)


def draw_stacked_bars(data: pd.DataFrame, texts: Texts) -> Figure:
    """Draw a horizontal bar a label, the first on top, with its sum at the end; a dotted line at 1.

    Args:
        data: As of `step_costs`.
        texts: The words; `y` is what is measured.
    """
    bars = data.drop_duplicates("label")
    shown = [name for name in COMPONENT_LOOKS if data.loc[data["component"] == name, "relative"].gt(0).any()]
    names = list(data[data["component"].isin(shown)].drop_duplicates("component")["name"])
    slot = Slot(0.16 + widest(bars["text"]), 3.6, 0.55)
    legend_rows = math.ceil(sum(0.3 + widest([name]) for name in names) / (slot.width + slot.right))
    axes = row(texts, [slot], 0.26 * (len(bars) + 0.4), above=0.24 * legend_rows, title_left=0.62)[0]
    positions = {label: len(bars) - 1 - place for place, label in enumerate(bars["label"])}
    starts = dict.fromkeys(positions, 0.0)
    for name in shown:
        of_component = data[data["component"] == name]
        part = of_component.set_index("label")["relative"]
        colour, hatch = COMPONENT_LOOKS[name]
        axes.barh(
            [positions[label] for label in part.index], part, 0.72, color=colour, hatch=hatch,
            left=[starts[label] for label in part.index], label=of_component["name"].iloc[0],
            edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        for label, value in part.items():
            starts[str(label)] += float(value)
    for _, bar in bars.iterrows():
        _write_at_end(axes, f"{bar['total']:.2f}", bar["total"], positions[bar["label"]], 4)
    axes.axvline(1, color="black", **(_DOTTED | {"zorder": 2}))
    _name_bars(axes, list(positions.values()), bars["text"])
    axes.set_ylim(-0.7, len(bars) - 0.3)
    axes.set_xlabel(texts.y)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=math.ceil(len(shown) / legend_rows), frameon=False,
        fontsize=LABEL_SIZE, handlelength=1.0, handleheight=0.9, columnspacing=1.2, borderaxespad=0.1,
        handletextpad=0.4,
    )  # fmt: skip
    return figure_of(axes)


def _of(data: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Rows of a kind."""
    return data[data["kind"] == kind]


def _dots(axes: Axes, x: Any, y: Any, colours: Any) -> None:
    """One small point a seed."""
    axes.scatter(x, y, s=6, c=colours, alpha=0.6, linewidths=0, zorder=3)


def _references(axes: Axes, data: pd.DataFrame, scores: Iterable[float]) -> list[tuple[float, str]]:
    """Draw a grey line at the score of each reference near the others' scores; return levels and names."""
    levels = near_references(data, scores)
    for level, _ in levels:
        axes.axhline(level, color=GREY, linestyle=(0, (6, 2)), linewidth=0.8, zorder=1)
    return levels


_FILLS = {"front": "full", "ambiguous": "left", "dominated": "full"}  # dominated: with white


def _draw_mean(axes: Axes, mean: pd.Series[Any]) -> None:
    """A marker, filled by its standing, with bars from the lowest to the highest seed."""
    axes.errorbar(
        mean["cost"], mean["score"], color=mean["colour"], elinewidth=0.9, capsize=2, zorder=4,
        yerr=_error(mean["score"], mean["low"], mean["high"]),
        xerr=_error(mean["cost"], mean["cost_low"], mean["cost_high"]),
    )  # fmt: skip
    axes.plot(
        mean["cost"], mean["score"], color="none", marker=mean["marker"], markersize=7, zorder=5,
        fillstyle=_FILLS[mean["standing"]], markerfacecoloralt="white",
        markerfacecolor="white" if mean["standing"] == "dominated" else mean["colour"],
        markeredgecolor=mean["colour"], markeredgewidth=1.2,
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
    axes.plot(xs, ys, color=GREY, zorder=2, **style)
    pixels = axes.transData.transform(corners)
    return [
        Box(min(a[0], b[0]) - 3, min(a[1], b[1]) - 3, max(a[0], b[0]) + 3, max(a[1], b[1]) + 3)
        for a, b in pairwise(pixels)
    ]


def _draw_line_panel(axes: Axes, panel: pd.DataFrame) -> list[End]:
    """Everything but the names, which are returned."""
    first = panel.iloc[0]
    axes.set(xlabel=first["x_label"], ylabel=first["y_label"])
    axes.set_title(first["title"], size=8, pad=4)
    means, seeds, ends = _of(panel, "mean"), _of(panel, "seed"), []
    for _, line in means.groupby("line", sort=False):
        last = line.iloc[-1]
        colour = last["colour"]
        axes.plot(line["x"], line["y"], color=colour, linestyle=last["dash"], zorder=2)
        bars = line[line["high"] > line["low"]]
        axes.vlines(bars["x"], bars["low"], bars["high"], colors=colour, linewidth=0.9, zorder=3)
        faces = ["white" if missing else colour for missing in line["seeds"] < line["planned"]]
        axes.scatter(
            line["x"], line["y"], s=24, marker=last["marker"], c=faces, edgecolors=colour, linewidths=1.0,
            zorder=4,
        )  # fmt: skip
        ends.append(End(last["x"], last["y"], last["text"], ink(colour)))
    _dots(axes, seeds["x"], seeds["y"], seeds["colour"])
    tick_at_values(axes, means)
    right = axes.get_xlim()[1]
    for _, level in _of(panel, "level").iterrows():
        axes.axhline(level["y"], color=level["colour"], **_DOTTED)
        if level["high"] > level["low"]:
            axes.axhspan(level["low"], level["high"], color=level["colour"], alpha=0.08, lw=0, zorder=0)
        ends.append(End(right, level["y"], level["text"], level["colour"]))
    axes.set_xlim(axes.get_xlim()[0], right)
    return ends


def _draw_methods(axes: Axes, data: pd.DataFrame) -> None:
    """Published methods; the source's own and the experiment's larger than the others."""
    round_ticks(axes, log=data["x"].max() > 4 * data["x"].min())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}%")
    axes.set(xlabel="training FLOPs relative to the baseline", ylabel="mean score (%)")
    for _, point in data.iterrows():
        size = 18 if point["kind"] == "published" else 30
        axes.scatter(point["x"], point["y"], s=size, marker=point["marker"], color=point["colour"], zorder=3)
    axes.margins(x=0.16, y=0.12)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    name_points(axes, data.assign(low=data["y"], high=data["y"]), np.empty((0, 2)))


def _draw_curves_with_factors(axes: Axes, data: pd.DataFrame, texts: Texts) -> None:
    """Learning curves, and a dot where each reaches the baseline's final score."""
    divisor, x_label = axis_unit(texts.x, data["x"])
    data = data.assign(x=data["x"] / divisor)
    axes.set(xlabel=x_label, ylabel=texts.y)
    axes.locator_params(axis="x", nbins=5)
    round_ticks(axes)
    ends = []
    for _, curve in _of(data, "curve").groupby("label", sort=False):
        last = curve.iloc[-1]
        band(axes, curve["x"], curve["low"], curve["high"], last["colour"], alpha=0.14)
        axes.plot(curve["x"], curve["y"], color=last["colour"], linestyle=last["line"], zorder=3)
        if last["role"] == "baseline":
            axes.axhline(last["y"], color=last["colour"], **_DOTTED)
        ends.append(End(last["x"], last["y"], _with_factor(data, last), last["colour"]))
    matches = _of(data, "match")
    axes.scatter(
        matches["x"], matches["y"], s=22, c=matches["colour"], edgecolors="white", linewidths=0.6, zorder=4
    )
    name_ends(axes, ends)


def _with_factor(data: pd.DataFrame, curve: pd.Series[Any]) -> str:
    """A curve's name with its factor, since beside the crossings many factors would overlap."""
    match = _of(data, "match")[lambda rows: rows["label"] == curve["label"]]
    return f"{curve['text']}, {match['factor'].iloc[0]:.1f}×" if len(match) else str(curve["text"])


def _draw_cost_bars(axes: Axes, bars: pd.DataFrame) -> None:
    """Cost to match the baseline, which is at the top."""
    most, cost = bars["x"].fillna(bars["spent"]), bars["cost"].iloc[0]
    scale, name = unit(cost, most.dropna().sort_values().tail(1))
    positions, ends = list(range(len(bars)))[::-1], []
    for position, length, (_, bar) in zip(positions, most / scale, bars.iterrows(), strict=True):
        reached = not math.isnan(bar["x"])
        axes.barh(
            position, length, 0.7, facecolor=bar["colour"] if reached else "white", edgecolor=bar["colour"],
            linewidth=0.8, alpha=0.9 if reached else 1.0, hatch=None if reached else "////",
        )  # fmt: skip
        if bar["high"] > bar["low"]:
            axes.hlines(position, bar["low"] / scale, bar["high"] / scale, colors="black", linewidth=0.9)
            length = max(length, bar["high"] / scale)
        ends.append(length)
        _write_at_end(axes, _factor(bar), length, position, 3, color=ink(bar["colour"]))
    _name_bars(axes, positions, bars["text"])
    for tick, colour in zip(axes.get_yticklabels(), bars["colour"], strict=True):
        tick.set_color(ink(colour))
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.set_xlim(0, max(ends))
    axes.locator_params(axis="x", nbins=5)
    round_ticks(axes)
    what = WORDS[cost].amount
    axes.set_xlabel(f"{what[0].upper()}{what[1:]} to match the baseline{f' ({name})' if name else ''}")


def _factor(bar: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """What is written at the end of a bar."""
    return "not reached" if math.isnan(bar["x"]) else f"{bar['factor']:.1f}×"


def _write_at_end(axes: Axes, text: str, x: float, y: float, gap: float, **style: Any) -> None:
    """Write a text right of the end of a horizontal bar; the gap is in points."""
    axes.annotate(
        text, (x, y), xytext=(gap, 0), textcoords="offset points", va="center_baseline", size=LABEL_SIZE,
        annotation_clip=False, **style,
    )  # fmt: skip


def _name_bars(axes: Axes, positions: list[int], names: Iterable[str]) -> None:
    """Write names left of horizontal bars."""
    axes.set_yticks(positions, list(names), size=LABEL_SIZE)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.grid(False)
