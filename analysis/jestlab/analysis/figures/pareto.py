"""Scores against the cost of runs, with the Pareto front and its certainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..costs import Scope
from ..curves import mean_curves, score_curves
from ..efforts import WORDS, Effort, cost_of
from ..errors import NotYet
from ..frames import DIVERGED, Frames
from ..pareto import front, standing
from ..sheet import Sheet
from . import captions
from .axes import WIDE, count_axis, draw_intervals, draw_levels, draw_seeds, draw_thin, value_axis
from .panels import finish, panels
from .plot import Plot, Texts, axis_unit, mean_intervals, near_references, score_axis, styled, title
from .style import FRONT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_PATHS = 8  # labels with paths over training
_MOST_NAMED = 24  # labels: if there are more, as in a union, only the front and the baseline are named


def pareto(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    trajectories: bool | None = None,
    over: Effort | None = None,
) -> Plot:
    """Plot the mean final score against the total cost of training, with the Pareto front of the means.

    Only completed runs count: a marker and the confidence interval of the mean for each label, and a dot for
    each seed. Filled markers are on the front for any true means within the intervals; open ones are
    dominated for any; half-filled ones may be either.

    Args:
        baseline: Label or run; by default the study's baseline.
        scope: Which FLOPs count.
        trajectories: Whether to show the path of each mean over training, faintly; None for figures of few
            labels. The points of a path belong to one budget, so they are never part of the front.
        over: Unit of cost; None for the first of FLOPs, seconds, and examples that is known.

    Returns:
        The plot, named "pareto". Its data: rows of kind "mean" (a label: cost, score, the ends of the
        intervals of cost and score, seeds, on_front, and standing), "seed" (a run), and "trajectory" (a point
        of a path).

    Raises:
        ValueError: No run has completed with a known price, the baseline is unknown, or no score is
            better than another (`Frames.ranked`).
    """
    compared, metric = frames.baseline(baseline), frames.ranked
    curves = score_curves(frames, scope)
    ended = curves[curves["final"] & np.isfinite(curves["score"])]
    cost = over or cost_of(curves[curves["final"]])
    runs = ended[np.isfinite(ended[cost])].assign(cost=lambda rows: rows[cost])
    if runs.empty:
        raise NotYet(
            f"no run of experiment {frames.experiment!r} has completed with a score and known "
            f"{WORDS[cost].amount}: {frames.progress()}"
        )
    lost = [label for label, fates in frames.fates.items() if DIVERGED in fates]
    means = _means(runs, metric.sign, [*frames.apart_from(compared), *lost])
    parts = [means.assign(kind="mean"), runs[["label", "seed", "cost", "score"]].assign(kind="seed")]
    if trajectories is None:
        trajectories = len(means) <= _MOST_PATHS
    if trajectories:
        paths = mean_curves(curves[curves["label"].isin(means["label"])], cost)
        paths = paths.rename(columns={"mean": "score", cost: "cost"})[["label", "cost", "score"]]
        parts.append(paths.assign(kind="trajectory"))
    points = pd.concat(parts, ignore_index=True)
    points[["score", "low", "high"]] *= metric.factor
    data = styled(frames, points, compared)
    is_main = data["on_front"].eq(True) | data["role"].isin(["baseline", "reference"])
    data["is_named"] = is_main | (len(means) <= _MOST_NAMED)
    of_means = data[data["kind"] == "mean"]
    is_unpriced = ~ended["label"].isin(means["label"])
    unpriced = [frames.shown[label] for label in ended.loc[is_unpriced, "label"].unique()]
    sentences = [
        captions.score(frames),
        *captions.seeds(means["seeds"].max()),
        "Gray steps: Pareto front of the means. Filled: on the front; half filled: on it or dominated "
        "(intervals overlap); open: dominated.",
        "A single seed is treated as exact." * bool((means["seeds"] == 1).any()),
        "Faint lines: paths over training." * trajectories,
        "Named: the front and the baseline." * (len(means) > _MOST_NAMED),
        *captions.lost(frames, frames.labels),
        *captions.unfinished(frames, frames.competitors),
        *captions.references(frames, of_means.rename(columns={"score": "mean"}).assign(final=True), metric),
        f"FLOPs: {frames.counted(scope)}." * (cost == "flops"),
        f"Not shown ({WORDS[cost].amount} unknown): {', '.join(unpriced)}." * bool(unpriced),
    ]
    caption = " ".join(filter(None, sentences))
    words = Texts(title(frames), caption, WORDS[cost].axis, score_axis(frames), metric)
    return Plot("pareto", data, words, _draw)


def _means(runs: pd.DataFrame, sign: float, apart: Sequence[str]) -> pd.DataFrame:
    """Return one row per label; labels in `apart` (references, diverged seeds) are never on the front."""
    means = mean_intervals(runs["score"], runs["label"]).drop(columns="std")
    means = means.rename(columns={"mean": "score", "count": "seeds"})
    costs = mean_intervals(runs["cost"], runs["label"])
    means[["cost", "cost_low", "cost_high"]] = costs[["mean", "low", "high"]]
    means["on_front"], means["standing"] = False, "dominated"
    rivals = means.drop(apart, errors="ignore")
    means.loc[rivals.index, "on_front"] = front(rivals["cost"], sign * rivals["score"])
    ends = np.sort(sign * rivals[["low", "high"]]).T
    means.loc[rivals.index, "standing"] = standing(rivals["cost_low"], rivals["cost_high"], *ends)
    return means.reset_index()


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw markers with intervals, and the front as steps."""
    competing = data[data["role"] != "reference"]
    divisor, x_label = axis_unit(texts.x, competing["cost"])
    costs = ["cost", "cost_low", "cost_high"]
    competing = competing.assign(**{each: competing[each] / divisor for each in costs})
    kinds: dict[Any, pd.DataFrame] = dict(list(competing.groupby("kind")))
    means, seeds = kinds["mean"], kinds["seed"]
    seeds = seeds[seeds["label"].isin(means.loc[means["seeds"] > 1, "label"])]  # a single seed is its mean
    every_mean = data[data["kind"] == "mean"]
    figure, [axes] = panels(sheet)
    axes.set(xlabel=x_label, ylabel=texts.y)
    draw_thin(axes, kinds.get("trajectory", data[:0]).groupby("label", sort=False), "cost", "score")
    draw_seeds(axes, seeds["cost"], seeds["score"], seeds["color"])
    ends = (means["cost_low"], means["cost_high"]), (means["low"], means["high"])
    draw_intervals(axes, means["cost"], means["score"], *ends, means["color"])
    for _, mean in means.iterrows():
        axes.plot(
            mean["cost"], mean["score"], color=mean["color"], linestyle="none", marker=mean["marker"],
            markersize=7, markeredgewidth=1.2, markerfacecoloralt="white", zorder=5,
            label=mean["text"] if mean["is_named"] else None,
            markerfacecolor="white" if mean["standing"] == "dominated" else mean["color"],
            fillstyle="left" if mean["standing"] == "ambiguous" else "full",
        )  # fmt: skip
    axes.margins(x=0.14, y=0.1)
    draw_levels(axes, near_references(every_mean.rename(columns={"score": "mean"}), means["score"]))
    is_log, percent = texts.metric.scale == "log", texts.metric.suffix == "%"
    value_axis(axes, [*means["score"], *seeds["score"]], log=is_log, percent=percent)
    count_axis(axes, competing["cost"], log=means["cost"].max() > WIDE * means["cost"].min())
    (left, right), up = axes.get_xlim(), axes.get_ylim()
    axes.set(xlim=(max(0.0, left), right), ylim=up)  # an interval may be wider than the cost
    on_front = means[means["on_front"].eq(True)].sort_values("cost")
    x, y = on_front["cost"].tolist(), on_front["score"].tolist()  # empty if a seed of every label diverged
    heights = [up[texts.metric.goal == "min"], *y, *y[-1:]]
    axes.step([*x[:1], *x, right], heights, where="post", color=FRONT, linewidth=0.9, zorder=1.5)
    return finish(figure, texts, sheet)
