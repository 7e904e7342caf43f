"""Pareto numerics in two dimensions, least cost and highest score: the front, how certain it is, what it is
worth, and what share of the seeds attains it.

A point dominates another if it costs no more and scores no less, and is better in one of the two.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Standing = Literal["front", "ambiguous", "dominated", "unknown"]
"""Where a point stands that is known up to an interval."""

Floats = npt.NDArray[np.float64]

_BINS = 1 << 16  # of cost, in which points are compared before they are sorted: its maxima fit in a cache
_FEW = 1000  # points are sorted at once


def front(cost: npt.ArrayLike, score: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Which points no other point dominates.

    So of points with equal cost only the best scoring are on the front, of points with equal score only the
    cheapest, and copies of a point are on it together. A point with NaN is never on it and dominates nothing.

    Points that are no better than the best of a cheaper bin of costs are dropped first, the others sorted by
    cost: O(n) where most are dropped, O(n log n) at worst.

    Args:
        cost: To be minimised, [n].
        score: To be maximised, [n].

    Returns:
        bool [n], True on the front.

    Raises:
        ValueError: If the two do not hold one number for each point.
    """
    costs, scores = _vectors(cost=cost, score=score)
    mask = np.zeros(costs.shape, bool)
    known = ~(np.isnan(costs) | np.isnan(scores))
    if known.all():
        candidates = _promising(costs, scores)
    else:
        candidates = np.flatnonzero(known)
        candidates = candidates[_promising(costs[candidates], scores[candidates])]
    mask[candidates[_sorted_front(costs[candidates], scores[candidates])]] = True
    return mask


def standing(
    cost_low: npt.ArrayLike, cost_high: npt.ArrayLike, score_low: npt.ArrayLike, score_high: npt.ArrayLike
) -> npt.NDArray[np.str_]:
    """Whether points that are known up to an interval are on the front, are dominated, or may be either.

    A point is on the front, for any values within the intervals, if at its worst (highest cost, lowest score)
    no other point dominates it at its best; it is dominated if at its best another dominates it at its worst.
    Intervals are taken to be independent of each other. Where low equals high, this is `front`. It is no
    surer than the intervals are: see `intervals.range_holds`.

    Args:
        cost_low: Least cost of each point, [n].
        cost_high: Its greatest, [n].
        score_low: Its lowest score, [n].
        score_high: Its highest, [n].

    Returns:
        [n] of "front", "ambiguous" and "dominated"; "unknown" where a number is NaN, which dominates nothing.

    Raises:
        ValueError: If they do not hold one number for each point, or a low one is above its high one.
    """
    bounds = _vectors(cost_low=cost_low, cost_high=cost_high, score_low=score_low, score_high=score_high)
    if (bounds[0] > bounds[1]).any() or (bounds[2] > bounds[3]).any():
        raise ValueError("an interval's low end is above its high end")
    found = np.full(bounds[0].shape, "unknown", dtype="<U9")
    known = np.flatnonzero(~np.isnan(np.stack(bounds)).any(axis=0))
    cheap, dear, low, high = (bound[known] for bound in bounds)
    may_be_dominated = _dominated(dear, low, by_cost=cheap, by_score=high)
    is_dominated = _dominated(cheap, high, by_cost=dear, by_score=low)
    found[known] = np.where(is_dominated, "dominated", np.where(may_be_dominated, "ambiguous", "front"))
    return found


def hypervolume(cost: npt.ArrayLike, score: npt.ArrayLike, reference: tuple[float, float]) -> float:
    """The area between what some point dominates and a reference point: greater is better.

    Args:
        cost: To be minimised, [n].
        score: To be maximised, [n].
        reference: A cost and a score that count as worthless. Points that do not better it in both add
            nothing.

    Returns:
        The area, in units of cost × units of score; 0 if no point betters the reference.

    Raises:
        ValueError: If the two do not hold one number for each point, or the reference is not finite.
    """
    if not (math.isfinite(reference[0]) and math.isfinite(reference[1])):
        raise ValueError(f"the reference point {reference} must be finite")
    steps = _steps(*_vectors(cost=cost, score=score))
    inside = (steps.cost < reference[0]) & (steps.score > reference[1])
    costs, scores = steps.cost[inside], steps.score[inside]
    # Each step is a rectangle from its cost to the reference's, as high as it rises above the step before.
    rises = np.diff(scores, prepend=reference[1])
    return float(np.sum((reference[0] - costs) * rises))


class Steps(NamedTuple):
    """A staircase: what score is attained from which cost on.

    Attributes:
        cost: Where it rises, increasing, [m].
        score: To what, increasing, [m].
    """

    cost: Floats
    score: Floats


def attainment(cost: npt.ArrayLike, score: npt.ArrayLike, seed: npt.ArrayLike, at_least: int) -> Steps:
    """The empirical attainment surface: what (cost, score) is attained by at least so many of the seeds.

    Each seed's points have a front of their own, and a seed attains a (cost, score) if one of its points
    costs no more and scores no less. Of n seeds, at_least = 1 is the best case, n the worst, ⌈n/2⌉ the
    median.

    Args:
        cost: To be minimised, [n].
        score: To be maximised, [n].
        seed: Whose point it is, [n].
        at_least: How many seeds have to attain it, from 1 to their number.

    Returns:
        The border of what is attained; empty where too few seeds have a point at all.

    Raises:
        ValueError: If they do not hold one value for each point, or there are not so many seeds.

    References:
        Grunert da Fonseca, Fonseca and Hall (2001), Inferential performance assessment of stochastic
        optimisers and the attainment function. EMO 2001.
    """
    costs, scores = _vectors(cost=cost, score=score)
    seeds = np.asarray(seed)
    if seeds.shape != costs.shape:
        raise ValueError(f"seed {seeds.shape} and cost {costs.shape} must be two vectors of one length")
    names = np.unique(seeds)
    if not 1 <= at_least <= len(names):
        raise ValueError(f"at_least={at_least}: give 1 to {len(names)}, the number of seeds")
    fronts = [_steps(costs[seeds == name], scores[seeds == name]) for name in names]
    grid = np.unique(np.concatenate([steps.cost for steps in fronts]))
    # What each seed attains at each cost: its last step until there, or nothing. [seeds, grid]
    attained = np.stack(
        [
            np.concatenate([[-np.inf], steps.score])[np.searchsorted(steps.cost, grid, side="right")]
            for steps in fronts
        ]
    )
    surface = np.partition(attained, len(names) - at_least, axis=0)[len(names) - at_least]
    rises = surface > np.concatenate([[-np.inf], surface[:-1]])
    return Steps(grid[rises], surface[rises])


def _vectors(**named: npt.ArrayLike) -> list[Floats]:
    """As floats, checked to be vectors of one length."""
    vectors = [np.asarray(values, float) for values in named.values()]
    if vectors[0].ndim != 1 or any(vector.shape != vectors[0].shape for vector in vectors):
        shapes = " and ".join(f"{name} {v.shape}" for name, v in zip(named, vectors, strict=True))
        raise ValueError(f"{shapes} must be vectors of one length")
    return vectors


def _steps(cost: Floats, score: Floats) -> Steps:
    """The front as a staircase, without copies."""
    on_front = front(cost, score)
    costs, places = np.unique(cost[on_front], return_index=True)
    return Steps(costs, score[on_front][places])


def _promising(cost: Floats, score: Floats) -> npt.NDArray[np.intp]:
    """Indices of the points that score more than all points of cheaper bins: the whole front is among them.

    A point of a cheaper bin costs less, so one that scores no more than it is dominated.
    """
    if cost.size <= _FEW:
        return np.arange(cost.size)
    finite = cost[np.isfinite(cost)] if np.isinf(cost).any() else cost
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    scale = _BINS / (high - low) if high > low else 0.0
    if (
        not 0.0 < scale < math.inf
    ):  # all costs equal, or too near or too far for the difference to be a number
        return np.arange(cost.size)
    # Rounding keeps the order, so no point lies in a cheaper bin than a cheaper point.
    bins = np.clip((cost - low) * scale, 0, _BINS - 1).astype(np.int32)
    best = np.full(_BINS, -np.inf)
    np.maximum.at(best, bins, score)
    of_cheaper = np.concatenate([[np.nan], np.maximum.accumulate(best)[:-1]])  # below the first there is none
    promising: npt.NDArray[np.intp] = np.flatnonzero(~(score <= of_cheaper[bins]))
    return promising


def _dominated(cost: Floats, score: Floats, by_cost: Floats, by_score: Floats) -> npt.NDArray[np.bool_]:
    """Whether (cost, score) of each point is dominated by (by_cost, by_score) of another point; all [n]."""
    order = np.argsort(by_cost)
    sorted_cost, sorted_score = by_cost[order], by_score[order]
    # Of the k cheapest the best and the second best, [n + 1]; NaN where k is too few.
    best = np.concatenate([[-np.inf], np.maximum.accumulate(sorted_score)])
    second = np.concatenate([[-np.inf], np.maximum.accumulate(np.minimum(sorted_score, best[:-1]))])
    best[0], second[:2] = np.nan, np.nan

    def best_of_others(cheapest: npt.NDArray[np.intp], is_among: npt.NDArray[np.bool_]) -> Floats:
        found = best[cheapest]
        return np.where(is_among & (found == by_score), second[cheapest], found)

    no_dearer = best_of_others(np.searchsorted(sorted_cost, cost, "right"), by_cost <= cost)
    cheaper = best_of_others(np.searchsorted(sorted_cost, cost, "left"), by_cost < cost)
    found: npt.NDArray[np.bool_] = (no_dearer > score) | (cheaper >= score)
    return found


def _sorted_front(cost: Floats, score: Floats) -> npt.NDArray[np.intp]:
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


def _run_starts(values: Floats) -> npt.NDArray[np.intp]:
    """For each element of a sorted vector, the index of the first that equals it."""
    begins = np.ones(values.shape, bool)
    begins[1:] = values[1:] != values[:-1]
    starts: npt.NDArray[np.intp] = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    return starts


def _run_ends(values: Floats) -> npt.NDArray[np.intp]:
    """For each element of a sorted vector, the index of the last that equals it."""
    return values.size - 1 - _run_starts(values[::-1])[::-1]
