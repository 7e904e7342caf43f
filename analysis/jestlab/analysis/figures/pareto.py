"""Scores against what runs cost, with the Pareto front and how certain it is."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from .. import units
from ..costs import Scope
from ..curves import mean_curves, score_curves
from ..efforts import WORDS, Effort, cost_of, unit
from ..frames import Frames, NotYet
from ..intervals import of_groups, range_holds
from ..lost import DIVERGED
from ..pareto import attainment, front, hypervolume, standing
from .drawing import draw_pareto
from .plot import (
    Plot,
    Texts,
    about_lost,
    about_references,
    about_unfinished,
    require_competitors,
    score_axis,
    styled,
    title,
    what_score_is,
)

if TYPE_CHECKING:
    import pandas as pd

_BEYOND = 1.1  # the reference point of the hypervolume costs a tenth more than the costliest


def pareto(
    frames: Frames,
    baseline: str | None = None,
    scope: Scope = "scoring",
    trajectories: bool = False,
    surfaces: bool = False,
    cost: Effort | None = None,
) -> Plot:
    """Plot the mean final score against the total cost of training, with the Pareto front of the means.

    Only completed runs are points: a marker a label, with bars from the lowest to the highest seed, and a
    dot a seed. Filled markers are on the front for any true values within these bars; open ones are
    dominated for any; half-filled ones may be either. The bars of three seeds hold a median with a chance of
    .75 only, and the caption says so.

    Args:
        frames: Results of an experiment, from `frames.read`.
        baseline: Label or run that is drawn in black; by default the study's first non-reference run.
        scope: What counts as FLOPs.
        trajectories: Whether to show, faintly, each mean's path over training. These points belong to one
            budget, so they are never part of the front.
        surfaces: Whether to show what the best, the median and the worst seed attain: each seed has a front
            of its own, over the seeds that every competitor has completed.
        cost: What runs cost; None for FLOPs, where no run's are known for seconds.

    Returns:
        The plot, named "pareto". Its data: rows of kind "mean" (a label: cost, score, spread, their ends
        cost_low, cost_high, low, high, seeds, on_front and standing), "seed" (a run), "trajectory" (a point
        on the way) and "attained" (a step of the surface that `at_least` seeds attain).

    Raises:
        ValueError: If no run has completed with a known price yet, there is no such baseline, or surfaces are
            requested and no seed is complete; or no score is better than another (`Frames.ranked`).
    """
    import numpy as np
    import pandas as pd

    compared, metric = frames.baseline(baseline), frames.ranked
    curves = score_curves(frames, scope)
    ended = curves[curves["final"]]
    cost = cost_of(ended) if cost is None else cost
    runs = ended[np.isfinite(ended[["score", cost]]).all(axis=1)].assign(cost=lambda rows: rows[cost])
    if runs.empty:
        raise NotYet(
            f"no run of experiment {frames.experiment!r} has completed with a score and known "
            f"{WORDS[cost].amount}: {frames.progress()}"
        )
    diverged = [label for label, fates in frames.fates.items() if DIVERGED in fates]
    means = _means(runs, ~runs["label"].isin(frames.apart_from(compared)), metric.sign, diverged)
    parts = [means.assign(kind="mean"), runs[["label", "seed", "cost", "score"]].assign(kind="seed")]
    if trajectories:
        way = mean_curves(curves[curves["label"].isin(means["label"])], cost)
        way = way.rename(columns={"mean": "score", cost: "cost"})[["label", "cost", "score"]]
        parts.append(way.assign(kind="trajectory"))
    if surfaces:
        parts.append(_surfaces(frames, runs[~runs["label"].isin(frames.apart_from(compared))]))
    points = pd.concat(parts, ignore_index=True)
    data = styled(frames, points, compared, ["score", "spread", "low", "high"])
    require_competitors(frames, data[data["kind"] == "mean"])
    caption = _caption(frames, data, scope, cost)
    words = Texts(title(frames), caption, WORDS[cost].axis, score_axis(frames), metric)
    return Plot("pareto", data, words, draw_pareto)


def _means(
    runs: pd.DataFrame, competes: pd.Series[bool], sign: float, diverged: Collection[str]
) -> pd.DataFrame:
    """One row a label; for those that compete, also whether they are on the front: not if a seed diverged."""
    of_label = runs.groupby("label", sort=False)
    means = of_groups(runs["score"], runs["label"]).set_axis(["score", "spread", "seeds"], axis=1)
    means["cost"] = of_groups(runs["cost"], runs["label"])["mean"]
    means[["cost_low", "cost_high"]] = of_label["cost"].agg(["min", "max"])
    means[["low", "high"]] = of_label["score"].agg(["min", "max"])
    means["on_front"], means["standing"] = False, ""
    means.loc[means.index.isin(diverged), "standing"] = "dominated"
    of_competitors = list(runs.loc[competes & ~runs["label"].isin(diverged), "label"].unique())
    rivals = means.loc[of_competitors]
    means.loc[of_competitors, "on_front"] = front(rivals["cost"], sign * rivals["score"])
    ends = [sign * rivals[end] for end in (("low", "high") if sign > 0 else ("high", "low"))]
    means.loc[of_competitors, "standing"] = standing(rivals["cost_low"], rivals["cost_high"], *ends)
    return means.reset_index()


def _surfaces(frames: Frames, runs: pd.DataFrame) -> pd.DataFrame:
    """What the best, the median and the worst of the seeds attain that all labels have completed."""
    import pandas as pd

    sign = frames.ranked.sign
    labels = runs["label"].nunique()
    complete = [seed for seed, of_seed in runs.groupby("seed") if of_seed["label"].nunique() == labels]
    paired = runs[runs["seed"].isin(complete)]
    if not complete:
        raise NotYet(
            f"no attainment surface for experiment {frames.experiment!r}, since no seed is complete: "
            f"{frames.progress()}"
        )
    parts = []
    for at_least in sorted({1, math.ceil(len(complete) / 2), len(complete)}):
        steps = attainment(paired["cost"], sign * paired["score"], paired["seed"], at_least)
        part = pd.DataFrame({"cost": steps.cost, "score": sign * steps.score, "seeds": len(complete)})
        parts.append(part.assign(kind="attained", at_least=at_least))
    return pd.concat(parts, ignore_index=True)


def _caption(frames: Frames, data: pd.DataFrame, scope: Scope, cost: Effort) -> str:
    means = data[data["kind"] == "mean"]
    competing = means[means["role"] != "reference"]
    sentences = [what_score_is(frames)]
    if means["seeds"].max() > 1:
        sentences.append("Markers: mean over seeds; bars: lowest to highest seed; dots: seeds.")
        if competing["seeds"].min() == 1:
            sentences.append("Without dots and bars: one seed, treated as exact.")
    else:
        sentences.append("One seed each, treated as exact.")
    sentences.append("Gray steps: Pareto front of the means.")
    meanings = {
        "front": "filled: on the front",
        "ambiguous": "half filled: on it or dominated (bars overlap)",
        "dominated": "open: dominated",
    }
    shown = set(competing["standing"])
    legend = "; ".join(meaning for name, meaning in meanings.items() if name in shown)
    few = int(competing["seeds"].min())
    sentences.append(f"{legend[0].upper()}{legend[1:]}.")
    if few > 1:
        chance = f"{range_holds(few):.2g}"
        sentences.append(f"No surer than the bars: those of {few} seeds hold a median with chance {chance}.")
    if (data["kind"] == "attained").any():
        count = int(data.loc[data["kind"] == "attained", "seeds"].iloc[0])
        sentences.append(f"Dotted steps: attained by at least 1, half and all of {count} seeds.")
    if (data["kind"] == "trajectory").any():
        sentences.append("Faint lines: the path over training; not part of the front.")
    sentences += _about_hypervolume(frames, competing, cost)
    apart = set(means.loc[means["role"] == "reference", "label"])
    sentences += about_lost(frames, frames.labels)
    sentences += about_unfinished(frames, [label for label in frames.competitors if label not in apart])
    sentences += about_references(frames, means.rename(columns={"score": "mean"}).assign(final=True))
    if cost == "flops":
        sentences.append(f"FLOPs: {frames.counted(scope)}.")
    return " ".join(sentences)


def _about_hypervolume(frames: Frames, means: pd.DataFrame, effort: Effort) -> list[str]:
    """State the hypervolume of at least two labels: up to a score of 0 where that is the least that there is,
    as of percentages of which more is better, else up to the worst of any seed."""
    import pandas as pd

    if len(means) < 2:
        return []
    metric = frames.score
    cost = _BEYOND * float(means["cost"].max())
    divisor, named = unit(effort, pd.Series([cost]))
    unit_name = named or WORDS[effort].amount
    scores, seeds = means["score"] / metric.factor, means[["low", "high"]] / metric.factor
    from_0 = metric.in_percent and metric.goal == "max"
    worst = 0.0 if from_0 else float(seeds["low"].min() if metric.goal == "max" else seeds["high"].max())
    volume = hypervolume(means["cost"], metric.sign * scores, (cost, metric.sign * worst)) / divisor
    end = "score 0" if from_0 else f"the worst score of any seed, {metric.text(worst)}"
    return [
        f"Hypervolume of the means: {units.significant(volume)} {unit_name} × score, to the reference point "
        f"of {units.significant(cost / divisor)} {unit_name} and {end}."
    ]
