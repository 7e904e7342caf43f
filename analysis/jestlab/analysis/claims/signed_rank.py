"""Wilcoxon's signed-rank test: it decides sooner than the sign test if differences are symmetric.

The differences are ranked by their size. If they are symmetric about the threshold, each rank belongs to a
difference below it with a probability of ½. The count of `count_test` is the sum of the ranks of differences
that aren't above the threshold θ. It equals the number of pairs (i ≤ j) whose mean is not above θ (Tukey,
1949; Hodges and Lehmann, 1963, Ann. Math. Stat. 34, for bounds from these means). Ties, zeros, and NaN count
against the verdict.

The p-values of looks after every seed are exact for independent seeds with the same symmetric distribution.
They are summed over all signs and all orders of up to 20 seeds; the time doubles with every further seed.
"""

from functools import cache

import numpy as np

from .count_test import SPENDING, TINY, CountTest, Floats
from .family import MOST_RANKED

_UNLIKELY = 0.9  # evidence above this limit has a p-value of more than ½, which is not computed
_BATCH = 32  # limits


@cache
def one_look(n: int) -> Floats:
    """Return P(W ≤ w) for 0 ≤ w ≤ n(n + 1)/2; W is the sum of the ranks 1 … n, each with probability ½."""
    chances = np.ones(1)
    for rank in range(1, n + 1):
        without = np.pad(chances, (0, rank))
        chances = (without + np.pad(chances, (rank, 0))) / 2
    return np.cumsum(chances)


@cache
def all_looks() -> Floats:
    """Return the p-values of looks after every seed.

    Returns:
        [n, w]: probability that evidence as strong as that of n seeds with rank sum w ever occurs in
        `MOST_RANKED` seeds; 1 if it is above ½.
    """
    evidence = np.full((MOST_RANKED + 1, MOST_RANKED * (MOST_RANKED + 1) // 2 + 1), np.inf)
    for n in range(1, MOST_RANKED + 1):
        less = (n * (n + 1) // 2 + 1) // 2
        evidence[n, :less] = n**SPENDING * one_look(n)[:less]
    is_look = evidence <= _UNLIKELY
    limits, places = np.unique(evidence[is_look], return_inverse=True)
    batches = np.array_split(limits, -(-len(limits) // _BATCH))  # small limits take less time than large ones
    p_values = np.ones_like(evidence)
    p_values[is_look] = np.concatenate([_reached(evidence, each) for each in batches])[places]
    return p_values


def _reached(evidence: Floats, limits: Floats) -> Floats:
    """Return the probabilities that the evidence at any look is at most each limit.

    A pattern has a bit for each rank, which is 1 if the difference with that rank isn't above the threshold.
    All 2^n patterns of n seeds are equally likely, and so are the ranks of the last seed. So the patterns
    before the last seed lack one bit, each with probability 1/n. Patterns that can't reach a limit later are
    left out: a rank sum never falls.
    """
    most = (evidence[:, :, None] <= limits * TINY).sum(axis=1) - 1  # rank sums that reach each limit
    patterns, sums = np.zeros(1, int), np.zeros(1, int)
    unreached, reached = np.ones((1, len(limits))), np.zeros(len(limits))
    for n in range(1, MOST_RANKED + 1):
        place = np.zeros(1 << (n - 1), int)
        place[patterns] = np.arange(len(patterns))
        more = sums + n <= most.max()
        patterns = np.concatenate([patterns, patterns[more] | 1 << (n - 1)])
        sums = np.concatenate([sums, sums[more] + n])
        before = np.zeros((len(patterns), len(limits)))
        for bit in range(n):
            lower = patterns & ((1 << bit) - 1)
            before += unreached[place[lower | patterns >> (bit + 1) << bit]]
        before /= n
        is_reached = sums[:, None] <= most[n]
        reached += np.where(is_reached, before, 0.0).sum(axis=0) / 2.0**n
        unreached = np.where(is_reached, 0.0, before)
    return reached


def _means(values: Floats) -> Floats:
    """Return the means of the last value with each value, [..., n] → [..., n]; NaN for inf with −inf."""
    with np.errstate(invalid="ignore", over="ignore"):
        means: Floats = (values + values[..., -1:]) / 2
    return means


SIGNED_RANK = CountTest(MOST_RANKED, _means, one_look, all_looks)
"""Wilcoxon's signed-rank test."""
