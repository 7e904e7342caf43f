"""The power of Student's t-test: for an effect size, and given some seeds."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from .claim import MOST_SEEDS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_GRID = 15  # quantiles of each posterior


def power(effect: npt.ArrayLike, n: int, error: float = 0.05) -> npt.NDArray[np.float64]:
    """Return the probability that n seeds show that the mean of paired differences is positive.

    Args:
        effect: Mean of the differences over their standard deviation.
        n: Number of seeds, at least 2.
        error: Level of the one-sided test.
    """
    import numpy as np
    from scipy.special import nctdtr, stdtrit

    found: npt.NDArray[np.float64] = nctdtr(
        n - 1, np.multiply(effect, math.sqrt(n)), stdtrit(n - 1, 1 - error)
    )
    return 1.0 - found


def needed(margin: float, std: float, n: int, error: float) -> int:
    """Predict the number of seeds that have a 50% chance to decide a claim that n seeds did not decide.

    The true mean and deviation differ from those of n seeds. Both are drawn from their posterior with
    Jeffreys' prior (σ² = (n − 1)·s²/χ², μ = margin + z·σ/√n), and the probability of a decision by one look
    at N new seeds is averaged over them.

    Args:
        margin: Distance of the mean from the threshold of the claim, at least 0.
        std: Standard deviation of the differences (n − 1).
        n: Number of seeds so far, at least 2.
        error: Level of each one-sided test.

    Returns:
        The total number of seeds; more than `MOST_SEEDS` if so many are not enough.
    """
    import numpy as np
    from scipy.special import chdtri, nctdtr, ndtri, stdtrit

    if std == 0:
        return MOST_SEEDS + 1
    quantiles = (np.arange(_GRID) + 0.5) / _GRID
    sigma = std * np.sqrt((n - 1) / chdtri(n - 1, quantiles))[:, None]
    effect = (margin + ndtri(quantiles) * sigma / math.sqrt(n)) / sigma

    def chance(size: int) -> float:
        wrong_side = nctdtr(size - 1, effect * math.sqrt(size), -stdtrit(size - 1, 1 - error))
        decided = power(effect, size, error) + wrong_side
        return float(np.nan_to_num(decided, nan=1.0).mean())

    return n + 1 + bisect_left(range(n + 1, MOST_SEEDS + 1), 0.5, key=chance)
