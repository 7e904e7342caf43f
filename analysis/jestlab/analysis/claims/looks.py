"""Evidence that stays valid however often one looks: a sign test of the median, taken after every seed.

A paired difference agrees with "the median is above θ" if it lies above θ. Were that false, each difference
would agree with a probability of at most ½, whatever its distribution: no normality, no equal variances, no
symmetry is assumed, only that seeds are drawn independently. With n seeds, of which k disagree, the tail
P(Bin(n, ½) ≤ k) is the p-value of the sign test. Looking after every seed would find a small one sooner or
later, so a look must reach

    n^a · P(Bin(n, ½) ≤ k) ≤ c,      a = 1.25,

where c is the largest number for which a walk with probability ½ ever reaches this, up to the last look that
the study may take, with probability of at most the level. That probability is summed exactly, path by path,
and not simulated.

The choice of a decides how the error is spent over looks. Of 0.75, 1, 1.25, 1.5 and 2, this one decides
earliest at levels from .05 to .05/55 with at most a few dozen seeds: with 24, after 5 seeds that agree at
.05, after 11 at .05/55; 9 and 16 with one that does not.

Sources: the sign test and intervals of a median by order statistics are classical (scipy.stats.binomtest,
scipy.stats.quantile_test); the idea of exact bounds for repeated looks at binomial data is that of group
sequential tests (Jennison and Turnbull, 2000, Group Sequential Methods, ch. 12); intervals that hold at all
looks at once are confidence sequences (Howard et al., 2021, Ann. Statist. 49; for quantiles Howard and
Ramdas, 2022, Bernoulli 28, in the library confseq). Theirs are closed formulas for any number of looks; for
a few dozen, a sum over paths is exact. Mixtures of Student's t (Lai, 1976; the library savvi) need
normal differences: at the level that each of 55 claims has, Student's t is wrong 9 to 24 times as often as
it says for exponential differences of 3 to 24 seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_SEEDS = 100
"""The most seeds that a study may ask for."""

_SPENDING = 1.25  # a in the module's docstring
_TINY = 1 + 1e-9  # so that equal evidence is equal on every CPU


@cache
def most_against(level: float, last: int) -> tuple[int, ...]:
    """How many seeds may disagree at each look for the median to lie on the side of the others.

    Args:
        level: The probability with which this may ever be wrong, in (0, 1).
        last: The most seeds that may be looked at.

    Returns:
        Of each number of seeds n from 0 to `last`; −1 where no look decides.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    evidence = _evidence(last)
    low, high = 0.0, 1.0
    # The probability is a step function of the evidence that is asked for, which is halved to the last step.
    for _ in range(60):
        middle = (low + high) / 2
        if _ever(evidence, middle) <= level:
            low = middle
        else:
            high = middle
    return tuple(int((row <= low * _TINY).sum()) - 1 for row in evidence)


def chance(against: Sequence[int], last: int) -> float:
    """Probability with which so strong evidence would ever come up if the others were wrong.

    It is the least level at which the looks so far decide.

    Args:
        against: How many seeds disagree, after each seed; [n].
        last: The most seeds that may be looked at; what comes later tells nothing.

    Returns:
        1 where nothing was seen.
    """
    evidence = _evidence(last)
    # A look at more than half against says nothing, and has no entry.
    seen = [float(evidence[n][k]) for n, k in enumerate(against[:last], start=1) if k < _looked_at(n)]
    return _ever(evidence, min(seen)) if seen else 1.0


def interval(values: Sequence[float], level: float, last: int) -> tuple[float, float]:
    """Bounds of the median, each of which is wrong at any look with a probability of at most `level`.

    After n seeds, of which k may disagree, the median is above all but the k + 1 least values; of all looks
    so far, the narrowest bounds count.

    Args:
        values: One a seed, in the order in which they were looked at.
        level: Of each bound.
        last: The most seeds that may be looked at.

    Returns:
        Lower and upper bound; infinite where nothing can be said yet.
    """
    allowed = most_against(level, last)
    low, high = -math.inf, math.inf
    for n in range(1, min(len(values), last) + 1):
        one = bounds(values[:n], allowed[n])
        low, high = max(low, one[0]), min(high, one[1])
    return low, high


def bounds(values: Sequence[float], against: int) -> tuple[float, float]:
    """Bounds of the median by order statistics.

    Args:
        values: One a seed; NaN of one that counts against each side.
        against: How many may lie beyond each bound; −1 where nothing can be said yet.

    Returns:
        Lower and upper bound; infinite where nothing can be said yet.
    """
    if against < 0:
        return -math.inf, math.inf
    low, high = (sorted(end if math.isnan(v) else v for v in values) for end in (-math.inf, math.inf))
    return low[against], high[-1 - against]


def tail(n: int, against: int) -> float:
    """Probability that at most so many of n fair seeds disagree."""
    from scipy.special import bdtr

    return float(bdtr(against, n, 0.5))


class Forecast(NamedTuple):
    """When a claim will be decided if further seeds go on as those so far.

    Attributes:
        decided: Probability that it is by the last seed.
        expected: Mean number of seeds at its end, decided or not.
        low: Number of seeds by which it is decided with probability .1, of the cases in which it is.
        high: With probability .9.
        earliest: The fewest seeds with which it can be decided; the last if none can.
    """

    decided: float
    expected: float
    low: int
    high: int
    earliest: int


def forecast(seeds: int, against: int, level: float, last: int) -> Forecast:
    """Predict when a sign test ends.

    The share p of seeds that disagree is unknown: its prior is Jeffreys' Beta(½, ½), so that the next one
    disagrees with probability (k + ½) / (n + 1), and the walk goes on as Pólya's urn.

    Args:
        seeds: Number n so far.
        against: How many of them disagree, k.
        level: Of the test of each side.
        last: Seeds at which it ends undecided.
    """
    return _walked(seeds, against, level, last, lambda k, n: (k + 0.5) / (n + 1))


def expected(effect: float, level: float, last: int) -> Forecast:
    """Compute when a sign test ends for normal differences of a known effect.

    Args:
        effect: Their mean over their standard deviation.
        level: Of the test of each side.
        last: Seeds at which it ends undecided.
    """
    disagrees = math.erfc(effect / math.sqrt(2)) / 2
    return _walked(0, 0, level, last, lambda k, n: disagrees + 0.0 * k)


def _walked(
    seeds: int,
    against: int,
    level: float,
    last: int,
    disagrees: Callable[[npt.NDArray[np.float64], int], npt.NDArray[np.float64]],
) -> Forecast:
    """Sum over all ways on: `disagrees` is the probability that the next seed does, given all k and n."""
    import numpy as np

    allowed = most_against(level, last)
    walk = np.zeros(max(seeds, last) + 2)  # probability of each k at which nothing is decided
    walk[against] = 1.0
    ends: dict[int, float] = {}
    for n in range(seeds + 1, last + 1):
        share = disagrees(np.arange(len(walk), dtype=float), n - 1)
        step = walk * share
        walk = walk - step
        walk[1:] += step[:-1]
        decided = np.zeros(len(walk), bool)
        decided[: allowed[n] + 1] = True
        decided[n - allowed[n] : n + 1] = allowed[n] >= 0
        ends[n] = float(walk[decided].sum())
        walk[decided] = 0.0
    total = sum(ends.values())
    mean = sum(n * share for n, share in ends.items()) + last * (1 - total)
    low, high = (_quantile(ends, share * total, last) for share in (0.1, 0.9))
    # That disagree, if all others agree from now on.
    fewest = min(against, seeds - against)
    earliest = next((n for n in range(seeds + 1, last + 1) if allowed[n] >= fewest), last)
    return Forecast(total, max(mean, float(seeds)), low, high, earliest)


def _quantile(ends: dict[int, float], probability: float, last: int) -> int:
    reached = 0.0
    for n, share in ends.items():
        reached += share
        if reached >= probability / _TINY and reached > 0:
            return n
    return last


@cache
def _evidence(last: int) -> tuple[npt.NDArray[np.float64], ...]:
    """n^a · P(Bin(n, ½) ≤ k) for k below n/2, of each n from 0 to `last`."""
    import numpy as np
    from scipy.special import bdtr

    return tuple(float(n) ** _SPENDING * bdtr(np.arange(_looked_at(n)), n, 0.5) for n in range(last + 1))


def _looked_at(n: int) -> int:
    """Of how many k a look at n seeds can say anything: those below n/2."""
    return (n + 1) // 2


def _ever(evidence: Sequence[npt.NDArray[np.float64]], asked: float) -> float:
    """Probability that a fair walk ever comes to evidence of at most what is asked for."""
    import numpy as np

    last = len(evidence) - 1
    walk = np.zeros(last + 2)  # probability of each k with which it has not come there
    walk[0] = 1.0
    reached = 0.0
    for n in range(1, last + 1):
        walk[1:] = (walk[1:] + walk[:-1]) / 2
        walk[0] /= 2
        k = int((evidence[n] <= asked * _TINY).sum())
        reached += float(walk[:k].sum())
        walk[:k] = 0.0
    return reached
