"""Drawing of the learnability figure: panels in a row, each with its place in inches, and bars below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import units
from .drawing import End, add_axes, canvas, name_ends, widest
from .plots import Texts
from .style import ink

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT, _BARS_HEIGHT = 1.75, 0.9  # of the row of panels and of the bars, inches
_PANEL_WIDTH = 1.5
_TICKS, _LABELS, _HEADING = 0.46, 0.42, 0.22  # room left of, below and above axes
_BAR_LABELS = 0.24  # room below the bars
_COLOURS, _COLOURS_GAP, _COLOURS_TICKS = 0.07, 0.06, 0.52  # the colour bar: width, distance, its numbers
_NAMES, _GAP = 0.14, 0.1  # room between a panel and its names, and right of them
_CLIPPED = 0.02  # share of the pairs that may lie beyond the colours: few pairs are far from all others
_DIVERGING = "RdBu_r"


def draw_panels(data: pd.DataFrame, texts: Texts) -> Figure:
    """The panels that there are data for.

    Args:
        data: As of `learnability.learnability`.
        texts: The words; `x` is the unit of iterations, `y` what is measured.
    """
    of = dict(list(data.groupby("panel", sort=False)))
    names = {panel: _NAMES + widest(of[panel]["text"]) for panel in ("iterations", "ratios") if panel in of}
    width = sum(_TICKS + _PANEL_WIDTH + room + _GAP for room in names.values())
    if "matrix" in of:
        width += _TICKS + _HEIGHT + _COLOURS_GAP + _COLOURS + _COLOURS_TICKS
    below_panels = _BARS_HEIGHT + _BAR_LABELS + _HEADING if "selected" in of else 0.0
    figure, below = canvas(texts, width, below_panels + _LABELS + _HEIGHT + _HEADING, left=_TICKS)
    bottom, left = below + below_panels + _LABELS, 0.0
    if "matrix" in of:
        axes = add_axes(figure, left + _TICKS, bottom, _HEIGHT, _HEIGHT)
        left += _TICKS + _HEIGHT + _COLOURS_GAP
        _draw_matrix(axes, add_axes(figure, left, bottom, _COLOURS, _HEIGHT), of["matrix"], texts)
        left += _COLOURS + _COLOURS_TICKS
    for panel, draw in (("iterations", _draw_iterations), ("ratios", _draw_ratios)):
        if panel in of:
            axes = add_axes(figure, left + _TICKS, bottom, _PANEL_WIDTH, _HEIGHT)
            axes.set_title(f"{texts.y} of the sub-batch", size=8, pad=3)
            axes.set_ylabel("nats per example")
            draw(axes, of[panel], texts)
            left += _TICKS + _PANEL_WIDTH + names[panel] + _GAP
    if "selected" in of:
        axes = add_axes(figure, _TICKS, below + _BAR_LABELS, width - _TICKS - _GAP, _BARS_HEIGHT)
        _draw_bars(axes, of["selected"])
    return figure


def _draw_matrix(axes: Axes, bar: Axes, matrix: pd.DataFrame, texts: Texts) -> None:
    """A heat map, red where the learner has something to learn; most of the pairs' range in colours."""
    size = int(matrix["x"].max()) + 1
    scores = matrix.pivot(index="y", columns="x", values="value").to_numpy()
    limit = float(matrix["value"].abs().quantile(1 - _CLIPPED)) or 1.0
    axes.grid(False)
    image = axes.imshow(scores, cmap=_DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set(xlabel="text", ylabel="image", xticks=[0, size - 1], yticks=[0, size - 1])
    axes.set(xticklabels=["1", str(size)], yticklabels=["1", str(size)])
    axes.spines[["top", "right"]].set_visible(True)
    axes.tick_params(length=0)
    axes.set_title(f"{texts.y} of pairs", size=8, pad=3)
    figure: Any = axes.figure
    figure.colorbar(image, cax=bar, extend="both", extendfrac=0.03)
    bar.set_ylabel("nats", labelpad=1)
    bar.grid(False)
    bar.tick_params(width=0.6, length=2, labelsize=7)


def _draw_iterations(axes: Axes, data: pd.DataFrame, texts: Texts) -> None:
    from matplotlib.ticker import NullFormatter

    last = float(data["x"].max())
    ends = []
    for rule, line in data.groupby("line", sort=False):
        first, colour = line.iloc[0], line["colour"].iloc[0]
        end = float(line["value"].iloc[-1])
        if line["x"].isna().all():
            axes.axhline(end, color=colour, linestyle=(0, (4, 1.5)), linewidth=0.9)
        else:
            _band(axes, line["x"], line, colour)
            axes.plot(line["x"], line["value"], color=colour, zorder=3)
            if rule == "joint":  # open: a part of the sub-batch; filled: the whole
                faces = ["white"] * (len(line) - 1) + [colour]
                axes.scatter(
                    line["x"], line["value"], s=9, c=faces, edgecolors=colour, linewidths=0.8, zorder=4
                )
            axes.hlines(end, line["x"].iloc[-1], last, colors=colour, linestyles=":", linewidth=0.9)
        ends.append(End(last, end, first["text"], colour))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: units.tick(x))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.9, last)
    axes.set_xlabel(texts.x)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + (high - low) / 4)  # for the names of the lines that end together at the top
    name_ends(axes, ends)


def _draw_ratios(axes: Axes, data: pd.DataFrame, texts: Texts) -> None:
    ends = []
    lines = list(data.groupby("line", sort=False))
    for name, line in lines:
        last, colour = line.iloc[-1], line["colour"].iloc[0]
        if name in (lines[0][0], lines[-1][0]):  # all would lie on each other: seeds differ by their learner
            _band(axes, line["x"], line, colour)
        axes.plot(
            line["x"], line["value"], color=colour, marker="D" if name == "independent" else "o",
            markersize=3, markeredgewidth=0,
        )  # fmt: skip
        ends.append(End(float(last["x"]), float(last["value"]), last["text"], colour))
    axes.set_xticks(sorted(set(data["x"])))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.set_xlabel("filtering ratio f")
    name_ends(axes, ends)


def _draw_bars(axes: Axes, data: pd.DataFrame) -> None:
    rules = list(data.groupby("line", sort=False))
    width = 0.8 / len(rules)
    for place, (_, rule) in enumerate(rules):
        colour = rule["colour"].iloc[0]
        axes.bar(
            rule["x"] + (place - (len(rules) - 1) / 2) * width, 100 * rule["value"], 0.92 * width,
            color=colour,
            yerr=100 * rule["spread"] if rule["spread"].any() else None,
            error_kw={"elinewidth": 0.6, "ecolor": ink(colour)},
        )  # fmt: skip
    ticks = rules[0][1].sort_values("x")
    axes.set_xticks(ticks["x"], [text.replace("_", " ") for text in ticks["text"]])
    axes.set_ylim(bottom=0)
    axes.set(ylabel="share (%)", xlim=(-0.6, ticks["x"].max() + 0.6))
    axes.locator_params(axis="y", nbins=4)
    axes.tick_params(axis="x", length=0)
    axes.xaxis.grid(False)
    for place, (name, rule) in enumerate(rules):
        axes.annotate(
            str(name), (1.0, 1.0), xytext=(-2, -1 - 10 * place), xycoords="axes fraction",
            textcoords="offset points", ha="right", va="top", size=7.5, color=ink(rule["colour"].iloc[0]),
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip


def _band(axes: Axes, x: Any, line: pd.DataFrame, colour: str) -> None:
    """± the spread, where there is one."""
    if line["spread"].any():
        low, high = line["value"] - line["spread"], line["value"] + line["spread"]
        axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
