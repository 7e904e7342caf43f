"""Scores against the cost of runs, with the Pareto front and its certainty."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from .. import units
from ..costs import Scope
from ..curves import mean_curves, score_curves
from ..efforts import WORDS, Effort, Over, cost_of, unit
from ..errors import NotYet
from ..frames import DIVERGED, Frames
from ..pareto import front, hypervolume, standing
from ..sheet import Sheet
from .axes import (
    LOG_FROM,
    count_axis,
    draw_interval,
    draw_levels,
    draw_seeds,
    draw_steps,
    limit_percent,
    value_axis,
)
from .panels import finish, panels
from .plot import (
    Plot,
    Texts,
    about_lost,
    about_references,
    about_seeds,
    about_unfinished,
    axis_unit,
    mean_intervals,
    near_references,
    require_competitors,
    score_axis,
    styled,
    title,
    what_score_is,
)
from .style import GRAY

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_BEYOND = 1.1  # the reference point of the hypervolume costs a tenth more than the most expensive label

_MOST_NAMED = 24  # labels: if there are more, as in a union, only the front and the baseline are named

_STANDINGS = {
    "front": "filled: on the front",
    "ambiguous": "half filled: on it or dominated (intervals overlap)",
    "dominated": "open: dominated",
}


def pareto(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    trajectories: bool = False,
    over: Over | None = None,
) -> Plot:
    """Plot the mean final score against the total cost of training, with the Pareto front of the means.

    Only completed runs count: a marker and the confidence interval of the mean for each label, and a dot for
    each seed. Filled markers are on the front for any true means within the intervals; open ones are
    dominated for any; half-filled ones may be either.

    Args:
        frames: Results of an experiment, from `results.Snapshot.frames`.
        baseline: Label or run in black; by default the study's baseline.
        scope: What counts as FLOPs.
        trajectories: Whether to show the path of each mean over training, faintly. These points belong to one
            budget, so they are never part of the front.
        over: Unit of cost; None for FLOPs, or seconds if the FLOPs of no run are known.

    Returns:
        The plot, named "pareto". Its data: rows of kind "mean" (a label: cost, score, spread, the ends of
        their intervals cost_low, cost_high, low, high, seeds, on_front, and standing), "seed" (a run), and
        "trajectory" (a point on the way).

    Raises:
        ValueError: No run has completed with a known price, the baseline is unknown, or no score is
            better than another (`Frames.ranked`).
    """
    import numpy as np
    import pandas as pd

    compared, metric = frames.baseline(baseline), frames.ranked
    curves = score_curves(frames, scope)
    ended = curves[curves["final"] & np.isfinite(curves["score"])]
    cost = cost_of(curves[curves["final"]]) if over is None or over == "steps" else over
    runs = ended[np.isfinite(ended[cost])].assign(cost=lambda rows: rows[cost])
    if runs.empty:
        raise NotYet(
            f"no run of experiment {frames.experiment!r} has completed with a score and known "
            f"{WORDS[cost].amount}: {frames.progress()}"
        )
    competes = ~runs["label"].isin(frames.apart_from(compared))
    means = _means(
        runs, competes, metric.sign, [label for label, fate in frames.fates.items() if DIVERGED in fate]
    )
    parts = [means.assign(kind="mean"), runs[["label", "seed", "cost", "score"]].assign(kind="seed")]
    if trajectories:
        way = mean_curves(curves[curves["label"].isin(means["label"])], cost)
        way = way.rename(columns={"mean": "score", cost: "cost"})[["label", "cost", "score"]]
        parts.append(way.assign(kind="trajectory"))
    points = pd.concat(parts, ignore_index=True)
    data = styled(frames, points, compared, ["score", "spread", "low", "high"])
    require_competitors(frames, data[data["kind"] == "mean"])
    caption = _caption(frames, data, scope, cost)
    if _is_named(data).sum() < (data["kind"] == "mean").sum():
        caption += " Named: the front and the baseline."
    priced = set(runs["label"])
    if unpriced := [frames.shown[label] for label in ended["label"].unique() if label not in priced]:
        caption += f" Not shown ({WORDS[cost].amount} unknown): {', '.join(unpriced)}."
    words = Texts(title(frames), caption, WORDS[cost].axis, score_axis(frames), metric)
    return Plot("pareto", data, words, _draw)


def _is_named(data: pd.DataFrame) -> pd.Series[bool]:
    """Whether a row of the data is a mean whose label the figure names."""
    is_mean = data["kind"] == "mean"
    is_main = data["on_front"].eq(True) | data["role"].isin(["baseline", "reference"])
    return is_mean & (is_main | (is_mean.sum() <= _MOST_NAMED))


def _means(
    runs: pd.DataFrame, competes: pd.Series[bool], sign: float, diverged: Collection[str]
) -> pd.DataFrame:
    """One row for each label; a competitor with a seed that diverged is never on the front."""
    columns = {"mean": "score", "std": "spread", "count": "seeds"}
    means = mean_intervals(runs["score"], runs["label"]).rename(columns=columns)
    ends = {"mean": "cost", "low": "cost_low", "high": "cost_high"}
    means = means.join(mean_intervals(runs["cost"], runs["label"]).rename(columns=ends)[list(ends.values())])
    means["on_front"], means["standing"] = False, ""
    means.loc[means.index.isin(diverged), "standing"] = "dominated"
    of_competitors = list(runs.loc[competes & ~runs["label"].isin(diverged), "label"].unique())
    rivals = means.loc[of_competitors]
    means.loc[of_competitors, "on_front"] = front(rivals["cost"], sign * rivals["score"])
    bounds = [sign * rivals[end] for end in (("low", "high") if sign > 0 else ("high", "low"))]
    means.loc[of_competitors, "standing"] = standing(rivals["cost_low"], rivals["cost_high"], *bounds)
    return means.reset_index()


def _caption(frames: Frames, data: pd.DataFrame, scope: Scope, cost: Effort) -> str:
    of: dict[Any, pd.DataFrame] = dict(list(data.groupby("kind")))
    means = of["mean"]
    competing = means[means["role"] != "reference"]
    sentences = [what_score_is(frames), *about_seeds(means["seeds"].max(), "Markers")]
    if competing["seeds"].min() == 1:
        several = means["seeds"].max() > 1
        sentences.append(f"{'Without bars: one seed' if several else 'One seed each'}, treated as exact.")
    sentences.append("Gray steps: Pareto front of the means.")
    legend = "; ".join(meaning for name, meaning in _STANDINGS.items() if name in set(competing["standing"]))
    sentences.append(f"{legend[0].upper()}{legend[1:]}.")
    if "trajectory" in of:
        sentences.append("Faint lines: the path over training; not part of the front.")
    sentences += _about_hypervolume(frames, competing, of["seed"], cost)
    apart = set(means.loc[means["role"] == "reference", "label"])
    sentences += about_lost(frames, frames.labels)
    sentences += about_unfinished(frames, [label for label in frames.competitors if label not in apart])
    sentences += about_references(frames, means.rename(columns={"score": "mean"}).assign(final=True))
    if cost == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    return " ".join(sentences)


def _about_hypervolume(frames: Frames, means: pd.DataFrame, seeds: pd.DataFrame, effort: Effort) -> list[str]:
    """State the hypervolume of at least two labels, up to the worst score of any seed.

    Percentages of which more is better have no score below 0, which is the end for them.
    """
    import pandas as pd

    if len(means) < 2:
        return []
    metric = frames.score
    cost = _BEYOND * float(means["cost"].max())
    divisor, named = unit(effort, pd.Series([cost]))
    unit_name = named or WORDS[effort].amount
    from_0 = metric.in_percent and metric.goal == "max"
    scores = seeds.loc[seeds["label"].isin(means["label"]), "score"] / metric.factor
    worst = 0.0 if from_0 else float(scores.min() if metric.goal == "max" else scores.max())
    signed = metric.sign * means["score"] / metric.factor
    volume = hypervolume(means["cost"], signed, (cost, metric.sign * worst)) / divisor
    end = "score 0" if from_0 else f"the worst score of any seed, {metric.text(worst)}"
    return [
        f"Hypervolume of the means: {units.significant(volume)} {unit_name} × score, to the reference point "
        f"of {units.significant(cost / divisor)} {unit_name} and {end}."
    ]


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw markers with intervals, and their front as steps."""
    competing = data[data["role"] != "reference"]
    divisor, x_label = axis_unit(texts.x, competing["cost"])
    costs = ["cost", "cost_low", "cost_high"]
    competing = competing.assign(**{each: competing[each] / divisor for each in costs})
    of: dict[Any, pd.DataFrame] = dict(list(competing.groupby("kind")))
    means, seeds = of["mean"], of["seed"]
    seeds = seeds[seeds["label"].isin(means.loc[means["seeds"] > 1, "label"])]  # a single seed is its mean
    figure, [axes] = panels(sheet)
    axes.set(xlabel=x_label, ylabel=texts.y)
    count_axis(axes, means["cost"], log=means["cost"].max() > LOG_FROM * means["cost"].min())
    value_axis(axes, means["score"], log=texts.metric.scale == "log")
    for _, path in of.get("trajectory", data[:0]).groupby("label", sort=False):
        axes.plot(
            path["cost"], path["score"], color=path["color"].iloc[0], alpha=0.35, linewidth=0.8, zorder=2
        )
    draw_seeds(axes, seeds["cost"], seeds["score"], seeds["color"])
    draw_interval(axes, means["cost"], means["score"], means["low"], means["high"], means["color"])
    ends = means["cost_low"], means["cost_high"]
    draw_interval(axes, means["cost"], means["score"], *ends, means["color"], across=True)
    for (_, mean), is_named in zip(means.iterrows(), _is_named(data)[means.index], strict=True):
        axes.plot(
            mean["cost"], mean["score"], color=mean["color"], linestyle="none", marker=mean["marker"],
            markersize=7, markeredgewidth=1.2, markerfacecoloralt="white", zorder=5,
            label=mean["text"] if is_named else None,
            markerfacecolor="white" if mean["standing"] == "dominated" else mean["color"],
            fillstyle="left" if mean["standing"] == "ambiguous" else "full",
        )  # fmt: skip
    axes.margins(x=0.14, y=0.1)
    references = data[(data["role"] == "reference") & (data["kind"] == "mean")]
    draw_levels(axes, near_references(references.rename(columns={"score": "mean"}), means["score"]))
    if texts.metric.suffix == "%":
        limit_percent(axes, [*means["score"], *seeds["score"]])
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    down = texts.metric.goal == "min"
    on_front = means[means["on_front"].eq(True)]
    draw_steps(axes, on_front["cost"], on_front["score"], down=down, color=GRAY, linewidth=1.0, zorder=2)
    return finish(figure, texts, sheet)
