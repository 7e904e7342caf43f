"""Speed-ups: the effort with which runs reach the baseline's final score."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..costs import Scope
from ..efforts import WORDS, Effort, cost_of, unit
from ..errors import NotYet
from ..frames import Frames
from ..sheet import Sheet
from ..tables import finals, speedup_table
from ..tables.summary import factor_text
from . import captions
from .axes import count_axis, draw_seeds
from .bars import bar_panels, write_at_end
from .panels import finish
from .plot import Plot, Texts, styled, title
from .style import ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 12  # maximum number of labels in addition to the baseline


def speedup(frames: Frames, baseline: str | None = None, scope: Scope = "scoring") -> Plot:
    """Plot the effort to match the baseline's final score: bars of examples, and of FLOPs.

    The numbers are those of `tables.speedup_table`: paired by seed, medians, censored where not reached.

    Args:
        baseline: Label or run to match; by default the study's baseline.
        scope: Which FLOPs count.

    Returns:
        The plot. Its data: for each label and effort, a row of kind "bar" with x (the effort to match, NaN if
        the score is not reached), spent, factor (text), reached, and seeds; and a row of kind "seed" for each
        run that reaches the score.

    Raises:
        ValueError: No run has completed with a score, the baseline is unknown, or scores have no order
            (`Frames.ranked`).
    """
    compared, found = frames.baseline(baseline), finals(frames, baseline, scope)
    table = speedup_table(found).frame
    if not found.efforts:
        raise NotYet(f"no effort of the runs of {frames.experiment!r} is known")
    efforts = dict.fromkeys([found.efforts[0], cost_of(found.runs)])
    factor = f"fewer_{WORDS[found.efforts[0]].name}"
    others = table[table["label"] != compared].sort_values(factor, ascending=False, kind="stable")["label"]
    table = table[table["label"].isin([compared, *others[:_MOST]])]
    dots = found.runs[found.runs["label"].isin(table["label"])]
    parts = [_bars(table, effort) for effort in efforts]
    for effort in efforts:
        reached = dots.assign(kind="seed", effort=effort, x=dots[f"{WORDS[effort].name}_to_match"])
        parts.append(reached[["label", "seed", "kind", "effort", "x"]].dropna(subset="x"))
    bars = pd.concat(parts, ignore_index=True)
    shown = frames.shown[compared]
    sentences = [
        captions.score(frames),
        f"Bars: effort until a run reaches the final score of {shown} with the same seed, median over seeds; "
        f"dots: seeds; open: spent without reaching it. Factors: {shown} over the run.",
        *captions.lost(frames, table["label"]),
    ]
    if len(others) > _MOST:
        sentences.append(f"Shown: the {_MOST} soonest of {len(others)}.")
    if "flops" in efforts:
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    words = Texts(title(frames), " ".join(sentences), "", "")
    return Plot("speedup", styled(frames, bars, compared), words, _draw)


def _bars(rows: pd.DataFrame, effort: Effort) -> pd.DataFrame:
    """Return the efforts to match the baseline; the same rule applies to the baseline itself."""
    name = WORDS[effort].name
    parts = {"x": "to_match", "most": "most", "spent": "spent"}
    bars = rows.rename(columns={f"{name}_{column}": part for part, column in parts.items()})
    bars = bars.rename(columns={"seeds_reached": "reached", "seeds_compared": "seeds"})
    bars = bars[["label", *parts, "reached", "seeds"]].replace(math.inf, math.nan)
    factors = [factor_text(dict(row), effort).partition(" (")[0] for _, row in rows.iterrows()]
    x = bars["x"].where(bars.pop("most").notna())
    return bars.assign(kind="bar", x=x, effort=effort, factor=factors)


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw a panel for each effort."""
    data = data.assign(place=data["label"].factorize()[0])
    efforts: list[Any] = list(data.groupby("effort", sort=False))
    columns = 2 if sheet.inches > 4 else 1
    names = data.drop_duplicates("label")["text"]
    figure, all_axes = bar_panels(sheet, names, len(efforts), columns)
    for axes, (effort, bars) in zip(all_axes, efforts, strict=True):
        _draw_bars(axes, bars[bars["kind"] == "bar"], bars[bars["kind"] == "seed"], effort)
    return finish(figure, texts, sheet)


def _draw_bars(axes: Axes, bars: pd.DataFrame, dots: pd.DataFrame, effort: Effort) -> None:
    """Draw the effort to match the baseline, whose bar is at the top."""
    reached, most = bars["x"].notna(), bars["x"].fillna(bars["spent"])
    divisor, unit_name = unit(effort, most.nlargest(1))
    faces = bars["color"].where(reached, "white")
    axes.barh(bars["place"], most / divisor, 0.7, color=faces, edgecolor=bars["color"], linewidth=0.8)
    several = dots[dots.groupby("label")["x"].transform("size") > 1]
    draw_seeds(axes, several["x"] / divisor, several["place"], several["color"])
    farthest = bars["label"].map(several.groupby("label")["x"].max()).fillna(0.0)
    ends = most.fillna(0.0).combine(farthest, max) / divisor
    for place, end, factor, color in zip(bars["place"], ends, bars["factor"], bars["color"], strict=True):
        write_at_end(axes, factor, end, place, color=ink(color))
    axes.set_xlim(0, 1.02 * ends.max())
    count_axis(axes)
    what = WORDS[effort].amount
    axes.set_xlabel(
        f"{what[0].upper()}{what[1:]} to match the baseline{f' ({unit_name})' if unit_name else ''}"
    )
