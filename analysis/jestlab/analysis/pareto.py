"""The Pareto front in two dimensions: least cost, highest score."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SAMPLE = 1000  # points from which the pivots are drawn
_PIVOTS = 8  # each costs one pass over all points, and pays while it discards more than a sort would


def front(cost: npt.ArrayLike, score: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Which points no other point dominates.

    A point dominates another if it costs no more and scores no less, and is better in one of the two. So of
    points with equal cost only the best scoring are on the front, of points with equal score only the
    cheapest, and copies of a point are on it together. A point with NaN is never on it and dominates nothing.

    Points that one of a few good points dominates are dropped first, the others sorted by cost: O(n log n),
    and O(n) where most are dropped.

    Args:
        cost: To be minimised, [n].
        score: To be maximised, [n].

    Returns:
        bool [n], True on the front.

    Raises:
        ValueError: If the two do not hold one number for each point.
    """
    costs, scores = np.asarray(cost, float), np.asarray(score, float)
    if costs.ndim != 1 or costs.shape != scores.shape:
        raise ValueError(f"cost {costs.shape} and score {scores.shape} must be two vectors of one length")
    mask = np.zeros(costs.shape, bool)
    candidates = np.flatnonzero(~(np.isnan(costs) | np.isnan(scores)))
    if candidates.size > _SAMPLE:
        kept = _prefilter(costs[candidates], scores[candidates])
        candidates = candidates[kept]
    mask[candidates[_sorted_front(costs[candidates], scores[candidates])]] = True
    return mask


def _prefilter(cost: npt.NDArray[np.float64], score: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Indices of the points that none of a few pivots beats in both; the whole front is among them."""
    sample = np.arange(0, cost.size, cost.size // _SAMPLE)
    pivots = sample[_sorted_front(cost[sample], score[sample])]
    if pivots.size > _PIVOTS:  # spread over the front, leaving out its ends, which dominate little
        pivots = pivots[np.linspace(0, pivots.size - 1, _PIVOTS + 2).astype(int)[1:-1]]
    keep = np.ones(cost.shape, bool)
    for pivot in pivots:
        keep &= (cost <= cost[pivot]) | (score >= score[pivot])
    return np.flatnonzero(keep)


def _sorted_front(cost: npt.NDArray[np.float64], score: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Indices of the front, by increasing cost."""
    order = np.argsort(cost)
    cost, score = cost[order], score[order]
    # A point below one before it is dominated. What is left increases, weakly, in cost and in score.
    risers = np.flatnonzero(score == np.maximum.accumulate(score))
    cost, score = cost[risers], score[risers]
    # Of equal scores those stay that cost what the first costs, of equal costs those that score as the last.
    cheapest = cost == cost[_run_starts(score)]
    best = score == score[_run_ends(cost)]
    front: npt.NDArray[np.intp] = order[risers[cheapest & best]]
    return front


def _run_starts(values: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """For each element of a sorted vector, the index of the first that equals it."""
    begins = np.ones(values.shape, bool)
    begins[1:] = values[1:] != values[:-1]
    starts: npt.NDArray[np.intp] = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    return starts


def _run_ends(values: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """For each element of a sorted vector, the index of the last that equals it."""
    return values.size - 1 - _run_starts(values[::-1])[::-1]
