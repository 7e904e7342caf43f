"""Learning curves with confidence intervals: together, or in a panel for each if there are many."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from .. import units
from ..costs import Scope
from ..curves import mean_curves, score_curves, smoothed
from ..efforts import WORDS, Effort, Over, known
from ..errors import NotYet
from ..frames import Frames
from ..metrics import Metric
from ..sheet import Sheet
from .axes import count_axis, draw_band, draw_levels, limit_percent, value_axis
from .panels import finish, panels, titled
from .plot import (
    Plot,
    Texts,
    about_lost,
    about_references,
    about_seeds,
    axis_unit,
    near_references,
    require_competitors,
    score_axis,
    styled,
    title,
    what_score_is,
)
from .recorded import Recorded
from .style import DOTTED, FAINT

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TOGETHER = 7
"""Curves in one panel; the bands of more can't be distinguished."""

_MOST_ALONE = 30  # panels of a curve each
_MOST_POINTS = 500  # of a curve
_MOST_MARKERS = 40  # on a curve: more would cover the line


def learning_curves(
    frames: Frames,
    baseline: str | None = None,
    over: Over | None = None,
    scope: Scope = "scoring",
    *,
    shown: Sequence[Recorded] = (),
    smooth: int | None = None,
    highlight: Sequence[str] = (),
    together: bool = False,
) -> Plot:
    """Plot the mean score, or metrics, over training: a curve for each label, with a band.

    The baseline's final score is a dotted line; that of a reference, which doesn't compete, a gray one. More
    than seven curves have a panel each, unless some are highlighted.

    Args:
        frames: Results of an experiment, from `results.Snapshot.frames`.
        baseline: Label or run; by default the study's baseline.
        over: Unit of the horizontal axis; None for examples seen, or else for seconds or steps.
        scope: What counts as FLOPs.
        shown: Metrics in place of the score, from `recorded`; several have a panel each.
        smooth: Number of recorded points of a running mean over the curve of each seed.
        highlight: Labels or runs in color, as the baseline; the others are thin and gray.
        together: Whether even many curves share one panel.

    Returns:
        The plot, named "curves", for metrics "curves_" and their names. Its data: for each panel, label, and
        point the effort, mean, low, and high; panel, y_label, log, and in_percent describe the panel and its
        vertical axis; alone is true for a curve with a panel to itself.

    Raises:
        ValueError: Nothing can be drawn yet, the baseline or a label is unknown, or there is neither a score
            (`Frames.score`) nor a metric.
    """
    import pandas as pd

    compared = frames.baseline(baseline)
    measured = list(shown) or [Recorded("", frames.score, score_curves(frames, scope))]
    usual = (each for each in ("examples_seen", "seconds") if each in known(measured[0].curves))
    over = over or cast(Over, next(usual, "steps"))
    column: Effort | Literal["step"] = "step" if over == "steps" else over
    parts, lost = [], []
    for each in measured:
        judged = frames.scored_by([each.name]) if each.name in frames.evaluated else frames
        lost += about_lost(judged, frames.labels)
        curves = mean_curves(each.curves if smooth is None else smoothed(each.curves, smooth), column)
        if curves.empty:
            what = each.name or "score"
            missing = f"no {what} to draw over {over} yet"
            raise NotYet(f"experiment {frames.experiment!r} has {missing}: {frames.progress()}")
        part = styled(judged, curves, compared, []).rename(columns={column: "effort"})
        part[["mean", "low", "high"]] *= each.metric.factor
        part["panel"], part["y_label"] = each.name, each.axis if shown else score_axis(frames)
        scale = {"log": each.metric.scale == "log", "in_percent": each.metric.suffix == "%"}
        parts.append(_thinned(part).assign(**scale))
    data = pd.concat(parts, ignore_index=True).assign(alone=False)
    require_competitors(frames, data)
    metric = measured[0].metric
    names = (f"{each.name}{', less is better' if each.metric.goal == 'min' else ''}" for each in measured)
    sentences = [f"Shown: {'; '.join(names)}." if shown else what_score_is(frames)]
    if smooth:
        sentences.append(f"Smoothed: running mean over {smooth} points of each seed.")
    if (data["final"] & (data["role"] == "baseline")).any():
        sentences.append(f"Dotted: final {'value' if shown else 'score'} of {frames.shown[compared]}.")
    sentences += dict.fromkeys(lost)
    rivals = data["role"] == "competitor"
    if highlight:
        rest = rivals & ~data["label"].isin(frames.only(highlight).labels)
        data.loc[rest, "role"] = "other"
        if others := data.loc[rest, "label"].nunique():
            sentences.append(f"Gray: {others} other run{'' if others == 1 else 's'}.")
    colored = data.loc[data["role"].isin(["baseline", "competitor"]), "label"].nunique()
    is_split = colored > MOST_TOGETHER and not (highlight or together or len(measured) > 1)
    bands = "bands" if is_split or colored <= MOST_TOGETHER else ""
    sentences[1:1] = about_seeds(data["seeds"].max(), intervals=bands, dots=False)
    if is_split:
        alone = _alone(data[rivals], metric)
        data["alone"] = data["label"].isin(alone)
        count = data.loc[rivals, "label"].nunique()
        which = f" ({len(alone)} of {count})" if len(alone) < count else ""
        sentences.append(
            f"In color: one run per panel{which}; black: {frames.shown[compared]}; gray: the other runs."
        )
    if len(measured) == 1:
        sentences += about_references(frames, data, metric)
    if over == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    x_label = "steps" if over == "steps" else WORDS[over].axis
    words = Texts(title(frames), " ".join(sentences), x_label, str(data["y_label"].iloc[0]), metric)
    name = "_".join(["curves", *(re.sub(r"\W+", "_", each.name) for each in shown)])
    return Plot(name, data, words, _draw)


def _thinned(data: pd.DataFrame) -> pd.DataFrame:
    """Keep every n-th point of long curves, and their ends."""
    place = data.groupby("label", sort=False).cumcount()
    length = data.groupby("label", sort=False)["label"].transform("size")
    kept = (place % (-(-length // _MOST_POINTS)) == 0) | (place == length - 1)
    return data[kept].reset_index(drop=True)


def _alone(rivals: pd.DataFrame, metric: Metric) -> list[str]:
    """Labels that get a panel each: all competitors, or the best of very many, in the order of the study."""
    ends = rivals.groupby("label", sort=False)["mean"].last()
    ranked = ends.sort_values(ascending=metric.goal == "min", kind="stable")
    best = set(ranked.index[:_MOST_ALONE])
    return [label for label in ends.index if label in best]


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw all curves in a panel for each metric, or a panel for each curve."""
    divisor, x_label = axis_unit(texts.x, data.loc[data["role"] != "reference", "effort"])
    data = data.assign(effort=data["effort"] / divisor)
    if data["alone"].any():
        return _draw_each(data[data["role"] != "reference"], texts, sheet, x_label)
    of_metrics = [panel for _, panel in data.groupby("panel", sort=False)]
    figure, all_axes = panels(sheet, len(of_metrics), least=2.3)
    for axes, panel in zip(all_axes, of_metrics, strict=True):
        axes.set(xlabel=x_label, ylabel=panel["y_label"].iloc[0])
        draw_curves(axes, panel)
    return finish(figure, texts, sheet, named="direct" if len(of_metrics) == 1 else "below")


def draw_curves(axes: Axes, data: pd.DataFrame) -> None:
    """Draw curves, bands of up to seven, the end of the baseline, and the references near them.

    Args:
        axes: The panel.
        data: Rows of `learning_curves` for one panel. A curve of the role "other" is thin and gray.
    """
    import pandas as pd

    competing = data[data["role"] != "reference"]
    colored = competing[competing["role"] != "other"]
    banded = colored["label"].nunique() <= MOST_TOGETHER
    is_dense = bool(competing.groupby("label").size().max() > _MOST_MARKERS)
    count_axis(axes)
    value_axis(axes, competing["mean"], log=bool(data["log"].iloc[0]))
    if len(others := competing[competing["role"] == "other"]):
        # They are a single line with gaps, which takes far less time than many.
        gaps = others.drop_duplicates("label", keep="last").assign(mean=math.nan)
        line = pd.concat([others, gaps]).sort_index(kind="stable")
        axes.plot(line["effort"], line["mean"], color=FAINT, linewidth=0.6, zorder=1)
        single = others[others.groupby("label")["label"].transform("size") == 1]  # a line would be invisible
        axes.plot(single["effort"], single["mean"], color=FAINT, linestyle="none", marker=".", zorder=1)
    for _, curve in colored.groupby("label", sort=False):
        last = curve.iloc[-1]
        if last["seeds"] > 1 and banded:
            draw_band(axes, curve["effort"], curve["low"], curve["high"], last["color"])
        axes.plot(
            curve["effort"], curve["mean"], color=last["color"], linestyle=last["line"], label=last["text"],
            marker="" if is_dense and len(curve) > 1 else last["marker"], markeredgewidth=0, zorder=3,
        )  # fmt: skip
        if last["role"] == "baseline" and last["final"]:
            axes.axhline(last["mean"], color=last["color"], **DOTTED)
    draw_levels(axes, near_references(data, competing["mean"]))
    if data["in_percent"].all():
        limit_percent(axes, competing["mean"])


def _draw_each(data: pd.DataFrame, texts: Texts, sheet: Sheet, x_label: str) -> Figure:
    """Draw a panel for each curve, with the baseline in black and all others in gray."""
    from matplotlib.lines import Line2D

    alone = data[data["alone"]].drop_duplicates("label")
    is_baseline = data["role"] == "baseline"
    seeds = data["seeds"].mask(is_baseline, 1)  # its band would be in every panel
    width = sheet.inches
    columns = max(1, min(len(alone), round(width / (1.0 if width < 4 or len(alone) > 12 else 1.3))))
    figure, all_axes = panels(sheet, len(alone), columns=columns, height=1.4, sharex=True, sharey=True)
    for axes, label in zip(all_axes, alone["label"], strict=True):
        role = data["role"].where(is_baseline | (data["label"] == label), "other")
        draw_curves(axes, data.assign(role=role, seeds=seeds))
    all_axes[0].locator_params(axis="x", nbins=2)
    all_axes[0].xaxis.set_major_formatter(lambda x, _: units.tick(x, 1e5))  # 5k is shorter than 5,000
    titled(all_axes, [str(text) for text in alone["text"]])
    colors = dict.fromkeys(data.loc[is_baseline, "text"], "black") | {"other runs": FAINT}
    keys = [Line2D([], [], color=color, label=name) for name, color in colors.items()]
    return finish(figure, texts, sheet, named="below", x=x_label, y=texts.y, keys=keys)
