"""How much sooner runs reach the baseline's final score: curves, and costs to match."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..costs import Scope
from ..efforts import WORDS, Effort, cost_of, unit
from ..errors import NotYet
from ..frames import Frames
from ..sheet import Sheet
from ..tables import finals, speedup_table
from ..tables.summary import BREAK_EVEN, with_range
from .axes import count_axis
from .bars import height_of, name_bars, wrapped_names, write_at_end
from .learning_curves import draw_curves, learning_curves
from .panels import finish, panels
from .plot import Plot, Texts, axis_unit, styled
from .style import ink

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 12  # labels in addition to the baseline


def speedup(frames: Frames, baseline: str | None = None, scope: Scope = "scoring") -> Plot:
    """Plot learning curves with the factor by which each is sooner, and bars of the cost to match.

    The numbers are those of `tables.speedup_table`: paired by seed, medians, censored where not reached.

    Args:
        frames: Results of an experiment, from `results.Snapshot.frames`.
        baseline: Label or run to match; by default the study's first non-reference run.
        scope: What counts as FLOPs.

    Returns:
        The plot, named "speedup". Its data: rows of kind "curve" (those of `learning_curves`), "match" (where
        the label reaches the baseline's final score: effort, mean, factor), and "bar" (label, cost, x to
        match, NaN where they are not enough, their ends low and high, spent, factor, reached, seeds).

    Raises:
        ValueError: No run has completed with a score, the baseline is unknown, or scores have no order
            (`Frames.ranked`).
    """
    import pandas as pd

    compared = frames.baseline(baseline)
    found = finals(frames, baseline, scope)
    table = speedup_table(found).frame
    if not found.efforts:
        raise NotYet(f"no effort of the runs of {frames.experiment!r} is known")
    over, cost = found.efforts[0], cost_of(found.runs)
    others = len(table) - 1
    table = _soonest(table, compared, over)
    plot = learning_curves(frames, compared, over, scope, together=True)
    is_shown = plot.data["label"].isin(table["label"]) | (plot.data["role"] == "reference")
    curves = plot.data[is_shown].assign(kind="curve")
    level = float(curves.loc[curves["role"] == "baseline", "mean"].iloc[-1])
    matches = _matches(table[table["label"] != compared], level, over)
    more = styled(frames, pd.concat([matches, _bars(table, cost)], ignore_index=True), compared, [])
    sentences = [
        plot.texts.caption,
        f"Factors: the baseline's {WORDS[over].amount} divided by the {WORDS[over].amount} needed to match "
        "its final score, with the same seed, median over seeds. Bars: the same in "
        f"{WORDS[cost].amount}; lines on them: lowest to highest seed; open: spent without reaching it.",
    ]
    if len(table) - 1 < others:
        sentences.append(f"Shown: the {len(table) - 1} soonest of {others}.")
    if cost == "flops" != over:
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    sentences += _about_break_even(frames, table)
    data = pd.concat([curves, more], ignore_index=True)
    return Plot("speedup", data, replace(plot.texts, caption=" ".join(sentences)), _draw)


def _about_break_even(frames: Frames, rows: pd.DataFrame) -> list[str]:
    """Say for runs that need a reference how many of them pay for it."""
    if "break_even" not in rows:
        return []
    runs = rows.dropna(subset="break_even").assign(name=rows["label"].map(frames.shown))
    counts_of = zip(runs["name"], *(runs[key] for key in BREAK_EVEN), strict=True)
    told = [(name, median, with_range(median, low, high)) for name, median, low, high in counts_of]
    paid = [f"{name} {text}" for name, median, text in told if math.isfinite(median)]
    never = [str(name) for name, median, _ in told if math.isinf(median)]
    counts = [", ".join(paid)] if paid else []
    counts += [f"never: {', '.join(never)}"] if never else []
    what = "Runs after which a reference has paid for itself, its scoring included, median [range] over seeds"
    return [f"{what}: {'; '.join(counts)}."] if counts else []


def _soonest(rows: pd.DataFrame, baseline: str, over: Effort) -> pd.DataFrame:
    """Keep the baseline and as many others as fit: those that match it with the least effort."""
    others = rows[rows["label"] != baseline]
    kept = others.sort_values(f"fewer_{WORDS[over].name}", ascending=False, kind="stable").head(_MOST)[
        "label"
    ]
    return rows[(rows["label"] == baseline) | rows["label"].isin(kept)]


def _matches(rows: pd.DataFrame, level: float, over: Effort) -> pd.DataFrame:
    """Where each label reaches the level."""
    name = WORDS[over].name
    rows = rows[np.isfinite(rows[f"{name}_most"]) & np.isfinite(rows[f"fewer_{name}"])]
    factor = rows[f"fewer_{name}"]
    return rows[["label"]].assign(kind="match", effort=rows[f"{name}_to_match"], mean=level, factor=factor)


def _bars(rows: pd.DataFrame, cost: Effort) -> pd.DataFrame:
    """Cost to match, the baseline itself by the same rule."""
    name = WORDS[cost].name
    reached = np.isfinite(rows[f"{name}_most"])
    ends = np.isfinite(rows[f"{name}_low"]) & np.isfinite(rows[f"{name}_high"])
    bars = rows[["label"]].assign(kind="bar", cost=cost, factor=rows[f"fewer_{name}"])
    bars[["reached", "seeds", "spent"]] = rows[["seeds_reached", "seeds_compared", f"{name}_spent"]]
    bars["x"] = rows[f"{name}_to_match"].where(reached)
    bars[["low", "high"]] = rows[[f"{name}_low", f"{name}_high"]].where(ends)
    shown: pd.DataFrame = bars[reached | rows[f"{name}_spent"].notna()]
    return shown


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw learning curves, with dots where they reach the baseline's final score, and bars of costs."""
    curves, matches, bars = (data[data["kind"] == kind] for kind in ("curve", "match", "bar"))
    width = sheet.inches
    columns = 2 if width > 4 else 1
    names = wrapped_names(bars["text"], 0.4 * width / columns)
    heights = [2.4, height_of(names)] if names else [2.4]
    figure, [axes, *rest] = panels(sheet, len(heights), height=heights, columns=columns)
    divisor, x_label = axis_unit(texts.x, curves.loc[curves["role"] != "reference", "effort"])
    axes.set(xlabel=x_label, ylabel=texts.y)
    factors = curves["label"].map(dict(zip(matches["label"], matches["factor"], strict=True)))
    named = curves["text"] + factors.map("{:.1f}×".format).radd(", ").where(factors.notna(), "")
    draw_curves(axes, curves.assign(effort=curves["effort"] / divisor, text=named))
    style: dict[str, Any] = {"s": 22, "edgecolors": "white", "linewidths": 0.6, "zorder": 4}
    axes.scatter(matches["effort"] / divisor, matches["mean"], c=matches["color"], **style)
    if rest:
        _draw_costs(rest[0], bars, names)
    return finish(figure, texts, sheet)


def _draw_costs(axes: Axes, bars: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw the cost to match the baseline, whose bar is at the top."""
    most, cost = bars["x"].fillna(bars["spent"]), bars["cost"].iloc[0]
    divisor, name = unit(cost, most.dropna().sort_values().tail(1))
    ends = []
    slot = axes.get_window_extent().height / axes.figure.dpi / len(bars)
    thickness = min(0.7, 0.25 / slot)  # at most a quarter of an inch: few bars next to curves have much room
    for place, (length, (_, bar)) in enumerate(zip(most / divisor, bars.iterrows(), strict=True)):
        reached = not math.isnan(bar["x"])
        axes.barh(
            place, length, thickness, facecolor=bar["color"] if reached else "white", edgecolor=bar["color"],
            linewidth=0.8, alpha=0.9 if reached else 1.0, hatch=None if reached else "////",
        )  # fmt: skip
        if bar["high"] > bar["low"]:
            axes.hlines(place, bar["low"] / divisor, bar["high"] / divisor, colors="black", linewidth=0.9)
            length = max(length, bar["high"] / divisor)
        ends.append(length)
        factor = (
            "" if math.isnan(bar["factor"]) else "∞" if math.isinf(bar["factor"]) else f"{bar['factor']:.1f}×"
        )
        write_at_end(axes, factor if reached else "not reached", length, place, color=ink(bar["color"]))
    name_bars(axes, names)
    for tick, color in zip(axes.get_yticklabels(), bars["color"], strict=True):
        tick.set_color(ink(color))
    axes.set_xlim(0, max(ends))
    count_axis(axes)
    what = WORDS[cost].amount
    axes.set_xlabel(f"{what[0].upper()}{what[1:]} to match the baseline{f' ({name})' if name else ''}")
