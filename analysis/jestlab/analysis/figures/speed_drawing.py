"""Drawing of the speed-up figure: curves, bars, and published methods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import units
from ..drawing import LABEL_SIZE, End, add_axes, canvas, name_ends, widest
from ..plots import Texts
from ..style import ink
from .published_drawing import draw_published_panel

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT = 2.3  # of the panels, inches
_BAR = 0.19  # of a bar with its gap: many of them make the figure higher
_CURVES, _BARS, _PUBLISHED = 2.4, 1.9, 3.0  # widths
_LEFT, _BELOW, _GAP = 0.55, 0.42, 0.15
_NAMES = 0.16  # room between a panel and names


def draw_speedup(data: pd.DataFrame, texts: Texts) -> Figure:
    """Two panels, or three.

    Args:
        data: As of `speed.speedup`, with text, role, colour, marker and line.
        texts: The words.
    """
    of = dict(list(data.groupby("panel", sort=False)))
    curves, bars, beside = of["curves"], of.get("flops"), of.get("published")
    names = _NAMES + widest(
        _with_factor(curves, row) for _, row in curves.drop_duplicates("label").iterrows()
    )
    labels = _NAMES + widest(bars["text"]) if bars is not None else 0.0
    width = _LEFT + _CURVES + names + _GAP
    factors = _NAMES + max(widest(map(_factor, bars.to_dict("records"))), 0.3) if bars is not None else 0.0
    width += labels + _BARS + factors if bars is not None else 0.0
    width += _LEFT + _PUBLISHED + _GAP if beside is not None else 0.0
    height = max(_HEIGHT, _BAR * len(bars) if bars is not None else 0.0)
    figure, below = canvas(texts, width, _BELOW + height, left=_LEFT)
    bottom, left = below + _BELOW, _LEFT
    _draw_curves(add_axes(figure, left, bottom, _CURVES, height), curves, texts)
    left += _CURVES + names + _GAP
    if bars is not None:
        _draw_bars(add_axes(figure, left + labels, bottom, _BARS, height), bars)
        left += labels + _BARS + factors
    if beside is not None:
        draw_published_panel(add_axes(figure, left + _LEFT, bottom, _PUBLISHED, height), beside)
    return figure


def _draw_curves(axes: Axes, data: pd.DataFrame, texts: Texts) -> None:
    axes.set(xlabel=texts.x, ylabel=texts.y)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda x, _: units.tick(x))
    ends = []
    for _, curve in data[data["kind"] == "curve"].groupby("label", sort=False):
        last = curve.iloc[-1]
        axes.fill_between(
            curve["x"], curve["low"], curve["high"], color=last["colour"], alpha=0.14, linewidth=0
        )
        axes.plot(curve["x"], curve["y"], color=last["colour"], linestyle=last["line"], zorder=3)
        if last["role"] == "baseline":
            axes.axhline(last["y"], color=last["colour"], linestyle=":", linewidth=0.9, zorder=1)
        ends.append(End(last["x"], last["y"], _with_factor(data, last), last["colour"]))
    matches = data[data["kind"] == "match"]
    axes.scatter(
        matches["x"], matches["y"], s=22, c=matches["colour"], edgecolors="white", linewidths=0.6, zorder=4
    )
    name_ends(axes, ends)


def _with_factor(data: pd.DataFrame, curve: pd.Series[Any]) -> str:
    """How a curve is named: with the factor, since beside the crossings many would lie on each other."""
    match = data[(data["kind"] == "match") & (data["label"] == curve["label"])]
    return f"{curve['text']}, {match['factor'].iloc[0]:.1f}×" if len(match) else str(curve["text"])


def _draw_bars(axes: Axes, bars: pd.DataFrame) -> None:
    """The most at the top, as the baseline is."""
    most = bars["x"].fillna(bars["spent"])
    scale, unit = units.flops_unit([float(most.max())])
    places, ends = list(range(len(bars)))[::-1], []
    for place, length, (_, bar) in zip(places, most / scale, bars.iterrows(), strict=True):
        reached = not math.isnan(bar["x"])
        axes.barh(
            place, length, 0.7, facecolor=bar["colour"] if reached else "white", edgecolor=bar["colour"],
            linewidth=0.8, alpha=0.9 if reached else 1.0, hatch=None if reached else "////",
        )  # fmt: skip
        if bar["high"] > bar["low"]:
            axes.hlines(place, bar["low"] / scale, bar["high"] / scale, colors="black", linewidth=0.9)
            length = max(length, bar["high"] / scale)
        ends.append(length)
        axes.annotate(
            _factor(bar), (length, place), xytext=(3, 0), textcoords="offset points", va="center_baseline",
            size=LABEL_SIZE, color=ink(bar["colour"]), annotation_clip=False,
        )  # fmt: skip
    axes.set_yticks(places, list(bars["text"]), size=LABEL_SIZE)
    for tick, colour in zip(axes.get_yticklabels(), bars["colour"], strict=True):
        tick.set_color(ink(colour))
    axes.tick_params(axis="y", length=0)
    axes.yaxis.grid(False)
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.set_xlim(0, max(ends))
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda x, _: units.tick(x))
    axes.set_xlabel(f"FLOPs to match the baseline ({unit})")


def _factor(bar: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """What stands at the end of a bar."""
    return "not reached" if math.isnan(bar["x"]) else f"{bar['factor']:.1f}×"
