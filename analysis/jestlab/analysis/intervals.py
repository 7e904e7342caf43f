"""Confidence intervals, as of claims: of means over seeds; medians of efforts that some seeds did not reach.

`half_widths` is the interval of claims and of Δ in tables: Student's t, at `CONFIDENCE`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

CONFIDENCE = 0.95

INTERVAL = f"{CONFIDENCE:.0%} confidence interval"
"""The same in words, for notes under tables."""


class Reach(NamedTuple):
    """Effort to reach a target, over seeds of which some may not have reached it.

    Attributes:
        value: The median, or a lower bound of it if `most` is greater.
        most: Upper bound of the median; infinite if too many seeds did not reach the target.
        low: Least effort of any seed, whether it reached the target or not.
        high: Greatest effort; infinite if a seed did not reach the target.
    """

    value: float
    most: float
    low: float
    high: float


# Sums of values above the first would overflow: values are multiplied by the second, which is exact.
HUGE, _SCALE = 1e300, 2.0**-64


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Compute mean and sample standard deviation (n − 1).

    Args:
        values: At least one. The deviation is NaN of one, and both are infinite or NaN if a value is, or if
            they are too large for a number.
    """
    if not all(map(math.isfinite, values)):
        return sum(values) / len(values), math.nan
    scale = _SCALE if max(map(abs, values)) > HUGE else 1.0
    scaled = [scale * value for value in values]
    return fmean(scaled) / scale, stdev(scaled) / scale if len(values) > 1 else math.nan


def of_groups(values: pd.Series[float], groups: pd.Series[Any]) -> pd.DataFrame:
    """Compute mean, sample standard deviation (n − 1), and count of the known values of each group.

    Values are scaled by a power of two, which is exact, so that sums and squares neither overflow nor vanish.
    """
    import numpy as np

    largest = values.abs().where(values.abs() < math.inf).groupby(groups).transform("max").fillna(1.0)
    exponents = np.frexp(largest)[1]
    scaled = np.ldexp(values, -exponents).groupby(groups, sort=False)
    back = exponents.groupby(groups, sort=False).first()
    with np.errstate(over="ignore"):
        mean, std = (np.ldexp(each, back) for each in (scaled.mean(), scaled.std()))
    found: pd.DataFrame = mean.to_frame("mean").assign(std=std, count=scaled.count())
    return found


def half_widths(
    std: npt.ArrayLike, n: npt.ArrayLike, confidence: float = CONFIDENCE
) -> npt.NDArray[np.float64]:
    """Compute half the width of the confidence interval of means: t · s / √n, Student's t with n − 1 degrees.

    Args:
        std: Standard deviations of samples (n − 1), [m].
        n: Their sizes, [m].
        confidence: Probability with which the interval holds the mean of normal samples.

    Returns:
        [m], to be added to and subtracted from the mean for the interval; NaN where n < 2.
    """
    import numpy as np

    sizes = np.asarray(n, float)
    if not (sizes > 1).any():
        return np.full(sizes.shape, math.nan)
    from scipy.special import stdtrit

    sizes = np.where(sizes > 1, sizes, math.nan)
    half: npt.NDArray[np.float64] = stdtrit(sizes - 1, 0.5 + confidence / 2) * std / np.sqrt(sizes)
    return half


def direction(low: float, high: float, value: float = 0.0) -> int:
    """Decide whether a difference is significant.

    Args:
        low: Lower end of its confidence interval; NaN if unknown, as for one seed.
        high: Upper end.
        value: The value to compare with.

    Returns:
        1 if the whole interval is above the value, −1 if it is below, and 0 if it isn't significant.
    """
    return int(low > value) - int(high < value)


def tail(distance: float, std: float, n: int) -> float:
    """Compute the one-sided p-value of Student's t.

    Args:
        distance: By how much the mean of a sample exceeds the one that is tested.
        std: Standard deviation of the sample (n − 1).
        n: Its size, at least 2.
    """
    from scipy.special import stdtr

    if std == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stdtr(n - 1, -distance * math.sqrt(n) / std))


def range_holds(n: int) -> float:
    """Probability with which the range of n seeds, least to greatest, holds the median of all seeds.

    Whatever the distribution: each seed is above the median with probability ½, and all are on one side of it
    with 2 · ½ⁿ.
    """
    return 1 - 2.0 ** (1 - n) if n > 0 else 0.0


def censored_median(values: Iterable[float]) -> float:
    """Compute the median of factors, where NaN (not reached) counts as less than any that was reached.

    Args:
        values: One a seed, NaN where not reached.

    Returns:
        The median; NaN if it falls among those not reached, or there are none.
    """
    known = [-math.inf if math.isnan(value) else float(value) for value in values]
    middle = median(known) if known else -math.inf
    return math.nan if middle == -math.inf else middle


def to_match(values: Iterable[float], bounds: Iterable[float]) -> Reach:
    """Compute median and range of the effort to reach a target, which some seeds did not reach.

    With n seeds the range from the least to the greatest holds the median of all seeds with probability
    1 − 2^(1−n), whatever the distribution: .75 for three, .94 for five. An effort that was not reached lies
    anywhere above its bound: the median lies between those with the bound and with infinity in its place.

    Args:
        values: Effort of each seed to reach the target; NaN if it did not.
        bounds: Total effort of each seed.
    """
    pairs = list(zip(values, bounds, strict=True))
    if not pairs or any(math.isnan(bound) for _, bound in pairs):
        return Reach(*[math.nan] * 4)
    least = [bound if math.isnan(value) else float(value) for value, bound in pairs]
    most = [math.inf if math.isnan(value) else float(value) for value, _ in pairs]
    return Reach(median(least), median(most), min(least), max(most))
