"""What a handful of seeds says of the rest: intervals of means, medians of what may not have been reached."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A value between a lower and an upper bound."""

    value: float
    low: float
    high: float


def half_widths(std: pd.Series[float], n: pd.Series[int]) -> pd.Series[float]:
    """Half the width of the confidence interval of means: t · s / √n, with Student's t of n − 1 degrees.

    Args:
        std: Standard deviation of the sample (n − 1).
        n: Size of the sample.

    Returns:
        To be added to and subtracted from the mean for an interval of 95%; NaN where n < 2.
    """
    import numpy as np
    import pandas as pd

    if not (n > 1).any():
        return std * math.nan
    from scipy.special import stdtrit

    t = pd.Series(stdtrit((n - 1).clip(lower=1), 0.5 + CONFIDENCE / 2), index=n.index)
    return (t * std / np.sqrt(n)).where(n > 1)


def censored_median(values: Iterable[float]) -> float:
    """The median of factors, where NaN (not reached) counts as less than any that was reached.

    Args:
        values: One a seed, NaN where not reached.

    Returns:
        The median; NaN if it falls among those not reached, or there are none.
    """
    ordered = sorted(-math.inf if math.isnan(value) else float(value) for value in values)
    if not ordered:
        return math.nan
    middle = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return math.nan if -math.inf in middle else sum(middle) / 2


def to_match(values: Iterable[float], bounds: Iterable[float]) -> Interval:
    """Median and range of an effort that some seeds have not come to the end of.

    With n seeds the range from the least to the greatest holds the median of all seeds with probability
    1 − 2^(1−n), whatever the distribution: .75 for three, .94 for five. An effort that was not reached is
    known to be greater than its bound, and counts as infinite.

    Args:
        values: What each seed took; NaN where it did not get there.
        bounds: What each seed spent in all.

    Returns:
        Median, least and greatest; infinite where that seed did not get there. All NaN for no seed, or where
        an effort is unknown.
    """
    pairs = list(zip(values, bounds, strict=True))
    if not pairs or any(math.isnan(bound) for _, bound in pairs):
        return Interval(math.nan, math.nan, math.nan)
    ordered = sorted(math.inf if math.isnan(value) else float(value) for value, _ in pairs)
    middle = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return Interval(sum(middle) / 2, ordered[0], ordered[-1])
