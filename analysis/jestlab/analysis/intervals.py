"""What a handful of seeds says of the rest: intervals of means, medians of what may not have been reached."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95


class Reach(NamedTuple):
    """What it takes to get somewhere, over seeds of which some may not have got there.

    Attributes:
        value: The median, or what it is at least, if `most` is more.
        most: What the median is at most; infinite where too many seeds did not get there.
        low: The least that any seed took, or spent without getting there.
        high: The greatest; infinite where one did not get there.
    """

    value: float
    most: float
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


def to_match(values: Iterable[float], bounds: Iterable[float]) -> Reach:
    """Median and range of an effort that some seeds have not come to the end of.

    With n seeds the range from the least to the greatest holds the median of all seeds with probability
    1 − 2^(1−n), whatever the distribution: .75 for three, .94 for five. An effort that was not reached lies
    anywhere above its bound: the median lies between those with the bound and with infinity in its place.

    Args:
        values: What each seed took; NaN where it did not get there.
        bounds: What each seed spent in all.
    """
    pairs = list(zip(values, bounds, strict=True))
    if not pairs or any(math.isnan(bound) for _, bound in pairs):
        return Reach(*[math.nan] * 4)
    least = sorted(bound if math.isnan(value) else float(value) for value, bound in pairs)
    most = sorted(math.inf if math.isnan(value) else float(value) for value, _ in pairs)
    return Reach(_middle(least), _middle(most), least[0], most[-1])


def _middle(ordered: list[float]) -> float:
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
