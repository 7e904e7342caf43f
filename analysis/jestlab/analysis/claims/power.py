"""The power of one look by Student's t, and the number of seeds that it needs."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from .family import MOST_SEEDS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_GRID = 15  # number of quantiles of each posterior


def power(effect: npt.ArrayLike, n: int, error: float = 0.05) -> npt.NDArray[np.float64]:
    """Return the probability that a t-test of n seeds finds that the mean of paired differences is positive.

    Args:
        effect: Mean of the differences divided by their standard deviation.
        n: Number of seeds, at least 2.
        error: Level of the one-sided test.
    """
    import numpy as np
    from scipy.special import nctdtr, stdtrit

    shift = np.multiply(effect, math.sqrt(n))
    probability = 1.0 - nctdtr(n - 1, shift, stdtrit(n - 1, 1 - error))
    return np.where(np.isnan(probability), shift > 0, probability)  # SciPy returns NaN in some far tails


def needed(margin: float, std: float, n: int, error: float) -> int:
    """Predict the number of seeds that have a 50% chance to decide a claim that n seeds did not decide.

    The true mean and deviation differ from those of n seeds. Both are drawn from their posterior with
    Jeffreys' prior (σ² = (n − 1)·s²/χ², μ = margin + z·σ/√n). The probability of a decision by one look at N
    new seeds is averaged over these draws.

    Args:
        margin: Distance of the mean from the threshold of the claim, at least 0.
        std: Standard deviation of the differences (divisor n − 1).
        n: Number of seeds so far, at least 2.
        error: Level of each one-sided test.

    Returns:
        The total number of seeds; more than `MOST_SEEDS` if that many are too few.
    """
    import numpy as np
    from scipy.special import chdtri, ndtri

    if std == 0:
        return MOST_SEEDS + 1
    quantiles = (np.arange(_GRID) + 0.5) / _GRID
    sigma = std * np.sqrt((n - 1) / chdtri(n - 1, quantiles))[:, None]
    effect = (margin + ndtri(quantiles) * sigma / math.sqrt(n)) / sigma

    def chance(size: int) -> float:
        return float((power(effect, size, error) + power(-effect, size, error)).mean())

    return n + 1 + bisect_left(range(n + 1, MOST_SEEDS + 1), 0.5, key=chance)
