"""A sequential sign test of the median: its error rate holds no matter how often you look.

A paired difference agrees with "the median is above θ" if it is above θ. If the median is not above θ, each
difference agrees with a probability of at most ½, whatever the distribution: the test assumes only that seeds
are independent. After n seeds, of which k disagree, the p-value of one look is P(Bin(n, ½) ≤ k). A look after
every seed would inflate the error, so looks are compared by

    evidence(n, k) = n^1.25 · P(Bin(n, ½) ≤ k),

and the p-value of the whole sequence is the probability that evidence as small occurs at any look up to the
last one in a fair random walk, where each seed disagrees with probability ½. It is summed exactly over all
paths. The exponent decides how looks share the error. Of 0.75, 1, 1.25, 1.5, and 2, the exponent 1.25 decides
earliest at levels from .05 to .05/55 with a few dozen seeds.

Sources: Jennison and Turnbull (2000), Group Sequential Methods, ch. 12, for exact bounds of repeated looks at
binomial data; Howard and Ramdas (2022), Bernoulli 28, for intervals of quantiles that hold at all looks. The
mixtures of Student's t (Lai, 1976) need normal differences: at the level of each of 55 claims, Student's t is
wrong 9 to 24 times as often as it should be with exponential differences of 3 to 24 seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_SPENDING = 1.25  # the exponent in the module's docstring
_TINY = 1 + 1e-9  # so that equal evidence compares as equal on every CPU


def one_look(last: int) -> Floats:
    """Return P(Bin(n, ½) ≤ k) as [n, k]: the p-value of a single look if k of n ≤ `last` seeds disagree."""
    import numpy as np
    from scipy.special import bdtr

    n, k = np.ogrid[: last + 1, : last + 1]
    p_values: Floats = np.where(k < n, bdtr(k, np.maximum(n, k), 0.5), 1.0)
    return p_values


@cache
def all_looks(last: int) -> Floats:
    """Return the p-values of looks after every seed, up to `last` seeds.

    Returns:
        [n, k]: probability that a fair random walk ever has evidence as strong as that of n seeds, k of which
        disagree. It is 1 unless k is below n / 2.
    """
    import numpy as np

    n, k = np.ogrid[: last + 1, : last + 1]
    evidence = np.where(2 * k < n, n**_SPENDING * one_look(last), np.inf)
    is_look = np.isfinite(evidence)
    limits, places = np.unique(evidence[is_look], return_inverse=True)
    # For each limit, the probability of each k that hasn't reached it.
    walk = np.zeros((len(limits), last + 1))
    walk[:, 0] = 1.0
    reached = np.zeros(len(limits))
    for row in evidence[1:]:
        walk[:, 1:] = (walk[:, 1:] + walk[:, :-1]) / 2
        walk[:, 0] /= 2
        has_reached = row <= limits[:, None] * _TINY
        reached += np.where(has_reached, walk, 0.0).sum(axis=1)
        walk[has_reached] = 0.0
    p_values = np.ones_like(evidence)
    p_values[is_look] = reached[places]
    return p_values


def most_against(p_values: Floats, level: float) -> list[int]:
    """Return for each number of seeds how many may disagree in a decision at a level; −1 if none is possible.

    Args:
        p_values: From `one_look` or `all_looks`.
    """
    counts: list[int] = ((p_values <= level).sum(axis=1) - 1).tolist()
    return counts


def median_interval(values: Sequence[float], against: Sequence[int]) -> tuple[float, float]:
    """Return the narrowest bounds of the median at any look so far.

    Args:
        values: One value for each seed, in order. NaN counts against both bounds.
        against: For 0, 1, 2, … seeds, how many may be beyond a bound, from `most_against`; −1 for no look.

    Returns:
        Lower and upper bound; infinite if no look has one.
    """
    looks = [(n, beyond) for n, beyond in enumerate(against[: len(values) + 1]) if beyond >= 0]

    def high(values: Sequence[float]) -> float:
        known = [math.inf if math.isnan(value) else value for value in values]
        return min((sorted(known[:n])[-1 - beyond] for n, beyond in looks), default=math.inf)

    return -high([-value for value in values]), high(values)


class Forecast(NamedTuple):
    """The expected course of a sequential test.

    Attributes:
        decided: Probability of a decision by the last seed.
        expected: Expected number of seeds at the end, decided or not.
        earliest: Minimum number of seeds for a decision; the maximum number if no decision is possible.
    """

    decided: float
    expected: float
    earliest: int


NO_FORECAST = Forecast(0.0, 0.0, 0)
"""The forecast without a sequential test, or after its decision."""


def forecast(
    level: float, last: int, seeds: int = 0, against: int = 0, effect: float | None = None
) -> Forecast:
    """Predict the end of a sequential test, summed over all paths.

    Args:
        level: Maximum error of each of the two verdicts.
        last: Maximum number of seeds.
        seeds: Number n of seeds so far.
        against: Number k of these that disagree.
        effect: Mean of normal differences divided by their standard deviation. If None, the share of seeds
            that disagree has Jeffreys' prior, Beta(½, ½): the next seed disagrees with probability
            (k + ½) / (n + 1).
    """
    import numpy as np

    allowed = most_against(all_looks(last), level)
    k = np.arange(max(seeds, last) + 2.0)
    walk = np.where(k == against, 1.0, 0.0)  # probability of each k, undecided so far
    total, mean = 0.0, 0.0
    for n in range(seeds + 1, last + 1):
        step = walk * ((k + 0.5) / n if effect is None else math.erfc(effect / math.sqrt(2)) / 2)
        walk -= step
        walk[1:] += step[:-1]
        decided = (k <= allowed[n]) | (allowed[n] >= 0) & (n - k <= allowed[n]) & (k <= n)
        ended = float(walk[decided].sum())
        total, mean = total + ended, mean + n * ended
        walk[decided] = 0.0
    fewest = min(against, seeds - against)
    earliest = next((n for n in range(seeds + 1, last + 1) if allowed[n] >= fewest), last)
    return Forecast(total, max(mean + last * (1 - total), float(seeds)), earliest)
