"""What the differences of a few seeds say about a claim: by one look, or however often one looks.

A study with a fixed number of seeds is judged by Student's t, of the mean. That takes normal differences and
one look: who adds seeds because the first did not tell is wrong more often. A study that goes on until its
claims are decided is judged after every seed by the sign test of `looks`, of the median, which takes neither.

A difference is infinite where a run of one side diverged, and has no mean: then one look takes the sign test
of all seeds, too. It is NaN where nothing is known of a side, as of a run that failed: such a seed counts
against "holds" and against "does not hold".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, get_args

from ..intervals import half_widths, moments, tail
from . import looks
from .power import Needed, needed

Verdict = Literal["holds", "does not hold", "undecided", "not run"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Side = Literal["above", "below", "near"]
"""Where a claim says that a difference lies: above −within, below within, or between both."""


@dataclass(frozen=True)
class Evidence:
    """What differences say about a claim.

    Attributes:
        verdict: What they decide with at most the error that was asked for.
        seeds: How many of them were looked at: the first ones, up to the decision.
        low: Lower bound of the mean, or of the median, that goes with that error; infinite or NaN where there
            is none yet.
        high: Upper bound.
        chance: Probability with which evidence so strong for the more likely side would come up (by this
            look, or ever) if the other side were right: at most the error where a claim is decided.
        agree: How many of the seeds lie where the claim says.
        forecast: How a claim that is undecided would go on; None for others.
    """

    verdict: Verdict
    seeds: int
    low: float
    high: float
    chance: float
    agree: int
    forecast: looks.Forecast | Needed | None = None


def decide(
    side: Side,
    low: float,
    high: float,
    within: float = 0.0,
    outer: tuple[float, float] | None = None,
) -> Verdict:
    """Decide by the interval of a difference, from `low` to `high`; undecided if that is NaN.

    Args:
        side: Where a claim says that it lies.
        low: End of the interval.
        high: The other end.
        within: How far on the wrong side is as good, or how near is near.
        outer: The interval by which a difference is not near; None for the same. One that is near can be
            missed on both sides, so that each side has half the error.
    """
    if side == "near":
        if -within <= low and high <= within:
            return "holds"
        low, high = outer or (low, high)
        return "does not hold" if low > within or high < -within else "undecided"
    if side == "below":
        low, high = -high, -low
    return "holds" if low > -within else "does not hold" if high < -within else "undecided"


def one_look(values: Sequence[float], side: Side, within: float, error: float) -> Evidence:
    """Judge by Student's t, of the mean of the differences; by the sign test where one isn't finite.

    Args:
        values: Differences, one a seed; see the module.
        side: Where the claim says that they lie.
        within: How far on the wrong side is as good, or how near is near.
        error: Probability with which the verdict may be wrong. Each bound has half of it, so that a claim
            with an error of 5% is judged by the 95% interval.
    """
    n = len(values)
    agree = sum(_agrees(value, side, within) for value in values)
    if n < 2:
        return Evidence("undecided", n, math.nan, math.nan, 1.0, agree)
    mean, std = moments(values)
    if not math.isfinite(std):
        most = max((k for k in range(n) if looks.tail(n, k) <= error / 2), default=-1)
        bounds = looks.bounds(values, most)
        verdict = decide(side, *bounds, within)
        return _looked(values, side, within, verdict, bounds, lambda against: 2 * looks.tail(n, against[-1]))
    half = float(half_widths([std], [n], 1 - error)[0])
    low, high = mean - half, mean + half
    verdict = decide(side, low, high, within)

    def above(threshold: float) -> float:
        """Chance of the evidence that the mean is above a threshold, with both bounds."""
        return min(1.0, 2 * tail(mean - threshold, std, n))

    def below(threshold: float) -> float:
        return min(1.0, 2 * tail(threshold - mean, std, n))

    chance = min(1.0, *_chances(side, within, above, below, above, below))
    ahead = needed(_margin(mean, side, within), std, n, error) if verdict == "undecided" else None
    return Evidence(verdict, n, low, high, chance, agree, ahead)


def any_look(values: Sequence[float], side: Side, within: float, error: float, at_most: int) -> Evidence:
    """Judge by the sign test that is taken after every seed; what it has decided first stays.

    Args:
        values: Differences, one a seed, in the order of the seeds.
        side: Where the claim says that they lie.
        within: How far on the wrong side is as good, or how near is near.
        error: Probability with which the verdict may be wrong, of all looks together.
        at_most: Number of seeds at which the study ends.
    """

    def ever(against: Sequence[int]) -> float:
        return looks.chance(against, at_most)

    for n in range(1, min(len(values), at_most) + 1):
        low, high = looks.interval(values[:n], error, at_most)
        outer = looks.interval(values[:n], error / 2, at_most) if side == "near" else None
        verdict = decide(side, low, high, within, outer)
        if verdict != "undecided":
            return _looked(values[:n], side, within, verdict, (low, high), ever, 2.0)
    bounds = looks.interval(values, error, at_most)
    found = _looked(values, side, within, "undecided", bounds, ever, 2.0)
    return replace(found, forecast=_forecast(values, side, within, error, at_most))


def _looked(
    values: Sequence[float],
    side: Side,
    within: float,
    verdict: Verdict,
    bounds: tuple[float, float],
    chance: Callable[[Sequence[int]], float],
    outer: float = 1.0,
) -> Evidence:
    """Collect what the differences say by their signs, once it is clear what they decide.

    Args:
        values: Differences, of which NaN disagrees with everything.
        side: Where the claim says that they lie.
        within: How far on the wrong side is as good, or how near is near.
        verdict: What they decide.
        bounds: Of their median.
        chance: Number of differences that disagree, after each → chance of the evidence.
        outer: As of `_chances`.
    """

    def against(agrees: Callable[[float], bool]) -> float:
        return chance(list(accumulate(int(not agrees(value)) for value in values)))

    holds, fails = _chances(
        side,
        within,
        lambda threshold: against(lambda value: value > threshold),
        lambda threshold: against(lambda value: value < threshold),
        lambda threshold: against(lambda value: value >= threshold),
        lambda threshold: against(lambda value: value <= threshold),
        outer,
    )
    agree = sum(_agrees(value, side, within) for value in values)
    return Evidence(verdict, len(values), *bounds, min(1.0, holds, fails), agree)


def _chances(
    side: Side,
    within: float,
    above: Callable[[float], float],
    below: Callable[[float], float],
    at_least: Callable[[float], float],
    at_most: Callable[[float], float],
    outer: float = 1.0,
) -> tuple[float, float]:
    """Chances of the evidence that a claim holds, and that it does not, if that is wrong.

    Args:
        side: Where the claim says that the difference lies.
        within: How far on the wrong side is as good, or how near is near.
        above: Threshold → chance of the evidence that the difference is above it; and so on.
        outer: By what the chance that it is not near is multiplied, because either side may be.
    """
    if side == "near":
        near = max(at_least(-within), at_most(within))
        return near, outer * min(above(within), below(-within))
    ahead, behind = (above, below) if side == "above" else (below, above)
    threshold = -within if side == "above" else within
    return ahead(threshold), behind(threshold)


def _agrees(value: float, side: Side, within: float) -> bool:
    """Whether a difference lies where a claim says."""
    if side == "near":
        return abs(value) <= within
    return value > -within if side == "above" else value < within


def _margin(mean: float, side: Side, within: float) -> float:
    """How far a mean is from where the verdict would change."""
    if side == "near":
        return abs(abs(mean) - within)
    return abs(mean + within) if side == "above" else abs(mean - within)


def _forecast(
    values: Sequence[float], side: Side, within: float, error: float, at_most: int
) -> looks.Forecast:
    """Predict how the sign test of a claim goes on: of a "near" by the side that is harder to exclude."""
    n = len(values)
    if side != "near":
        against = n - sum(_agrees(value, side, within) for value in values)
        return looks.forecast(n, against, error, at_most)
    above, below = (sum(sign * value > within for value in values) for sign in (1, -1))
    lost = sum(map(math.isnan, values))
    near = looks.forecast(n, max(above, below) + lost, error, at_most)
    far = looks.forecast(n, n - max(above, below), error / 2, at_most)
    likely = max(near, far, key=lambda each: each.decided)
    return likely._replace(earliest=min(near.earliest, far.earliest))
