"""The number of seeds that Student's t-test needs: for an effect size, and given some seeds."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING

from .claim import MOST_SEEDS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_GRID = 15  # quantiles of each posterior


def power(effect: float, n: int, error: float = 0.05) -> float:
    """Return the probability that n seeds show an effect in its direction.

    Args:
        effect: Mean of the paired differences over their standard deviation, at least 0.
        n: Number of seeds.
        error: Level of the one-sided test.
    """
    if n < 2:
        return 0.0
    from scipy.special import nctdtr

    return 1.0 - float(nctdtr(n - 1, effect * math.sqrt(n), _critical(error)[n]))


def needed(margin: float, std: float, n: int, error: float) -> int:
    """Predict the number of seeds that have a 50% chance to decide a claim that n seeds did not decide.

    The true mean and deviation differ from those of n seeds. Both are drawn from their posterior with
    Jeffreys' prior (σ² = (n − 1)·s²/χ², μ = margin + z·σ/√n), and the probability of a decision by one look
    at N new seeds is averaged over them.

    Args:
        margin: Distance of the mean from the threshold of the claim, at least 0.
        std: Standard deviation of the differences (n − 1).
        n: Number of seeds so far.
        error: Level of each one-sided test.

    Returns:
        The total number of seeds; more than `MOST_SEEDS` if so many are not enough.
    """
    import numpy as np
    from scipy.special import chdtri, nctdtr, ndtri

    if n < 2 or std <= 0:
        return MOST_SEEDS + 1
    quantiles = (np.arange(_GRID) + 0.5) / _GRID
    sigma = std * np.sqrt((n - 1) / chdtri(n - 1, quantiles))[:, None]
    mu = margin + ndtri(quantiles)[None, :] * sigma / math.sqrt(n)
    effect = (mu / sigma).ravel()

    def chance(size: int) -> float:
        shift, edge = effect * math.sqrt(size), _critical(error)[size]
        decided = 1 - nctdtr(size - 1, shift, edge) + nctdtr(size - 1, shift, -edge)
        return float(np.nan_to_num(decided, nan=1.0).mean())

    return n + 1 + bisect_left(range(n + 1, MOST_SEEDS + 1), 0.5, key=chance)


@cache
def _critical(error: float) -> npt.NDArray[np.float64]:
    """Return the one-sided quantile of Student's t for each number of seeds up to `MOST_SEEDS`."""
    import numpy as np
    from scipy.special import stdtrit

    sizes = np.arange(MOST_SEEDS + 1.0)
    return np.where(sizes > 1, stdtrit(np.maximum(sizes - 1, 1), 1 - error), np.nan)
