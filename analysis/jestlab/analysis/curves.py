"""Scores over training, and by what factor a run reaches the baseline's final score sooner.

The score of a run at a step is the mean of the headline metrics (`Frames.metrics`) there; higher is better in
each of them. Where one is missing there is no score, since a mean over fewer metrics would not compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args

from .costs import SCOPES, Scope, check_scope

if TYPE_CHECKING:
    import pandas as pd

    from .frames import Frames

Effort = Literal["examples_seen", "flops"]
"""What a run spends to reach a score: the columns of `score_curves` that a crossing can be sought in."""


Band = Literal["range", "std"]
"""What the band around a mean curve spans."""


def score_curves(frames: Frames, scope: Scope = "scoring") -> pd.DataFrame:
    """The score of every run at every step where it was evaluated.

    Args:
        frames: Results of an experiment.
        scope: What counts as cost. The store records learner and scoring, which is scope "scoring"; every
            part of the cost grows with the examples seen, so other scopes follow in proportion to the
            planned parts.

    Returns:
        One row a run and step, in the order of the runs: label, seed, step, examples_seen, flops (NaN
        if unknown), score (NaN if a headline metric is missing), final (bool), and a column for each metric.

    Raises:
        ValueError: For an unknown scope.
    """
    check_scope(scope)
    curves = frames.scores.copy()
    curves["score"] = curves[frames.metrics].mean(axis=1, skipna=False)

    planned = frames.costs.set_index(["label", "seed"])
    parts = [f"{part}_flops" for part in SCOPES]
    within = planned[parts[: SCOPES.index(scope) + 1]].sum(axis=1)
    recorded = planned[["learner_flops", "scoring_flops"]].sum(axis=1)
    curves["flops"] = curves.pop("flops_total")
    if scope != "scoring":
        # 0/0, of a program without a price, is NaN: unknown.
        share = (within / recorded).reindex(list(zip(curves["label"], curves["seed"], strict=True)))
        curves["flops"] *= share.to_numpy()
    curves["flops"] = curves["flops"].where(curves["flops"] > 0)  # 0 is what a program that counts none says
    return curves


def crossing(x: Iterable[float], y: Iterable[float], target: float) -> float | None:
    """Where a curve first reaches a target, by linear interpolation between its points.

    Args:
        x: Effort at each evaluation, increasing, [n].
        y: Score there, [n]; NaN where there is none.
        target: The score to reach.

    Returns:
        The effort of the first crossing from below; the first point's own if it is there already (the curve
        is unknown before it, so this is an upper bound); None if no point reaches the target: right-censored,
        never extrapolated.
    """
    before: tuple[float, float] | None = None
    for xi, yi in zip(x, y, strict=True):
        if yi >= target:
            if before is None:
                return float(xi)
            x0, y0 = before
            return float(x0 + (xi - x0) * (target - y0) / (yi - y0))
        if not math.isnan(yi):
            before = (float(xi), float(yi))
    return None


def speedup(
    x: Iterable[float], y: Iterable[float], *, baseline_effort: float, baseline_score: float
) -> float | None:
    """By what factor less effort a run reaches the baseline's final score.

    Args:
        x: The run's effort at each evaluation (examples seen or FLOPs), increasing, [n].
        y: Its score there, [n].
        baseline_effort: What the baseline spent in all.
        baseline_score: What it ended at.

    Returns:
        baseline_effort / effort of the first crossing; infinite if the crossing is at no effort at all; None
        if the score is not reached or an effort is unknown.
    """
    reached = crossing(x, y, baseline_score)
    if reached is None or math.isnan(reached) or math.isnan(baseline_effort):
        return None
    return math.inf if reached == 0 else baseline_effort / reached


def speedups(curves: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Speed-ups of every completed run over the baseline of the same seed.

    Args:
        curves: From `score_curves`.
        baseline: Label of the baseline, whose own speed-up is 1.

    Returns:
        One row a completed run that has a score, and whose baseline of the same seed has one: label, seed,
        reached (bool), examples_seen and flops (factors; NaN where not reached or unknown).
    """
    import pandas as pd

    efforts = get_args(Effort)
    columns = {name: curves[name].to_numpy() for name in ("label", "seed", "score", "final", *efforts)}
    points = list(curves.groupby(["label", "seed"], sort=False).indices.values())
    # The last point of a completed run is its final one; the points lie in the order of the steps.
    completed = [at for at in points if columns["final"][at[-1]] and not math.isnan(columns["score"][at[-1]])]
    ends = {columns["seed"][at[-1]]: at[-1] for at in completed if columns["label"][at[-1]] == baseline}
    rows: list[dict[str, Any]] = []
    for at in completed:
        label, seed = columns["label"][at[-1]], columns["seed"][at[-1]]
        if seed not in ends:
            continue
        score, target = columns["score"][at].tolist(), float(columns["score"][ends[seed]])
        row: dict[str, Any] = {"label": label, "seed": seed}
        row["reached"] = label == baseline or crossing(range(len(score)), score, target) is not None
        for effort in efforts:
            spent, whole = columns[effort][at].tolist(), float(columns[effort][ends[seed]])
            factor = speedup(spent, score, baseline_effort=whole, baseline_score=target)
            row[effort] = 1.0 if label == baseline else math.nan if factor is None else factor
        rows.append(row)
    return pd.DataFrame(rows, columns=["label", "seed", "reached", *efforts])


def mean_curves(curves: pd.DataFrame, effort: Effort, band: Band = "range") -> pd.DataFrame:
    """One curve a label: the mean over its seeds, with a band.

    Of a label with completed runs only these count, so that a run that died early cuts nothing short; of one
    without, all that have been evaluated. The mean is taken where every curve is known, at each evaluation of
    any of them, interpolated where seeds were evaluated at different points.

    Args:
        curves: From `score_curves`.
        effort: The horizontal axis.
        band: "range" from the least to the greatest seed, "std" for the mean ± the sample standard deviation.

    Returns:
        One row a label and point, ordered: label, seeds (how many), the effort, mean, low, high (the mean for
        one seed), final (bool: the last point, of completed runs).
    """
    import numpy as np
    import pandas as pd

    parts = []
    for label, of_label in curves.dropna(subset=["score", effort]).groupby("label", sort=False):
        completed = of_label.loc[of_label["final"], "seed"]
        runs = [run for seed, run in of_label.groupby("seed") if completed.empty or seed in set(completed)]
        efforts = [run[effort].to_numpy(float) for run in runs]
        grid = np.unique(np.concatenate(efforts))
        grid = grid[(grid >= max(x[0] for x in efforts)) & (grid <= min(x[-1] for x in efforts))]
        scores = np.stack([np.interp(grid, x, run["score"]) for x, run in zip(efforts, runs, strict=True)])
        mean, spread = scores.mean(axis=0), scores.std(axis=0, ddof=1) if len(runs) > 1 else 0.0
        part = pd.DataFrame({"label": label, "seeds": len(runs), effort: grid, "mean": mean})
        part["low"], part["high"] = (
            (scores.min(axis=0), scores.max(axis=0)) if band == "range" else (mean - spread, mean + spread)
        )
        part["final"] = (not completed.empty) & (grid == grid.max(initial=-math.inf))
        parts.append(part)
    columns = ["label", "seeds", effort, "mean", "low", "high", "final"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def censored_median(factors: Iterable[float]) -> float:
    """The median of speed-ups, where NaN (not reached) counts as slower than any that was reached.

    Args:
        factors: One a seed, NaN where not reached.

    Returns:
        The median; NaN if it falls among those not reached, or there are none.
    """
    ordered = sorted(-math.inf if math.isnan(factor) else float(factor) for factor in factors)
    if not ordered:
        return math.nan
    middle = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return math.nan if -math.inf in middle else sum(middle) / 2
