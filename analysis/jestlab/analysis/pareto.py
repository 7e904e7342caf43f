"""Pareto fronts of cost (less is better) and score (more is better).

A point dominates another if it costs no more, scores no less, and is better in one of the two.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Standing = Literal["front", "ambiguous", "dominated", "unknown"]
"""The relation to the front of a point that is known up to an interval; see `standing`."""

Floats = npt.NDArray[np.float64]


def front(cost: npt.ArrayLike, score: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Find the points that no other point dominates.

    Copies of a point are on the front together. A point with NaN is never on it and dominates nothing.

    Args:
        cost: To be minimized, [n].
        score: To be maximized, [n].

    Returns:
        bool [n], True on the front.

    Raises:
        ValueError: If the two do not hold one number for each point.
    """
    costs, scores = _vectors(cost=cost, score=score)
    known = np.flatnonzero(~(np.isnan(costs) | np.isnan(scores)))
    order = known[np.argsort(costs[known])]
    # A point that scores less than an earlier one, which costs no more, is dominated.
    order = order[scores[order] == np.maximum.accumulate(scores[order])]
    # Now cost and score ascend. Of equal scores the cheapest remain, of equal costs those that score most.
    c, s = costs[order], scores[order]
    cheapest, best = c[np.searchsorted(s, s)], s[np.searchsorted(c, c, "right") - 1]
    mask = np.zeros(costs.shape, bool)
    mask[order[(c == cheapest) & (s == best)]] = True
    return mask


def standing(
    cost_low: npt.ArrayLike, cost_high: npt.ArrayLike, score_low: npt.ArrayLike, score_high: npt.ArrayLike
) -> npt.NDArray[np.str_]:
    """Classify points that are known up to an interval: on the front, dominated, or possibly either.

    A point is on the front, for any values in the intervals, if no other point at its best (lowest cost,
    highest score) dominates it at its worst. It is dominated if another point at its worst dominates it at
    its best. Intervals are assumed to be independent. Where low equals high, this is `front`. The result is
    as certain as the intervals are: see `intervals.to_match`.

    Args:
        cost_low: Lowest cost of each point, [n].
        cost_high: Highest cost, [n].
        score_low: Lowest score, [n].
        score_high: Highest score, [n].

    Returns:
        [n] of "front", "ambiguous", and "dominated"; "unknown" where a number is NaN. Unknown points dominate
        nothing.

    Raises:
        ValueError: If they do not hold one number for each point, or a low one is above its high one.
    """
    bounds = _vectors(cost_low=cost_low, cost_high=cost_high, score_low=score_low, score_high=score_high)
    if (bounds[0] > bounds[1]).any() or (bounds[2] > bounds[3]).any():
        raise ValueError("an interval's low end is above its high end")
    standings = np.full(bounds[0].shape, "unknown", "<U9")
    known = np.flatnonzero(~np.isnan(bounds).any(axis=0))
    cheap, costly, low, high = (bound[known] for bound in bounds)
    is_dominated = _dominated(cheap, high, by_cost=costly, by_score=low)
    may_be_dominated = _dominated(costly, low, by_cost=cheap, by_score=high)
    standings[known] = np.where(is_dominated, "dominated", np.where(may_be_dominated, "ambiguous", "front"))
    return standings


def _dominated(cost: Floats, score: Floats, by_cost: Floats, by_score: Floats) -> npt.NDArray[np.bool_]:
    """Find the points whose (cost, score) is dominated by (by_cost, by_score) of another point; all [n]."""
    order = np.argsort(by_cost)
    costs, scores = by_cost[order], by_score[order]
    # Best and second-best score of the first k points, [n + 1]; NaN without such a point.
    best = np.fmax.accumulate(np.concatenate([[np.nan], scores]))
    second = np.fmax.accumulate(np.concatenate([[np.nan], np.minimum(scores, best[:-1])]))

    def best_other(side: Literal["left", "right"]) -> Floats:
        """Return the best score of the other points that cost less ("left") or no more ("right")."""
        count = np.searchsorted(costs, cost, side)
        is_own = (by_cost < cost if side == "left" else by_cost <= cost) & (by_score == best[count])
        return np.where(is_own, second[count], best[count])

    return (best_other("left") >= score) | (best_other("right") > score)


def hypervolume(cost: npt.ArrayLike, score: npt.ArrayLike, reference: tuple[float, float]) -> float:
    """Compute the area between the dominated region and a reference point; greater is better.

    Args:
        cost: To be minimized, [n].
        score: To be maximized, [n].
        reference: A cost and a score that count as worthless. Only points that are better in both count.

    Returns:
        The area, in units of cost × units of score; 0 if no point is better than the reference.

    Raises:
        ValueError: If the two do not hold one number for each point, or the reference is not finite.
    """
    if not np.isfinite(reference).all():
        raise ValueError(f"the reference point {reference} must be finite")
    steps = _steps(*_vectors(cost=cost, score=score))
    inside = (steps.cost < reference[0]) & (steps.score > reference[1])
    # Each step is a rectangle from its cost to the reference's, as high as it rises above the step before.
    with np.errstate(over="ignore"):
        rises = np.diff(steps.score[inside], prepend=reference[1])
        return float(np.sum((reference[0] - steps.cost[inside]) * rises))


class Steps(NamedTuple):
    """A staircase: the best score that is attained at each cost.

    Attributes:
        cost: Where it rises, ascending, [m].
        score: The score from there on, ascending, [m].
    """

    cost: Floats
    score: Floats


def attainment(cost: npt.ArrayLike, score: npt.ArrayLike, seed: npt.ArrayLike, at_least: int) -> Steps:
    """Compute the empirical attainment surface: the (cost, score) that at least so many seeds attain.

    A seed attains a (cost, score) if one of its points costs no more and scores no less. Of n seeds,
    at_least = 1 is the best case, n the worst, ⌈n/2⌉ the median.

    Args:
        cost: To be minimized, [n].
        score: To be maximized, [n].
        seed: Seed of each point, [n].
        at_least: How many seeds must attain it, from 1 to their number.

    Returns:
        The border of the attained region; empty if fewer seeds than that have a point.

    Raises:
        ValueError: If they do not hold one value for each point, or there are fewer seeds.

    References:
        Grunert da Fonseca, Fonseca, and Hall (2001), Inferential performance assessment of stochastic
        optimisers and the attainment function. EMO 2001.
    """
    costs, scores = _vectors(cost=cost, score=score)
    seeds = np.asarray(seed)
    if seeds.shape != costs.shape:
        raise ValueError(f"seed {seeds.shape} and cost {costs.shape} must be vectors of one length")
    names = np.unique(seeds)
    if not 1 <= at_least <= len(names):
        raise ValueError(f"at_least={at_least}: expected 1 to {len(names)}, the number of seeds")
    fronts = [_steps(costs[seeds == name], scores[seeds == name]) for name in names]
    grid = np.unique(np.concatenate([steps.cost for steps in fronts]))
    # The score that each seed attains at each cost, that of the last step up to there. [seeds, grid]
    attained = [
        np.concatenate([[-np.inf], steps.score])[np.searchsorted(steps.cost, grid, "right")]
        for steps in fronts
    ]
    surface = np.sort(attained, axis=0)[len(names) - at_least]
    rises = surface > np.concatenate([[-np.inf], surface[:-1]])
    return Steps(grid[rises], surface[rises])


def _vectors(**named: npt.ArrayLike) -> list[Floats]:
    """Convert to floats; all must be vectors of one length."""
    vectors = [np.asarray(values, float) for values in named.values()]
    if vectors[0].ndim != 1 or any(vector.shape != vectors[0].shape for vector in vectors):
        shapes = " and ".join(f"{name} {v.shape}" for name, v in zip(named, vectors, strict=True))
        raise ValueError(f"{shapes} must be vectors of one length")
    return vectors


def _steps(cost: Floats, score: Floats) -> Steps:
    """Return the front as a staircase, without copies."""
    on_front = front(cost, score)
    costs, places = np.unique(cost[on_front], return_index=True)
    return Steps(costs, score[on_front][places])
