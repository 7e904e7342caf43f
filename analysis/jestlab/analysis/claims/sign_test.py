"""The sign test of the median: its error rate holds whatever the distribution of the differences.

A paired difference agrees with "the median is above θ" if it is above θ. If the median is not above θ, each
difference agrees with a probability of at most ½: the test assumes only that seeds are independent. The count
of `count_test` is the number of seeds that disagree.

The bounds cover 100 seeds, so a study may take more or fewer seeds than it first set, even after looking at
its results. Evidence of more than 24 seeds counts a quarter, so that this costs studies of 24 seeds nothing.

The mixtures of Student's t (Lai, 1976) need normal differences: at the level of each of 55 claims, Student's
t is wrong 9 to 24 times as often as it should be with exponential differences of 3 to 24 seeds.
"""

from functools import cache

import numpy as np

from .count_test import SPENDING, TINY, CountTest, Floats
from .family import MOST_SEEDS, USUAL_SEEDS

_LATER = 4.0  # factor of the evidence of more seeds


def one_look(n: int) -> Floats:
    """Return P(Bin(n, ½) ≤ k) for 0 ≤ k ≤ n."""
    from scipy.special import bdtr

    p_values: Floats = bdtr(np.arange(n + 1), n, 0.5)
    return p_values


@cache
def all_looks() -> Floats:
    """Return the p-values of looks after every seed, up to `MOST_SEEDS`.

    Returns:
        [n, k]: probability that a fair random walk ever has evidence as strong as that of n seeds, k of which
        disagree. It is 1 unless k is below n / 2.
    """
    evidence = np.full((MOST_SEEDS + 1, MOST_SEEDS + 1), np.inf)
    for n in range(1, MOST_SEEDS + 1):
        less = (n + 1) // 2
        evidence[n, :less] = n**SPENDING * one_look(n)[:less] * (_LATER if n > USUAL_SEEDS else 1.0)
    is_look = np.isfinite(evidence)
    limits, places = np.unique(evidence[is_look], return_inverse=True)
    # For each limit, the probability of each k that hasn't reached it.
    walk = np.zeros((len(limits), MOST_SEEDS + 1))
    walk[:, 0] = 1.0
    reached = np.zeros(len(limits))
    for row in evidence[1:]:
        walk[:, 1:] = (walk[:, 1:] + walk[:, :-1]) / 2
        walk[:, 0] /= 2
        has_reached = row <= limits[:, None] * TINY
        reached += np.where(has_reached, walk, 0.0).sum(axis=1)
        walk[has_reached] = 0.0
    p_values = np.ones_like(evidence)
    p_values[is_look] = reached[places]
    return p_values


SIGN = CountTest(MOST_SEEDS, lambda values: values[..., -1:], one_look, all_looks)
"""The sign test."""
