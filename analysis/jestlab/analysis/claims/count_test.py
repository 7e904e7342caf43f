"""Tests of "the median is above a threshold" that count what disagrees, once or after every seed.

After n seeds, of which a count k disagrees, the p-value of one look is P(K ≤ k), where K is the count if each
seed is above or below the threshold with probability ½. Looks after every seed are compared by

    evidence(n, k) = n^1.25 · P(K ≤ k),

and the p-value of the whole sequence is the probability that evidence as small occurs at any look. It is
summed exactly over all paths. The exponent decides how looks share the error. Of 0.75, 1, 1.25, 1.5, and 2,
the exponent 1.25 decides earliest at levels from .05 to .05/55 with a few dozen seeds.

Sources: Jennison and Turnbull (2000), Group Sequential Methods, ch. 12, for exact bounds of repeated looks at
binomial data.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int_]

SPENDING = 1.25
"""The exponent in the module's docstring."""

TINY = 1 + 1e-9
"""Factor that makes equal evidence compare as equal on every CPU."""


@dataclass(frozen=True)
class CountTest:
    """A test by the count of points that aren't above the threshold.

    Attributes:
        last: Maximum number of seeds with a look after every seed.
        points: Differences [..., n] → the points that the last of n seeds adds, [..., points].
        one_look: Number of seeds → p-value of a single look for each count.
        all_looks: Returns the p-values of looks after every seed, [seeds, count].
    """

    last: int
    points: Callable[[Floats], Floats]
    one_look: Callable[[int], Floats]
    all_looks: Callable[[], Floats]

    def against(self, values: Floats, threshold: float = 0.0, inclusive: bool = False) -> Counts:
        """Count the points that aren't above a threshold, after every seed.

        Args:
            values: Differences, [..., seeds]. NaN is never above.
            inclusive: Whether a point equal to the threshold counts as above.

        Returns:
            [..., seeds].
        """
        counts = np.zeros(values.shape, int)
        for n in range(1, values.shape[-1] + 1):
            points = self.points(values[..., :n])
            is_above = points >= threshold if inclusive else points > threshold
            counts[..., n - 1] = np.count_nonzero(~is_above, axis=-1)
        return np.cumsum(counts, axis=-1)

    def p_values(self, values: Floats, threshold: float, inclusive: bool, is_once: bool) -> Floats:
        """Test whether the median is above a threshold.

        Args:
            values: Differences, [..., seeds]; at most `last` seeds unless `is_once`.
            inclusive: Whether a difference equal to the threshold counts as above.
            is_once: Whether only the look after all seeds counts.

        Returns:
            The lowest p-value of the looks so far, [..., seeds].
        """
        against, seeds = self.against(values, threshold, inclusive), values.shape[-1]
        if not is_once:
            found = self.all_looks()[np.arange(1, seeds + 1), against]
            return np.minimum.accumulate(found, axis=-1)
        p_values = np.ones(values.shape)
        if seeds:
            p_values[..., -1] = self.one_look(seeds)[against[..., -1]]
        return p_values
