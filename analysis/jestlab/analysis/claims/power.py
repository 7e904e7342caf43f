"""How many seeds Student's t needs: before a launch for an effect of some size, and after some seeds."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from .looks import MOST_SEEDS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_GRID = 15  # quantiles of each posterior


class Needed(NamedTuple):
    """How many seeds in all would decide a claim, as far as the seeds so far tell.

    Attributes:
        even: The number with which it is decided with a probability of ½; None above `MOST_SEEDS`.
        likely: With a probability of .8.
    """

    even: int | None
    likely: int | None


def power(effect: float, n: int, error: float = 0.05) -> float:
    """Probability with which n seeds decide that an effect is there, on the side where it is.

    Args:
        effect: Mean of the paired differences over their standard deviation, at least 0.
        n: Number of seeds.
        error: Of the two-sided interval of Student's t.
    """
    if n < 2:
        return 0.0
    from scipy.special import nctdtr

    return 1.0 - float(nctdtr(n - 1, effect * math.sqrt(n), _critical(error)[n]))


def needed(margin: float, std: float, n: int, error: float) -> Needed:
    """Predict how many seeds decide a claim that n seeds did not.

    Mean and deviation of all seeds are not those of the first n: both are drawn from their posterior by
    Jeffreys' prior (σ² = (n − 1)·s²/χ², μ = margin + z·σ/√n), and the probability of a decision by one look
    at N new seeds is averaged over them. The number of seeds that would decide if mean and spread stayed the
    same is enough in 49 to 91 of 100 cases only.

    Args:
        margin: How far the mean is from where the verdict would change, at least 0.
        std: Standard deviation of the differences (n − 1).
        n: Number of seeds so far.
        error: Of the two-sided interval.
    """
    import numpy as np
    from scipy.special import chdtri, nctdtr, ndtri

    if n < 2 or std <= 0:
        return Needed(None, None)
    quantiles = (np.arange(_GRID) + 0.5) / _GRID
    sigma = std * np.sqrt((n - 1) / chdtri(n - 1, quantiles))[:, None]
    mu = margin + ndtri(quantiles)[None, :] * sigma / math.sqrt(n)
    effect = (mu / sigma).ravel()
    critical = _critical(error)

    @cache
    def chance(size: int) -> float:
        """Probability of a decision, on either side, by one look at so many seeds."""
        shift, edge = effect * math.sqrt(size), critical[size]
        decided = 1 - nctdtr(size - 1, shift, edge) + nctdtr(size - 1, shift, -edge)
        return float(np.nan_to_num(decided, nan=1.0).mean())

    def first(probability: float) -> int | None:
        sizes = range(n + 1, MOST_SEEDS + 1)
        place = bisect_left(sizes, probability, key=chance)
        return sizes[place] if place < len(sizes) else None

    return Needed(first(0.5), first(0.8))


@cache
def _critical(error: float) -> npt.NDArray[np.float64]:
    """Quantile of Student's t of each number of seeds up to `MOST_SEEDS`; NaN below two."""
    import numpy as np
    from scipy.special import stdtrit

    sizes = np.arange(MOST_SEEDS + 1.0)
    return np.where(sizes > 1, stdtrit(np.maximum(sizes - 1, 1), 1 - error / 2), np.nan)
