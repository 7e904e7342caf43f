"""The power of one look by Student's t."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import nctdtr, stdtrit


def power(effect: npt.ArrayLike, n: int, error: float = 0.05) -> npt.NDArray[np.float64]:
    """Return the probability that a t-test of n seeds finds that the mean of paired differences is positive.

    Args:
        effect: Mean of the differences divided by their standard deviation.
        n: Number of seeds, at least 2.
        error: Level of the one-sided test.
    """
    shift = np.multiply(effect, math.sqrt(n))
    probability = 1.0 - nctdtr(n - 1, shift, stdtrit(n - 1, 1 - error))
    return np.where(np.isnan(probability), shift > 0, probability)  # SciPy returns NaN in some far tails
