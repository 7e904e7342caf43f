"""Horizontal bars as they are printed: what steps cost, and what it takes to match the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..efforts import WORDS, unit
from ..sheet import Sheet
from .canvas import EDGE, Slot, few_ticks, figure_of, fit, round_ticks, row
from .names import widest, wrapped
from .plot import Texts
from .style import ink, label_size, points

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOTTED: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9, "zorder": 2}


def draw_stacked_bars(data: pd.DataFrame, texts: Texts, sheet: Sheet, *, totals: bool = True) -> Figure:
    """Draw a horizontal bar a label, the first on top, with its sum at the end; a dotted line at 1.

    Args:
        data: A row a label and component, with the columns label, text, component, name (of the component),
            relative, total (of the label), color and hatch (of the component). Components are put side by
            side in the order in which they first come.
        texts: The words; `y` is what is measured.
        sheet: Size, font, legend.
        totals: Whether sums are written at the ends, and a line is drawn at 1.
    """
    bars = data.drop_duplicates("label")
    components = data.drop_duplicates("component").set_index("component")
    shown = [name for name in components.index if data.loc[data["component"] == name, "relative"].gt(0).any()]
    names = list(data[data["component"].isin(shown)].drop_duplicates("component")["name"])
    bars = bars.assign(text=bar_names(bars["text"], sheet))
    beside = 0.16 + widest_line(bars["text"])
    slot = Slot(beside / points(1), 3.6, 0.55)
    room = (sheet.width or beside + slot.width + slot.right) - 2 * EDGE
    each = 0.3 + max(widest([name]) for name in names)
    columns = max(1, min(len(names), int(room / each)))
    above, foot = (0.24 * math.ceil(len(names) / columns), 0.0) if sheet.legend != "none" else (0.0, 0.0)
    if sheet.legend == "below":
        above, foot = 0.0, points(above)
    axes = row(
        texts, sheet, [slot], 0.26 * (len(bars) + 0.4), above=above, title_left=0.62, foot=foot,
        narrowest=0.9,
    )[0]  # fmt: skip
    few_ticks([axes], sheet)
    positions = {label: len(bars) - 1 - place for place, label in enumerate(bars["label"])}
    starts = dict.fromkeys(positions, 0.0)
    for name in shown:
        of_component = data[data["component"] == name]
        part = of_component.set_index("label")["relative"]
        color, hatch = components.loc[name, ["color", "hatch"]]
        axes.barh(
            [positions[label] for label in part.index], part, 0.72, color=color, hatch=hatch,
            left=[starts[label] for label in part.index], label=of_component["name"].iloc[0],
            edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        for label, value in part.items():
            starts[str(label)] += float(value)
    if totals:
        for _, bar in bars.iterrows():
            _write_at_end(axes, f"{bar['total']:.2f}", bar["total"], positions[bar["label"]], 4)
        axes.axvline(1, color="black", **_DOTTED)
    _name_bars(axes, list(positions.values()), bars["text"])
    axes.set_ylim(-0.7, len(bars) - 0.3)
    axes.set_xlabel(texts.y)
    fit([axes], sheet)
    if sheet.legend != "none":
        _name_components(axes, columns, sheet)
    return figure_of(axes)


def _name_components(axes: Axes, columns: int, sheet: Sheet) -> None:
    """The legend of stacked bars: above them, since nothing else names their parts, or below."""
    figure, frame = figure_of(axes), axes.get_position()
    width, height = figure.get_size_inches()
    style: dict[str, Any] = {
        "ncols": columns, "frameon": False, "fontsize": label_size(), "handlelength": 1.0,
        "handleheight": 0.9, "columnspacing": 1.2, "borderaxespad": 0.1, "handletextpad": 0.4,
    }  # fmt: skip
    handles, _ = axes.get_legend_handles_labels()
    low = frame.y0 - points(0.42) / height
    below = sheet.legend == "below"
    figure.legend(
        handles=handles, loc="upper left" if below else "lower left",
        bbox_to_anchor=(_legend_start(frame, width, columns, handles), low if below else frame.y1), **style,
    )  # fmt: skip


def _legend_start(frame: Any, width: float, columns: int, handles: Any) -> float:
    """Where a legend of stacked bars begins: with them, or further left, lest it be cut at the right."""
    each = 0.32 + max(widest([handle.get_label()]) for handle in handles)
    return float(max(EDGE / width, min(frame.x0, 1 - EDGE / width - columns * each / width)))


def draw_cost_bars(axes: Axes, bars: pd.DataFrame) -> None:
    """Draw the cost to match the baseline, which is at the top."""
    most, cost = bars["x"].fillna(bars["spent"]), bars["cost"].iloc[0]
    scale, name = unit(cost, most.dropna().sort_values().tail(1))
    positions, ends = list(range(len(bars)))[::-1], []
    for position, length, (_, bar) in zip(positions, most / scale, bars.iterrows(), strict=True):
        reached = not math.isnan(bar["x"])
        axes.barh(
            position, length, 0.7, facecolor=bar["color"] if reached else "white", edgecolor=bar["color"],
            linewidth=0.8, alpha=0.9 if reached else 1.0, hatch=None if reached else "////",
        )  # fmt: skip
        if bar["high"] > bar["low"]:
            axes.hlines(position, bar["low"] / scale, bar["high"] / scale, colors="black", linewidth=0.9)
            length = max(length, bar["high"] / scale)
        ends.append(length)
        _write_at_end(axes, factor(bar), length, position, 3, color=ink(bar["color"]))
    _name_bars(axes, positions, bars["text"])
    for tick, color in zip(axes.get_yticklabels(), bars["color"], strict=True):
        tick.set_color(ink(color))
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.set_xlim(0, max(ends))
    axes.locator_params(axis="x", nbins=5)
    round_ticks(axes)
    what = WORDS[cost].amount
    axes.set_xlabel(f"{what[0].upper()}{what[1:]} to match the baseline{f' ({name})' if name else ''}")


def factor(bar: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """Say what is written at the end of a bar."""
    if math.isnan(bar["x"]):
        return "not reached"
    if math.isnan(bar["factor"]):
        return ""
    return "∞" if math.isinf(bar["factor"]) else f"{bar['factor']:.1f}×"


def bar_names(names: Iterable[str], sheet: Sheet) -> list[str]:
    """Return names of bars, in two lines where they would take most of the figure."""
    most = math.inf if sheet.width is None else 0.38 * sheet.width
    return [name if widest([name]) <= most else "\n".join(wrapped(name, most)) for name in names]


def widest_line(names: Iterable[str]) -> float:
    """Return the width of the widest line of names, inches."""
    return widest(line for name in names for line in name.split("\n"))


def _name_bars(axes: Axes, positions: list[int], names: Iterable[str]) -> None:
    """Write names left of horizontal bars."""
    axes.set_yticks(positions, list(names), size=label_size(), linespacing=0.95)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.grid(False)


def _write_at_end(axes: Axes, text: str, x: float, y: float, gap: float, **style: Any) -> None:
    """Write a text right of the end of a horizontal bar; the gap is in points."""
    axes.annotate(
        text, (x, y), xytext=(gap, 0), textcoords="offset points", va="center_baseline", size=label_size(),
        annotation_clip=False, **style,
    )  # fmt: skip
