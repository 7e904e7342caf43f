"""Learning curves: scores over training, crossings of the baseline's final score, means, and smoothing.

The score of a run at a step is the mean of its averaged metrics (`Frames.averaged`). `Frames.score` tells
whether a higher or lower score is better. The score is missing where a metric is missing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .costs import Scope, break_even_runs, check_scope, planned_flops
from .efforts import EFFORTS, MEASURED, WORDS, Effort
from .frames import Frames
from .intervals import half_widths

CROSSING = "where the interpolated curve first crosses it"
"""In words, which point of a curve counts: see `crossing`."""


def score_curves(
    frames: Frames, scope: Scope = "scoring", metrics: Sequence[str] | None = None
) -> pd.DataFrame:
    """Compute the score of every run at every step where it was evaluated.

    Args:
        frames: Results of an experiment.
        scope: Which FLOPs count. The store records those of scope "scoring". For another scope, they are
            multiplied by the ratio of the scopes' planned FLOPs. The share in a reference's training is added
            in full from the first step.
        metrics: Names of the metrics to average; by default those of the experiment.

    Returns:
        One row for each run and step, in the order of the runs: fingerprint, label, seed, step,
        examples_seen, flops, seconds, chip_hours (NaN if unknown), score (NaN if a metric is
        missing, or no metrics are averaged), final (bool), and a column for each metric.

    Raises:
        ValueError: The scope is unknown.
    """
    check_scope(scope)
    averaged = list(frames.averaged if metrics is None else metrics)
    curves = frames.scores.copy()
    curves["score"] = math.nan
    if averaged:
        values = curves[averaged]
        with np.errstate(over="ignore"):  # the sum of huge numbers is infinite where their mean is not
            mean = values.mean(axis=1, skipna=False)
        curves["score"] = mean.where(np.isfinite(mean), (values / len(averaged)).sum(axis=1, skipna=False))

    flops = curves.pop("flops_total")
    if scope != "scoring":
        planned = frames.costs.set_index(["label", "seed"])
        runs = pd.MultiIndex.from_frame(curves[["label", "seed"]])
        # Runs without a planned price report only training FLOPs: 0/0 and unknown parts, NaN, become 1.
        ratio = (planned_flops(planned, scope) / planned["total_flops"]).fillna(1.0)
        flops = flops * ratio.reindex(runs).to_numpy()
        if scope == "reference_training":
            shares = planned["reference_training_share_flops"].fillna(0.0)
            flops = flops + shares.reindex(runs).to_numpy()
    curves["flops"] = flops
    return curves


Place = tuple[int, int, float]
"""A point on the line between two evaluations of a curve: their indices, and the fraction of the way."""

_PLACE_DTYPE = [("before", int), ("after", int), ("fraction", float)]


def crossing(y: Sequence[float], target: float) -> Place | None:
    """Find where a curve first reaches a target, by linear interpolation between its points.

    Args:
        y: Score at each evaluation; NaN where it is unknown.
        target: The score to reach.

    Returns:
        The place of the crossing. If the first point has already reached the target, it is that point, whose
        effort is an upper bound. None if the curve does not reach the target (right-censored). Curves are not
        extrapolated.
    """
    below: int | None = None
    for i, value in enumerate(y):
        if value < target:
            below = i
        elif value >= target:  # NaN is neither
            if below is None:
                return i, i, 0.0
            return below, i, (target - y[below]) / (value - y[below])
    return None


def speedups(curves: pd.DataFrame, baseline: str, sign: float = 1.0) -> pd.DataFrame:
    """Find when every completed run reaches the final score of the baseline with the same seed.

    The same rule applies to the baseline itself, which may reach its final score before its end.

    Args:
        curves: From `score_curves`.
        baseline: Label of the baseline.
        sign: −1 where less is better, so that a curve reaches the score from above; see `Metric.sign`.

    Returns:
        One row for each completed run that has a score or diverged (a diverged run never reaches the target),
        and whose baseline of the same seed has a final score. Columns: fingerprint, label, seed; target (the
        baseline's final score), reached (bool), bounded (bool: reached at the first evaluation, so that the
        effort is an upper bound and the factor a lower bound); score_before and score_after (at the two
        evaluations around the crossing; NaN without one). For each effort, by its name in `efforts.WORDS`:
        `<effort>_before` and `_after` (at these evaluations), `_to_match` (at the crossing; NaN without one,
        or if the effort is unknown), `_spent` (in total; if the target was not reached, a lower bound of the
        effort to match), and `fewer_<effort>` (the effort of the baseline divided by that of the run;
        infinite if the latter is 0).
    """
    score = sign * curves["score"].to_numpy()
    has_score = np.isfinite(score)
    is_complete = (curves["final"] & (has_score | curves["diverged"])).to_numpy()
    rows_of: Any = curves.groupby(["label", "seed"], sort=False).indices  # ordered by step
    runs = {run: rows for run, rows in rows_of.items() if is_complete[rows[-1]]}
    ends = {seed: rows[-1] for (label, seed), rows in runs.items() if label == baseline}
    ends = {seed: end for seed, end in ends.items() if has_score[end]}
    runs = {(label, seed): rows for (label, seed), rows in runs.items() if seed in ends}

    def place_of(rows: NDArray[np.intp], target: float) -> Place:
        """Find where a run reaches a target, by rows of `curves`."""
        place = crossing(score[rows].tolist(), target) if has_score[rows[-1]] else None
        before, after, fraction = place or (0, 0, math.nan)
        return int(rows[before]), int(rows[after]), fraction

    places = {run: place_of(rows, score[ends[run[1]]]) for run, rows in runs.items()}
    crossings = np.array([*places.values()], _PLACE_DTYPE)
    baseline_crossings = np.array([places[baseline, seed] for _, seed in runs], _PLACE_DTYPE)
    last = np.array([rows[-1] for rows in runs.values()], int)
    table = curves[["fingerprint", "label", "seed"]].iloc[last].reset_index(drop=True)
    table["target"] = curves["score"].to_numpy(float)[[ends[seed] for _, seed in runs]]
    table["reached"] = reached = ~np.isnan(crossings["fraction"])
    table["bounded"] = reached & (crossings["before"] == crossings["after"])
    for name, column in {"score": "score", **{WORDS[effort].name: effort for effort in EFFORTS}}.items():
        values = curves[column].to_numpy(float)
        for end in ("before", "after"):
            table[f"{name}_{end}"] = np.where(reached, values[crossings[end]], math.nan)
        if column == "score":
            continue
        to_match, spent = (
            values[at["before"]] + (values[at["after"]] - values[at["before"]]) * at["fraction"]
            for at in (crossings, baseline_crossings)
        )
        table[f"{name}_to_match"] = to_match
        table[f"{name}_spent"] = values[last]
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(spent == 0, 1.0, math.inf)  # of a run that spends nothing
            table[f"fewer_{name}"] = np.where(to_match == 0, factor, spent / to_match)
    return table


def mean_curves(curves: pd.DataFrame, effort: Effort | Literal["step"]) -> pd.DataFrame:
    """Average the curves of each label over its seeds, with the confidence interval of the mean.

    If some runs of a label completed with a finite score, only these count, so that a failed run does not
    shorten the curve; otherwise all evaluated runs count. The mean covers the range of efforts that all runs
    cover. It has a point at every effort at which one of them was evaluated, and the other runs are
    interpolated linearly. A measured effort differs between seeds: then effort and score are averaged over
    seeds at each step at which all were evaluated, and the curve ends at the mean of their last efforts.

    Args:
        curves: From `score_curves`.
        effort: The horizontal axis: an effort, or the step.

    Returns:
        One row for each label and point, in order: label, seeds (their number), the effort, mean, low and
        high (the ends of the interval; the mean for a single seed), final (bool: the last point, of completed
        runs).
    """
    known = curves.dropna(subset=["score", effort])
    seed, step, score = (known[name].to_numpy() for name in ("seed", "step", "score"))
    efforts = known[effort].to_numpy(float)
    is_complete = known["final"].to_numpy(bool) & np.isfinite(score)
    points = {}  # label → columns; one frame for all, since pandas takes a millisecond to make a frame
    for label, rows in known.groupby("label", sort=False).indices.items():
        completed = seed[rows][is_complete[rows]]
        counted = np.unique(completed if completed.size else seed[rows])
        runs = [rows[seed[rows] == one] for one in counted]
        if effort in MEASURED:
            if len({step[run].tobytes() for run in runs}) > 1:  # rare; intersections are slow
                shared = functools.reduce(np.intersect1d, [step[run] for run in runs])
                runs = [run[np.isin(step[run], shared)] for run in runs]
            x = np.mean([efforts[run] for run in runs], axis=0)
            scores = np.stack([score[run] for run in runs])
        else:
            x = np.unique(np.concatenate([efforts[run] for run in runs]))
            start, end = max(efforts[run[0]] for run in runs), min(efforts[run[-1]] for run in runs)
            x = x[(x >= start) & (x <= end)]
            scores = np.stack([np.interp(x, efforts[run], score[run]) for run in runs])
        with np.errstate(over="ignore", invalid="ignore"):  # the largest numbers overflow
            mean, spread = scores.mean(axis=0), scores.std(axis=0, ddof=int(len(runs) > 1))
        is_final = bool(completed.size) & (x == x.max(initial=-math.inf))
        points[label] = np.stack([np.full(x.size, len(runs)), x, mean, spread, is_final])
    columns = np.concatenate([np.empty((5, 0)), *points.values()], axis=1)
    means = pd.DataFrame(columns.T, columns=["seeds", effort, "mean", "spread", "final"])
    means = means.astype({"seeds": int, "final": bool})
    labels = np.array([*points], dtype=object)
    means.insert(0, "label", np.repeat(labels, [part.shape[1] for part in points.values()]))
    with np.errstate(over="ignore", invalid="ignore"):
        half = np.where(means["seeds"] > 1, half_widths(means.pop("spread"), means["seeds"]), 0.0)
        means.insert(4, "low", means["mean"] - half)
        means.insert(5, "high", means["mean"] + half)
    return means


def break_even(frames: Frames, baseline: str) -> pd.DataFrame:
    """Compute the break-even of each seed: how many runs must share a reference until it has paid off.

    A run saves FLOPs if it reaches the baseline's final score with fewer FLOPs than the baseline, including
    scoring by the run and by its reference. The break-even is the FLOPs of all runs that the run depends on,
    divided by these savings (`costs.break_even_runs`).

    Returns:
        One row for each completed run that is compared and whose FLOPs are known: label, seed, scored_flops
        (until the crossing, with references' scoring; NaN without a crossing), making_flops (of all runs that
        the run depends on), and break_even (NaN for a run without dependencies, or with unknown costs).
    """
    rows = speedups(score_curves(frames, "reference_scoring"), baseline, frames.ranked.sign)
    rows = rows.rename(columns={"flops_to_match": "scored_flops"})
    baseline_flops = rows[rows["label"] == baseline].set_index("seed")["scored_flops"]
    rows = rows[~rows["label"].isin(frames.apart_from(baseline))].dropna(subset="flops_spent")
    making = frames.costs[["label", "seed", "reference_training_flops"]]
    rows = rows.merge(making, "left", ["label", "seed"])
    rows["making_flops"] = rows["reference_training_flops"].mask(rows["label"] == baseline, 0.0)
    scored = rows["scored_flops"].where(rows["reached"], math.inf)
    costs = zip(rows["making_flops"], scored, rows["seed"].map(baseline_flops), strict=True)
    rows["break_even"] = [break_even_runs(*costs_of_run) for costs_of_run in costs]
    return rows[["label", "seed", "scored_flops", "making_flops", "break_even"]]


def smoothed(curves: pd.DataFrame, points: int) -> pd.DataFrame:
    """Replace the scores of each run by their running mean over an odd number of points.

    At both ends, the mean is over as many evaluations before as after the point: a one-sided window would
    bend a straight line. An even number of points counts as one more.
    """
    points |= 1  # an even window isn't centered

    def running_mean(scores: pd.Series[float]) -> pd.Series[float]:
        means = scores.rolling(points, center=True, min_periods=1).mean()
        for place in range(min(points, len(scores) + 1) // 2):
            means.iloc[place] = scores.iloc[: 2 * place + 1].mean()
            means.iloc[-1 - place] = scores.iloc[-2 * place - 1 :].mean()
        return means

    return curves.assign(score=curves.groupby(["label", "seed"], sort=False)["score"].transform(running_mean))


def thinned(x: NDArray[np.generic], y: NDArray[np.floating], width: int) -> NDArray[np.intp]:
    """Choose the points of a curve that a plot of a width in pixels needs; x is ascending.

    In each column of pixels, the first, the lowest, the highest, and the last point are kept, and one point
    that is not a finite number, where the line breaks. A line through these points touches the same pixels
    as a line through all points (Jugel et al., "M4: A Visualization-Oriented Time Series Data Aggregation",
    VLDB 2014), so a spike of a single step remains visible.

    Returns:
        intp [≤ 5 · width], indices of the kept points, ascending; all n if n ≤ 4 · width.
    """
    if len(x) <= 4 * width:
        return np.arange(len(x))
    along = x.astype(np.float64) - float(x[0])
    columns = np.minimum(along * width / (along[-1] or 1.0), width - 1).astype(np.intp)

    def ends(points: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the first and the last point of each column, of points sorted by column."""
        _, first, count = np.unique(columns[points], return_index=True, return_counts=True)
        return points[first], points[first + count - 1]

    finite, broken = np.flatnonzero(np.isfinite(y)), np.flatnonzero(~np.isfinite(y))
    by_value = finite[np.lexsort((y[finite], columns[finite]))]
    return np.unique(np.concatenate([*ends(np.arange(len(x))), *ends(by_value), ends(broken)[0]]))
