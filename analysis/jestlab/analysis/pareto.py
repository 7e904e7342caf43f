"""Pareto fronts of cost (less is better) and score (more is better).

A point dominates another if it costs no more, scores no less, and is better in one of the two. All arrays
have one number for each of n points, [n].
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def front(cost: npt.ArrayLike, score: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Find the points that no other point dominates; bool [n].

    Equal points are on the front together. A point with NaN is never on the front and dominates nothing.
    """
    on_front: npt.NDArray[np.bool_] = standing(cost, cost, score, score) == "front"
    return on_front


def standing(
    cost_low: npt.ArrayLike, cost_high: npt.ArrayLike, score_low: npt.ArrayLike, score_high: npt.ArrayLike
) -> npt.NDArray[np.str_]:
    """Classify points that are known up to an interval: on the front, dominated, or possibly either.

    A point is on the front, for any values in the intervals, if no other point at its best (lowest cost,
    highest score) dominates it at its worst. It is dominated if another point at its worst dominates it at
    its best. Intervals are assumed to be independent. The result is as certain as the intervals are.

    Returns:
        [n] of "front", "ambiguous", and "dominated"; "unknown" where a number is NaN. Unknown points dominate
        nothing.
    """
    bounds = np.array([cost_low, cost_high, score_low, score_high], float)
    standings = np.full(bounds.shape[1], "unknown", "<U9")
    known = np.flatnonzero(~np.isnan(bounds).any(axis=0))
    cheap, costly, low, high = bounds[:, known]
    is_dominated = _dominated(cheap, high, by_cost=costly, by_score=low)
    may_be_dominated = _dominated(costly, low, by_cost=cheap, by_score=high)
    standings[known] = np.where(is_dominated, "dominated", np.where(may_be_dominated, "ambiguous", "front"))
    return standings


def _dominated(cost: Floats, score: Floats, by_cost: Floats, by_score: Floats) -> npt.NDArray[np.bool_]:
    """Find the points whose (cost, score) is dominated by (by_cost, by_score) of another point; all [n]."""
    cost, score = cost[:, None], score[:, None]  # [point, other point]
    is_dominated = (by_cost <= cost) & (by_score >= score) & ((by_cost < cost) | (by_score > score))
    np.fill_diagonal(is_dominated, False)
    return np.asarray(is_dominated.any(axis=1))
