"""How much sooner runs reach the baseline's final score: curves, costs to match, and published methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..costs import Scope
from ..curves import mean_curves, score_curves
from ..efforts import WORDS, Effort, cost_of, unit
from ..errors import NotYet
from ..frames import Frames
from ..sheet import Sheet
from ..tables import finals, speedup_table
from ..tables.speedups import BREAK_EVEN, with_range
from .axes import count_axis, draw_band, limit
from .bars import height_of, name_bars, wrapped_names, write_at_end
from .learning_curves import MOST_TOGETHER
from .panels import WIDTH, finish, panels
from .plot import (
    Plot,
    Texts,
    about_lost,
    about_seeds,
    axis_unit,
    score_axis,
    styled,
    title,
    what_score_is,
)
from .published import draw_methods, published_scores
from .style import DOTTED, ink

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 30  # labels in addition to the baseline


def speedup(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    published: pd.DataFrame | None = None,
    source: str | None = None,
) -> Plot:
    """Plot learning curves with the factor by which each is sooner, FLOPs to match, and published methods.

    The numbers are those of `tables.speedup_table`: paired by seed, medians, censored where not reached.

    Args:
        frames: Results of an experiment, from `results.Snapshot.frames`.
        baseline: Label or run to match; by default the study's first non-reference run.
        scope: What counts as FLOPs.
        published: Published cells, from `published.read`, for a third panel; None for two. There are also
            two if no published table can be compared by FLOPs.
        source: Where it is published; by default the one with most points.

    Returns:
        The plot, named "speedup". Its data: panel "curves" with rows of kind "curve" (points within one run:
        label, x examples, y, low, high) and "match" (where the label reaches the baseline's final score: x,
        y, factor); panel "costs" with rows of kind "bar" (label, cost, x to match, NaN where they are not
        enough, their ends low and high, spent, factor, reached, seeds); panel "published" as of
        `published_scores`.

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
    compared_with = len(table) - 1
    table = _soonest(table, compared, over)
    curves = mean_curves(score_curves(frames, scope), over)
    curves = curves[curves["label"].isin(table["label"])].rename(columns={"mean": "y", over: "x"})
    level = curves.loc[curves["label"] == compared, "y"].iloc[-1]
    data = pd.concat(
        [
            curves.assign(panel="curves", kind="curve"),
            _matches(table[table["label"] != compared], float(level), over),
            _bars(table, cost),
        ],
        ignore_index=True,
    )
    data = styled(frames, data, compared, [])
    data.loc[data["panel"] == "curves", ["y", "low", "high"]] *= frames.score.factor
    sentences = [
        what_score_is(frames),
        *about_seeds(curves["seeds"].max(), "Curves", "bands", dots=False),
        f"Dotted: final score of {frames.shown[compared]}.",
        f"Factors: the baseline's {WORDS[over].amount} divided by the {WORDS[over].amount} needed to match "
        "its final score, with the same seed, median over seeds. Bars: the same in "
        f"{WORDS[cost].amount}; lines on them: lowest to highest seed; open: spent without reaching it.",
    ]
    if len(table) - 1 < compared_with:
        sentences.append(f"Shown: the {len(table) - 1} soonest of {compared_with}.")
    if cost == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    sentences += about_lost(frames, frames.labels)
    sentences += _about_break_even(frames, table)
    methods = _methods(published, frames, compared, source)
    if methods is not None:
        data = pd.concat([data, methods.data.assign(panel="published")], ignore_index=True)
        sentences.append(f"Last panel: published methods. {methods.texts.caption}")
    words = Texts(title(frames), " ".join(sentences), WORDS[over].axis, score_axis(frames), frames.score)
    return Plot("speedup", data, words, _draw)


def _methods(
    published: pd.DataFrame | None, frames: Frames, baseline: str, source: str | None
) -> Plot | None:
    """Published methods, if some have FLOPs; a source that is named has to exist."""
    if published is None:
        return None
    try:
        return published_scores(published, frames, baseline, source=source)
    except NotYet:
        if source is not None:
            raise
        return None  # cells of other tables alone, or without FLOPs: the figure is of the experiment


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
    return rows[["label"]].assign(
        panel="curves", kind="match", y=level, x=rows[f"{name}_to_match"], factor=rows[f"fewer_{name}"]
    )


def _bars(rows: pd.DataFrame, cost: Effort) -> pd.DataFrame:
    """Cost to match, the baseline itself by the same rule."""
    name = WORDS[cost].name
    reached = np.isfinite(rows[f"{name}_most"])
    ends = np.isfinite(rows[f"{name}_low"]) & np.isfinite(rows[f"{name}_high"])
    bars = rows[["label"]].assign(panel="costs", kind="bar", cost=cost, factor=rows[f"fewer_{name}"])
    bars[["reached", "seeds", "spent"]] = rows[["seeds_reached", "seeds_compared", f"{name}_spent"]]
    bars["x"] = rows[f"{name}_to_match"].where(reached)
    bars[["low", "high"]] = rows[[f"{name}_low", f"{name}_high"]].where(ends)
    shown: pd.DataFrame = bars[reached | rows[f"{name}_spent"].notna()]
    return shown


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw learning curves, bars of costs, and published methods if there are any."""
    of: dict[Any, pd.DataFrame] = dict(list(data.groupby("panel", sort=False)))
    width = sheet.width or WIDTH
    columns = 2 if width > 4 else 1
    names = wrapped_names(of["costs"]["text"], 0.4 * width / columns) if "costs" in of else []
    heights = [max(2.4, height_of(names)) if panel == "costs" else 2.4 for panel in of]
    figure, axes = panels(sheet, len(of), height=heights, columns=columns)
    rest = axes[1:]
    _draw_curves(axes[0], of["curves"], texts)
    if "costs" in of:
        _draw_costs(rest.pop(0), of["costs"], names)
    if "published" in of:
        grid: Any = rest[0].get_gridspec()
        rest[0].set_subplotspec(grid[-1, :])  # in the last row alone
        draw_methods(rest[0], of["published"])
    return finish(figure, texts, sheet)


def _draw_curves(axes: Axes, data: pd.DataFrame, texts: Texts) -> None:
    """Draw learning curves, and a dot where each reaches the baseline's final score; names have the factors,
    which would overlap at the dots."""
    divisor, x_label = axis_unit(texts.x, data["x"])
    data = data.assign(x=data["x"] / divisor)
    axes.set(xlabel=x_label, ylabel=texts.y)
    count_axis(axes)
    matches = data[data["kind"] == "match"]
    factors = dict(zip(matches["label"], matches["factor"], strict=True))
    curves = data[data["kind"] == "curve"]
    for label, curve in curves.groupby("label", sort=False):
        last = curve.iloc[-1]
        if curves["label"].nunique() <= MOST_TOGETHER:
            draw_band(axes, curve["x"], curve["low"], curve["high"], last["color"], alpha=0.14)
        name = f"{last['text']}, {factors[label]:.1f}×" if label in factors else last["text"]
        axes.plot(curve["x"], curve["y"], color=last["color"], linestyle=last["line"], label=name, zorder=3)
        if last["role"] == "baseline":
            axes.axhline(last["y"], color=last["color"], **DOTTED)
    limit(axes, curves["y"])
    axes.scatter(
        matches["x"], matches["y"], s=22, c=matches["color"], edgecolors="white", linewidths=0.6, zorder=4
    )


def _draw_costs(axes: Axes, bars: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw the cost to match the baseline, whose bar is at the top."""
    most, cost = bars["x"].fillna(bars["spent"]), bars["cost"].iloc[0]
    divisor, name = unit(cost, most.dropna().sort_values().tail(1))
    ends = []
    for place, (length, (_, bar)) in enumerate(zip(most / divisor, bars.iterrows(), strict=True)):
        reached = not math.isnan(bar["x"])
        axes.barh(
            place, length, 0.7, facecolor=bar["color"] if reached else "white", edgecolor=bar["color"],
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
