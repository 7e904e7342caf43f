"""Learning curves, and how much sooner a run reaches the baseline's final score.

The score of a run at a step is the mean of the metrics that are averaged (`Frames.averaged`) there, and
`Frames.score` says whether more or less of it is better. Where one is missing there is no score, since a mean
over fewer metrics would not compare.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from .costs import Scope, break_even_runs, check_scope, planned_flops
from .efforts import EFFORTS, MEASURED, WORDS, Effort
from .intervals import HUGE, half_widths

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from .frames import Frames
    from .metrics import Metric

Crossing = Literal["first", "lasting"]
"""Which crossing of the baseline's final score counts: see `crossing`."""

CROSSINGS: tuple[Crossing, ...] = get_args(Crossing)


def crossing_words(which: Crossing, metric: Metric) -> str:
    """Say where a crossing is sought, of a score that means this."""
    if which == "first":
        return "where the interpolated curve first crosses it"
    return f"where the interpolated curve crosses it to stay {'below' if metric.goal == 'min' else 'above'}"


def score_curves(
    frames: Frames, scope: Scope = "scoring", metrics: Sequence[str] | None = None
) -> pd.DataFrame:
    """Compute the score of every run at every step where it was evaluated.

    Args:
        frames: Results of an experiment.
        scope: What counts as cost. The store records what is in scope "scoring"; what a run computes itself
            grows with the examples seen, so the scopes of that follow in proportion to the planned parts. The
            share in a reference's training is there from the start.
        metrics: Names whose mean the score is; by default those that are averaged.

    Returns:
        One row a run and step, in the order of the runs: fingerprint, label, seed, step, examples_seen,
        flops, seconds, chip_hours (NaN if unknown), score (NaN if a metric is missing, or there is no score),
        final (bool), and a column for each metric.

    Raises:
        ValueError: For an unknown scope.
    """
    check_scope(scope)
    curves = frames.scores.copy()
    averaged = list(frames.averaged if metrics is None else metrics)
    # The sum of numbers near the largest would overflow.
    halvings = 64.0 * (curves[averaged].abs() > HUGE).any(axis=1)
    scores = curves[averaged].mul(0.5**halvings, axis=0).mean(axis=1, skipna=False)
    curves["score"] = scores * 2.0**halvings if averaged else math.nan

    planned = frames.costs.set_index(["label", "seed"])
    curves["flops"] = curves.pop("flops_total")
    if scope != "scoring":
        within = planned_flops(planned, scope)
        of_run = list(zip(curves["label"], curves["seed"], strict=True))
        # 0/0, of a program without a price, is NaN: unknown.
        curves["flops"] *= (within / planned["total_flops"]).reindex(of_run).to_numpy()
    if scope == "reference_training":
        curves["flops"] += planned["reference_training_share_flops"].reindex(of_run).to_numpy()
    flops = curves["flops"]
    # A program that counts none says 0. In a study where others count, a run of 0 to its end cost nothing.
    is_free = (flops.groupby(curves["fingerprint"]).transform("max") == 0) & bool((flops > 0).any())
    curves["flops"] = flops.where((flops > 0) | is_free)
    return curves


class Place(NamedTuple):
    """A point of a curve: between two of its evaluations, so far on the way from the first to the second."""

    before: int
    after: int
    way: float


def crossing(y: Sequence[float], target: float, which: Crossing = "first") -> Place | None:
    """Find where a curve reaches a target, by linear interpolation between its points.

    Args:
        y: Score at each evaluation, [n]; NaN where there is none.
        target: The score to reach.
        which: "first", from below; or "lasting", after which the curve never falls below the target again:
            later, and not flattered by noise.

    Returns:
        The place of the crossing; the first point itself if the curve is there already (it is unknown before,
        so the effort there is an upper bound); None if the target is not reached, or not reached to stay:
        right-censored, never extrapolated.
    """
    before: int | None = None
    found: Place | None = None
    for i, value in enumerate(y):
        if value < target:
            before, found = i, None
        elif value >= target and found is None:  # NaN is neither
            if before is None:
                found = Place(i, i, 0.0)
            else:
                found = Place(before, i, (target - y[before]) / (value - y[before]))
            if which == "first":
                return found
    return found


def speedups(
    curves: pd.DataFrame, baseline: str, which: Crossing = "first", sign: float = 1.0
) -> pd.DataFrame:
    """Find when every completed run reaches the final score of the baseline with the same seed.

    The baseline itself is held to the same rule: it may reach its own final score before its end.

    Args:
        curves: From `score_curves`.
        baseline: Label of the baseline.
        which: Which crossing counts.
        sign: −1 where less is better, so that a curve reaches the score from above; see `Metric.sign`.

    Returns:
        One row a completed run with a score, whose baseline of the same seed has one, and one a run that
        diverged, and reaches nothing: fingerprint, label, seed; target (the baseline's final score), reached
        (bool), bounded (bool: it was there at the first evaluation, so that the effort is at most, and the
        factor at least, what is given); score_before and score_after (of the two evaluations between which
        it gets there; NaN where it does not). For each
        effort, by its name in `efforts.WORDS`: `<effort>_before` and `_after` (at these evaluations),
        `_to_match` (where it gets there; NaN where it does not, or the effort is unknown), `_spent` (in all:
        if the target was not reached, it takes more than that) and `fewer_<effort>` (what the baseline takes
        over what the run takes; infinite where that is nothing).
    """
    import numpy as np
    import pandas as pd

    names = ("fingerprint", "label", "seed", "score", "final", "diverged", *EFFORTS)
    columns = {name: curves[name].to_numpy() for name in names}
    groups = curves.groupby(["label", "seed"], sort=False).indices.values()
    points: list[NDArray[np.intp]] = [np.asarray(at) for at in groups]
    # The last point of a completed run is its final one; the points lie in the order of the steps.
    has_score = np.isfinite(columns["score"])
    is_known = columns["final"] & (has_score | columns["diverged"])
    completed = [at for at in points if is_known[at[-1]]]

    def reaches(at: NDArray[np.intp], target: float) -> Place | None:
        """Find where the run at these rows reaches a target; the rows of the place are of all curves."""
        scores = (sign * columns["score"][at]).tolist()
        place = crossing(scores, sign * target, which) if has_score[at[-1]] else None
        return place and Place(int(at[place.before]), int(at[place.after]), place.way)

    targets: dict[Any, tuple[float, Place]] = {}
    for at in completed:
        if columns["label"][at[-1]] == baseline and has_score[at[-1]]:
            target = float(columns["score"][at[-1]])
            ends = reaches(at, target)
            assert ends is not None  # it ends there
            targets[columns["seed"][at[-1]]] = (target, ends)
    compared = [at for at in completed if columns["seed"][at[-1]] in targets]
    of_baseline = [targets[columns["seed"][at[-1]]] for at in compared]
    places = [reaches(at, target) for at, (target, _) in zip(compared, of_baseline, strict=True)]

    last = np.array([at[-1] for at in compared], int)
    found = pd.DataFrame(
        {name: curves[name].iloc[last].to_numpy() for name in ("fingerprint", "label", "seed")}
    )
    found["target"] = np.array([target for target, _ in of_baseline], float)
    reached = np.array([place is not None for place in places], bool)
    found["reached"] = reached
    found["bounded"] = np.array([place is not None and place.before == place.after for place in places], bool)
    nowhere = Place(0, 0, math.nan)  # row 0 stands in where a run does not get there
    theirs = _Places([place for _, place in of_baseline])
    its = _Places([place or nowhere for place in places])
    for name, column in {"score": "score", **{WORDS[effort].name: effort for effort in EFFORTS}}.items():
        values = columns[column].astype(float)
        for end, rows in (("before", its.before), ("after", its.after)):
            found[f"{name}_{end}"] = np.where(reached, values[rows], math.nan)
        if column == "score":
            continue
        to_match, whole = its.along(values), theirs.along(values)
        found[f"{name}_to_match"] = to_match
        found[f"{name}_spent"] = values[last]
        with np.errstate(divide="ignore", invalid="ignore"):
            free = np.where(whole == 0, 1.0, math.inf)  # what takes nothing
            found[f"fewer_{name}"] = np.where(to_match == 0, free, whole / to_match)
    return found


class _Places:
    """Places on curves, as arrays."""

    def __init__(self, places: Sequence[Place]) -> None:
        import numpy as np

        self.before = np.array([place.before for place in places], int)
        self.after = np.array([place.after for place in places], int)
        self._way = np.array([place.way for place in places], float)

    def along(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Interpolate values at all evaluations linearly to each place."""
        before = values[self.before]
        found: NDArray[np.float64] = before + (values[self.after] - before) * self._way
        return found


def mean_curves(curves: pd.DataFrame, effort: Effort | Literal["step"]) -> pd.DataFrame:
    """Average the curves of each label over its seeds, with the confidence interval of the mean.

    Of a label with runs that completed with a finite score only these count, so that a run that died early
    cuts nothing short; of one without, all that have been evaluated. The mean is taken where every curve is
    known, at each evaluation of any of them, interpolated where seeds were evaluated at different points.
    Over an effort that is measured, and differs from seed to seed, the means of effort and score are taken at
    the steps that all were evaluated at, so that the curve ends at the mean of the ends.

    Args:
        curves: From `score_curves`.
        effort: The horizontal axis: an effort, or the step.

    Returns:
        One row a label and point, ordered: label, seeds (how many), the effort, mean, low, high (the mean for
        one seed), final (bool: the last point, of completed runs).
    """
    import numpy as np
    import pandas as pd

    known = curves.dropna(subset=["score", effort])
    columns = {name: known[name].to_numpy() for name in {"seed", "step", "score", "final", effort}}
    parts: dict[str, list[Any]] = {
        name: [] for name in ("label", "seeds", effort, "mean", "low", "high", "final")
    }
    for label, at in known.groupby("label", sort=False).indices.items():
        seeds, ended = columns["seed"][at], columns["final"][at] & np.isfinite(columns["score"][at])
        completed = seeds[ended]
        runs = [at[seeds == seed] for seed in np.unique(completed if completed.size else seeds)]
        efforts = [columns[effort][run].astype(float) for run in runs]
        scored = [columns["score"][run] for run in runs]
        if effort in MEASURED:
            shared = functools.reduce(np.intersect1d, [columns["step"][run] for run in runs])
            at_shared = [np.isin(columns["step"][run], shared) for run in runs]
            grid = np.mean([x[here] for x, here in zip(efforts, at_shared, strict=True)], axis=0)
            scores = np.stack([y[here] for y, here in zip(scored, at_shared, strict=True)])
        else:
            grid = np.unique(np.concatenate(efforts))
            grid = grid[(grid >= max(x[0] for x in efforts)) & (grid <= min(x[-1] for x in efforts))]
            scores = np.stack([np.interp(grid, x, y) for x, y in zip(efforts, scored, strict=True)])
        mean, half = scores.mean(axis=0), np.zeros(grid.size)
        if len(runs) > 1:
            half = half_widths(scores.std(axis=0, ddof=1), np.full(grid.size, len(runs)))
        ends = (mean - half, mean + half)
        last = np.full(grid.size, completed.size > 0) & (grid == grid.max(initial=-math.inf))
        values = ([label] * grid.size, [len(runs)] * grid.size, grid, mean, *ends, last)
        for name, value in zip(parts, values, strict=True):
            parts[name].append(value)
    return pd.DataFrame({name: np.concatenate(values) if values else [] for name, values in parts.items()})


# ---- how many runs a reference has to serve until it has paid for itself, by what runs have reached


def break_even(
    frames: Frames, baseline: str, metrics: Sequence[str] | None = None, which: Crossing = "first"
) -> pd.DataFrame:
    """Find the break-even of each seed.

    The FLOPs of making all that a run needs, over what the run saves until it reaches the baseline's final
    score, its own scoring and its reference's counted (`costs.break_even_runs`).

    Args:
        frames: Results of an experiment.
        baseline: Label to match.
        metrics: Names whose mean the score is; by default those that are averaged.
        which: Which crossing of the baseline's final score counts.

    Returns:
        One row a completed run that is compared and whose FLOPs are known: label, seed, scored_flops (until
        it gets there, references' scoring counted; NaN where it does not), making_flops (all that it needs)
        and break_even, NaN for a run that needs nothing, or of which that is not known.
    """
    curves = score_curves(frames, "reference_scoring", metrics)
    reached = speedups(curves, baseline, which, frames.ranked.sign)
    making = frames.costs.set_index(["label", "seed"])["reference_training_flops"].to_dict()
    of_baseline = reached[reached["label"] == baseline].set_index("seed")["flops_to_match"].to_dict()
    rows = reached[~reached["label"].isin(frames.apart_from(baseline))]
    rows = rows.dropna(subset="flops_spent").rename(columns={"flops_to_match": "scored_flops"})
    keys = list(zip(rows["label"], rows["seed"], strict=True))
    rows["making_flops"] = [0.0 if key[0] == baseline else making.get(key, 0.0) for key in keys]
    needed, scored = rows["making_flops"], rows["scored_flops"]
    whole = rows["seed"].map(of_baseline)
    rows["break_even"] = [_paid(*each) for each in zip(needed, scored, whole, rows["reached"], strict=True)]
    return rows[["label", "seed", "scored_flops", "making_flops", "break_even"]]


def _paid(making: float, scored: float, whole: float, reached: bool) -> float:
    """Break-even of one seed; NaN if nothing is needed, or the cost until then is unknown."""
    if not making > 0 or math.isnan(whole) or (reached and math.isnan(scored)):
        return math.nan
    runs = break_even_runs(making, scored, whole) if reached else None
    return math.inf if runs is None else runs
