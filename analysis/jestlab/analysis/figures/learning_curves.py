"""Curves of the score or of recorded metrics over training, with a panel for each metric."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from .. import units
from ..costs import Scope
from ..curves import mean_curves, score_curves, smoothed, thinned
from ..efforts import EFFORTS, WORDS, Over, known
from ..errors import NotYet
from ..frames import Frames
from ..results import Snapshot, opens_store
from ..sheet import Sheet
from . import captions
from .axes import count_axis, draw_band, draw_levels, draw_thin, value_axis
from .panels import finish, panels
from .plot import Plot, Texts, axis_unit, near_references, score_axis, styled, title, value_label
from .style import DOTTED, FAINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"loss": "training loss", "grad_norm": "gradient norm"}
"""Training metric → name in figures."""

_RECORDED = "SELECT DISTINCT name FROM v_metrics WHERE experiment = :experiment"

_MOST_COLORED = 7  # curves in color; more, and their bands, can't be distinguished
_MOST_MARKERS = 40  # on a curve: more would cover the line
_COLUMNS = 100  # of pixels: a curve has at most five points in each


def learning_curves(
    frames: Frames,
    baseline: str | None = None,
    over: Over | None = None,
    scope: Scope = "scoring",
    *,
    store: str | Snapshot = "",
    metric: Sequence[str] = (),
    smooth: int | None = None,
    highlight: Sequence[str] = (),
) -> Plot:
    """Plot the mean score, or metrics, over training: a curve for each label, with a band and thin seeds.

    The final score of the baseline is a dotted line, and that of a reference, which doesn't compete, a dashed
    gray line. Of more than seven curves, only the baseline and the best are in color.

    Args:
        baseline: Label or run; by default the study's baseline.
        over: Unit of the horizontal axis; None for the first known of examples seen, seconds, and steps.
        scope: Which FLOPs count.
        store: The store of the results, which is read for `metric` only.
        metric: Recorded metrics in place of the score: names of evaluations (`shapes/zero_shot`) and of
            training metrics (`loss`); several have a panel each.
        smooth: Number of recorded points in a running mean over the curve of each seed; if even, one more.
        highlight: Labels or runs in color, like the baseline; the others are thin and gray. By default the
            best, if there are many.

    Returns:
        The plot, named "curves", or "curves_" and the names of the metrics. Its data: effort, mean, low, and
        high for each panel, label, and point, of kind "mean", and of kind "seed" if there are few labels;
        panel, y_label, log, and in_percent describe the panel and its vertical axis. The role of gray curves
        is "other".

    Raises:
        ValueError: Nothing can be drawn yet, the baseline or a label is unknown, a metric has not been
            recorded, or there is neither a score (`Frames.score`) nor a metric.
    """
    compared = frames.baseline(baseline)
    metrics = {name: frames.declared.of(name) for name in metric} or {"score": frames.score}
    measured = _recorded(store, frames, metric, scope) if metric else {"score": score_curves(frames, scope)}
    first = next(iter(metrics))
    efforts = (effort for effort in ("examples_seen", "seconds") if effort in known(measured[first]))
    over = over or cast(Over, next(efforts, "steps"))
    parts, lost = [], []
    for name, meaning in metrics.items():
        judged = frames.scored_by([name]) if name in frames.evaluated else frames
        lost += captions.lost(judged, frames.labels)
        column = "step" if over == "steps" else over
        of_seeds = smoothed(measured[name], smooth) if smooth else measured[name]
        curves = mean_curves(of_seeds, column)
        if curves.empty:
            missing = f"no {name} to draw over {over} yet"
            raise NotYet(f"experiment {frames.experiment!r} has {missing}: {frames.progress()}")
        part = _thinned(styled(judged, curves.rename(columns={column: "effort"}), compared), ["label"])
        part["kind"], part["seed"] = "mean", math.nan
        if part.loc[part["role"] != "reference", "label"].nunique() <= _MOST_COLORED:
            part = pd.concat([part, _seeds(part, of_seeds, column)], ignore_index=True)
        part[["mean", "low", "high"]] *= meaning.factor
        axis = value_label(meaning, meaning.name or NAMES.get(name, name)) if metric else score_axis(frames)
        part["panel"], part["y_label"] = name, axis
        part["log"], part["in_percent"] = meaning.scale == "log", meaning.suffix == "%"
        parts.append(part)
    data = pd.concat(parts, ignore_index=True)
    meaning, sentences = metrics[first], [] if metric else [captions.score(frames)]
    rivals = data["role"] == "competitor"
    is_first = (data["panel"] == first) & (data["kind"] == "mean")
    ends = data[rivals & is_first].drop_duplicates("label", keep="last")
    colored = set(frames.only(highlight).labels if highlight else data["label"])
    if not highlight and len(ends) >= _MOST_COLORED:
        ranked = ends.sort_values("mean", ascending=meaning.goal == "min", kind="stable")
        colored = set(ranked["label"][: _MOST_COLORED - 1])
        sentences.append(f"In color: {frames.shown[compared]} and the best {len(colored)} of {len(ends)}.")
    if (rest := rivals & ~data["label"].isin(colored)).any():
        data.loc[rest, "role"] = "other"
        sentences.append("Gray: the other runs.")
    is_colored = data["role"].isin(["baseline", "competitor"])
    bands = "bands" if data.loc[is_colored, "label"].nunique() <= _MOST_COLORED else ""
    sentences += captions.seeds(data["seeds"].max(), bands, thin=bool(data["kind"].eq("seed").any()))
    if smooth:
        sentences.append(f"Smoothed: running mean over {smooth | 1} points of each seed, fewer at its ends.")
    if (data["final"] & (data["role"] == "baseline")).any():
        sentences.append(f"Dotted: final value of {frames.shown[compared]}.")
    sentences += dict.fromkeys(lost)
    if len(metrics) == 1:
        sentences += captions.references(frames, data, meaning)
    if over == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    x_label = "steps" if over == "steps" else WORDS[over].axis
    words = Texts(title(frames), " ".join(sentences), x_label, str(data["y_label"].iloc[0]), meaning)
    stem = "_".join(["curves", *(re.sub(r"\W+", "_", name) for name in metric)])
    return Plot(stem, data, words, _draw)


def _seeds(means: pd.DataFrame, curves: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the curves of the seeds that count in the means of competing labels, if they are several."""
    several = means[(means["seeds"] > 1) & (means["role"] != "reference")].drop_duplicates("label")
    looks = several[["label", "role", "text", "color", "marker", "line", "dark"]]
    rows = curves.dropna(subset=["score", column])
    ended = rows["final"] & (rows["score"].abs() < math.inf)
    some = ended.groupby(rows["label"]).transform("any")
    own = ended.groupby([rows["label"], rows["seed"]]).transform("any")
    rows = rows.loc[own | ~some, ["label", "seed", column, "score"]].merge(looks, on="label")
    rows = rows.rename(columns={column: "effort", "score": "mean"})
    return _thinned(rows, ["label", "seed"]).assign(kind="seed", seeds=1, final=False)


def _thinned(data: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Drop the points of long curves that a plot does not need."""
    x, y = data["effort"].to_numpy(float), data["mean"].to_numpy(float)
    of_curves: Any = data.groupby(by, sort=False).indices.values()
    kept = [place for rows in of_curves for place in rows[thinned(x[rows], y[rows], _COLUMNS)]]
    return data.iloc[kept].reset_index(drop=True)


@opens_store
def _recorded(store: Snapshot, frames: Frames, names: Sequence[str], scope: Scope) -> dict[str, pd.DataFrame]:
    """Read metrics that runs have recorded: rows as from `curves.score_curves`, whose score is the metric.

    The message about an unknown metric suggests a similar name.
    """
    of_training = [name for name in names if name not in frames.evaluated]
    logged = store.metrics(frames.experiment, [*of_training, "examples_seen"] if of_training else [])
    logged = frames.with_chosen(logged)
    missing = [name for name in of_training if name not in set(logged["name"])]
    if missing:
        others = sorted(map(str, store.select(_RECORDED, experiment=frames.experiment)["name"]))
        raise NotYet(
            f"no run of {frames.experiment!r} has recorded {missing[0]!r}: "
            f"{units.nearest(missing[0], [*frames.evaluated, *others])}"
        )
    evaluated = {name: score_curves(frames, scope, [name]) for name in names if name in frames.evaluated}
    return evaluated | {name: _of_training(frames, logged, name, scope) for name in of_training}


def _of_training(frames: Frames, logged: pd.DataFrame, name: str, scope: Scope) -> pd.DataFrame:
    """Return the curves of a training metric: examples as logged, efforts interpolated."""
    run = ["label", "seed"]
    values = logged.pivot_table("value", [*run, "step"], "name", dropna=False).dropna(subset=[name])
    runs = frames.runs.drop_duplicates(run)[[*run, "state"]]
    rows = runs.merge(values.reset_index(), on=run).rename(columns={name: "score"})
    seen = rows.get("examples_seen", rows["step"] * math.nan)
    rows[list(EFFORTS)] = math.nan
    evaluated = dict(list(score_curves(frames, scope).groupby(run)))
    for place, points in rows.groupby(run):
        for effort in EFFORTS:
            if place in evaluated and len(known := evaluated[place].dropna(subset=[effort])):
                steps, spent = [0.0, *known["step"]], [0.0, *known[effort]]
                rows.loc[points.index, effort] = np.interp(points["step"], steps, spent, right=math.nan)
    rows["examples_seen"] = seen.fillna(rows["examples_seen"])
    last = rows["step"] == rows.groupby(run)["step"].transform("max")
    return rows.assign(final=last & (rows["state"] == "COMPLETED"))


def _draw(data: pd.DataFrame, texts: Texts, sheet: Sheet) -> Figure:
    """Draw a panel for each metric."""
    divisor, x_label = axis_unit(texts.x, data.loc[data["role"] != "reference", "effort"])
    data = data.assign(effort=data["effort"] / divisor)
    of_metrics = [panel for _, panel in data.groupby("panel", sort=False)]
    figure, all_axes = panels(sheet, len(of_metrics), least=2.3)
    for axes, panel in zip(all_axes, of_metrics, strict=True):
        axes.set(xlabel=x_label, ylabel=panel["y_label"].iloc[0])
        _draw_curves(axes, panel)
    return finish(figure, texts, sheet, named="direct" if len(of_metrics) == 1 else "below")


def _draw_curves(axes: Axes, data: pd.DataFrame) -> None:
    """Draw curves (thin and gray for the role "other"), the bands if there are few, and levels."""
    seeds = data[(data["kind"] == "seed") & (data["role"] != "other")]
    draw_thin(axes, seeds.groupby(["label", "seed"]), "effort", "mean")
    competing = data[(data["role"] != "reference") & (data["kind"] == "mean")]
    is_banded = competing.loc[competing["role"] != "other", "label"].nunique() <= _MOST_COLORED
    count_axis(axes)
    for _, curve in competing.groupby("label", sort=False):
        last = curve.iloc[-1]
        color = last["color"]
        if last["role"] == "other":
            point = "." if len(curve) == 1 else ""  # a line would be invisible
            axes.plot(curve["effort"], curve["mean"], color=FAINT, linewidth=0.6, marker=point, zorder=1)
            continue
        if last["seeds"] > 1 and is_banded:
            draw_band(axes, curve["effort"], curve["low"], curve["high"], color)
        axes.plot(
            curve["effort"], curve["mean"], color=color, linestyle=last["line"], label=last["text"],
            marker=last["marker"] if len(curve) <= _MOST_MARKERS else "", markeredgewidth=0, zorder=3,
        )  # fmt: skip
        if last["role"] == "baseline" and last["final"]:
            axes.axhline(last["mean"], color=color, **DOTTED)
    draw_levels(axes, near_references(data, competing["mean"]))
    axes.set_xlim(left=max(0.0, axes.get_xlim()[0]))
    first = data.iloc[0]
    value_axis(axes, competing["mean"], log=bool(first["log"]), percent=bool(first["in_percent"]))
