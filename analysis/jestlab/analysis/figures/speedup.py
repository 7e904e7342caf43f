"""How much sooner runs reach the baseline's final score: curves, and costs to match."""

from __future__ import annotations

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
from ..tables.speedups import factor_column
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
        match, NaN where they are not enough, their ends low and high, spent, factor as text, reached, seeds).

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
    name, others = WORDS[over].name, table[table["label"] != compared]
    soonest = others.sort_values(f"fewer_{name}", ascending=False, kind="stable")["label"][:_MOST]
    table = table[table["label"].isin([compared, *soonest])]
    plot = learning_curves(frames, compared, over, scope, together=True)
    is_shown = plot.data["label"].isin(table["label"]) | (plot.data["role"] == "reference")
    curves = plot.data[is_shown].assign(kind="curve")
    met = table.assign(effort=table[f"{name}_to_match"], factor=table[f"fewer_{name}"])
    met = met[np.isfinite(met[f"{name}_most"]) & np.isfinite(met["factor"]) & (met["label"] != compared)]
    matches = met[["label", "effort", "factor"]]
    level = curves.loc[curves["role"] == "baseline", "mean"].iloc[-1]
    parts = [matches.assign(kind="match", mean=level), _bars(table, cost)]
    more = styled(frames, pd.concat(parts, ignore_index=True), compared, [])
    sentences = [
        plot.texts.caption,
        f"Factors: the baseline's {WORDS[over].amount} divided by the {WORDS[over].amount} needed to match "
        "its final score, with the same seed, median over seeds. Bars: the same in "
        f"{WORDS[cost].amount}; lines on them: lowest to highest seed; open: spent without reaching it.",
    ]
    if len(soonest) < len(others):
        sentences.append(f"Shown: the {len(soonest)} soonest of {len(others)}.")
    if cost == "flops" != over:
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    data = pd.concat([curves, more], ignore_index=True)
    return Plot("speedup", data, replace(plot.texts, caption=" ".join(sentences)), _draw)


def _bars(rows: pd.DataFrame, cost: Effort) -> pd.DataFrame:
    """Cost to match, the baseline itself by the same rule."""
    name, write = WORDS[cost].name, factor_column(cost, "").show
    reached = np.isfinite(rows[f"{name}_most"])
    ends = rows[[f"{name}_low", f"{name}_high"]].replace(np.inf, np.nan)
    factors = [write(dict(row)).partition(" (")[0] for _, row in rows.iterrows()]
    bars = rows[["label"]].assign(kind="bar", cost=cost, factor=factors)
    bars[["reached", "seeds", "spent"]] = rows[["seeds_reached", "seeds_compared", f"{name}_spent"]]
    bars["x"] = rows[f"{name}_to_match"].where(reached)
    bars[["low", "high"]] = ends.where(ends.notna().all(axis=1))
    shown: pd.DataFrame = bars[reached | bars["spent"].notna()]
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
    cost, reached = bars["cost"].iloc[0], bars["x"].notna()
    most = bars["x"].fillna(bars["spent"])
    divisor, unit_name = unit(cost, most.nlargest(1))
    slot = axes.get_window_extent().height / axes.figure.dpi / len(bars)
    places, (low, high) = range(len(bars)), (bars[end] / divisor for end in ("low", "high"))
    axes.barh(
        places, most / divisor, min(0.7, 0.25 / slot),  # at most a quarter of an inch
        color=bars["color"].where(reached, "white"), edgecolor=bars["color"], linewidth=0.8,
        hatch=["" if is_reached else "////" for is_reached in reached],
    )  # fmt: skip
    axes.hlines(places, low, high, colors="black", linewidth=0.9)
    ends, inks = (most / divisor).combine(high, np.fmax), [ink(color) for color in bars["color"]]
    name_bars(axes, names)
    for place, tick in enumerate(axes.get_yticklabels()):
        write_at_end(axes, bars["factor"].iloc[place], ends.iloc[place], place, color=inks[place])
        tick.set_color(inks[place])
    axes.set_xlim(0, ends.max())
    count_axis(axes)
    what = WORDS[cost].amount
    axes.set_xlabel(
        f"{what[0].upper()}{what[1:]} to match the baseline{f' ({unit_name})' if unit_name else ''}"
    )
