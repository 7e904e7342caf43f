"""Statistics over seeds: confidence intervals of means, and medians where some seeds don't reach a target.

Every interval of claims, tables, and figures is Student's t at the level `CONFIDENCE`, from `half_widths`;
only the bounds of a verdict, in `claims.evidence`, are at the error of the claim (`claims.claim.Family`).
`direction` decides whether a difference is significant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
"""Confidence level of every interval in tables, claims, and figures."""

INTERVAL = f"{CONFIDENCE:.0%} confidence interval"
"""Name of the intervals in notes under tables."""

CI = f"{CONFIDENCE:.0%} CI"
"""Short name of the intervals in sentences and on charts."""


# Sums of values above HUGE would overflow: such values are multiplied by _SCALE, a power of two, first.
HUGE, _SCALE = 1e300, 2.0**-64


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Compute mean and sample standard deviation (n − 1) of at least one value.

    The deviation of a single value is NaN. If a value is infinite or NaN, the mean is too, and the deviation
    is NaN.
    """
    if not all(map(math.isfinite, values)):
        return sum(values) / len(values), math.nan
    scale = _SCALE if max(map(abs, values)) > HUGE else 1.0
    scaled = [scale * value for value in values]
    return fmean(scaled) / scale, stdev(scaled) / scale if len(values) > 1 else math.nan


def of_groups(values: pd.Series[float], groups: pd.Series[Any] | list[pd.Series[Any]]) -> pd.DataFrame:
    """Compute mean, sample std (n − 1), and count of each group, and low and high, the ends of its interval.

    NaN values are left out. The std and the ends of a single value are NaN. Values are scaled by a power of
    two, which is exact, so that sums and squares don't overflow or underflow.
    """
    largest = values.abs().where(values.abs() < math.inf).groupby(groups).transform("max").fillna(1.0)
    exponents = np.frexp(largest)[1]
    scaled = np.ldexp(values, -exponents).groupby(groups, sort=False)
    back = exponents.groupby(groups, sort=False).first()
    with np.errstate(over="ignore"):
        mean, std = (np.ldexp(moment, back) for moment in (scaled.mean(), scaled.std()))
        table: pd.DataFrame = mean.to_frame("mean").assign(std=std, count=scaled.count())
        half = half_widths(std, table["count"])
        return table.assign(low=mean - half, high=mean + half)


def half_widths(
    std: npt.ArrayLike, n: npt.ArrayLike, confidence: float = CONFIDENCE
) -> npt.NDArray[np.float64]:
    """Compute half the width of the confidence interval of means: t · s / √n, Student's t with n − 1 degrees.

    Args:
        std: Standard deviations of samples (n − 1), [m].
        n: Sizes of the samples, [m].
        confidence: Probability that the interval contains the true mean, if samples are normal.

    Returns:
        [m]; NaN where n < 2.
    """
    sizes = np.asarray(n, float)
    if not (sizes > 1).any():
        return np.full(sizes.shape, math.nan)
    from scipy.special import stdtrit

    sizes = np.where(sizes > 1, sizes, math.nan)
    half: npt.NDArray[np.float64] = stdtrit(sizes - 1, 0.5 + confidence / 2) * std / np.sqrt(sizes)
    return half


class Gap(NamedTuple):
    """Mean difference of runs with equal seeds, the ends of its interval, and the number of seeds."""

    mean: float
    low: float
    high: float
    seeds: int


def paired(ours: pd.Series[float], theirs: pd.Series[float]) -> Gap:
    """Compare two series of values, indexed by seed, over the seeds that both have; NaN ends if unknown."""
    ours, theirs = ours.align(theirs, join="inner")
    return gap_of((ours - theirs).tolist())


def gap_of(differences: Sequence[float]) -> Gap:
    """Summarize the differences of seeds."""
    mean, std = moments(differences) if differences else (math.nan, math.nan)
    half = float(half_widths([std], [len(differences)])[0])
    return Gap(mean, mean - half, mean + half, len(differences))


def direction(low: float, high: float, value: float = 0.0) -> int:
    """Decide whether a difference is significant, by its confidence interval; NaN ends are unknown.

    Returns:
        1 if the whole interval is above the value, −1 if it is below, and 0 if it isn't significant.
    """
    return int(low > value) - int(high < value)


def tail(distance: float, std: float, n: int) -> float:
    """Compute the one-sided p-value of Student's t-test of a sample's mean.

    Args:
        distance: Difference between the mean of the sample and the tested mean.
        std: Standard deviation of the sample (n − 1).
        n: Size of the sample, at least 2.
    """
    from scipy.special import stdtr

    if std == 0:
        return 0.0 if distance > 0 else 1.0
    return float(stdtr(n - 1, -distance * math.sqrt(n) / std))


def censored_median(values: Iterable[float]) -> float:
    """Compute the median over seeds of factors; NaN (target not reached) ranks below every other factor.

    The median is NaN if it falls on a seed that did not reach the target, or without values.
    """
    known = [-math.inf if math.isnan(value) else float(value) for value in values]
    middle = median(known) if known else -math.inf
    return math.nan if middle == -math.inf else middle


def to_match(values: Iterable[float], bounds: Iterable[float]) -> tuple[float, float]:
    """Compute bounds of the median effort to reach a target; equal ones if enough seeds reach it.

    A seed that doesn't reach the target (NaN) would take more effort than its bound, the total that it spent.
    So the median is at least the median with bounds in place of NaN, and at most the median with infinity in
    place of NaN.
    """
    pairs = list(zip(values, bounds, strict=True))
    if not pairs or any(math.isnan(bound) for _, bound in pairs):
        return math.nan, math.nan
    least = [bound if math.isnan(value) else value for value, bound in pairs]
    most = [math.inf if math.isnan(value) else value for value, _ in pairs]
    return median(least), median(most)
