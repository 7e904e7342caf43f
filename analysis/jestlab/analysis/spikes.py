"""Spikes of a training metric: stretches that stick out of the noise of their run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

FAR = 6.0
"""Robust standard deviations above the running median that make a spike."""

_WINDOW = 25  # a running median spans one part in so many of a run, so that no spike moves it
_LEAST_WINDOW = 5  # points
FEWEST = 50  # logged points of a run in which spikes are sought: of fewer the spread says too little


def spike_count(values: pd.Series[float]) -> float:
    """How many spikes a run has; points next to each other are one.

    Args:
        values: Of the metric, in the order of the steps, none missing.

    Returns:
        NaN where too little was logged to tell.
    """
    if len(values) < FEWEST:
        return math.nan
    is_spike = _is_spike(values - running_median(values))
    return float((is_spike & ~is_spike.shift(fill_value=False)).sum())


def running_median(values: pd.Series[float]) -> pd.Series[float]:
    """The median about each point, over a window that no spike fills."""
    window = max(_LEAST_WINDOW, len(values) // _WINDOW)
    found: pd.Series[float] = values.rolling(window, center=True, min_periods=1).median()
    return found


def _is_spike(deviations: pd.Series[float]) -> pd.Series[bool]:
    """By the median absolute deviation, which spikes themselves do not move."""
    spread = 1.4826 * float((deviations - deviations.median()).abs().median())
    found: pd.Series[bool] = deviations > FAR * spread if spread > 0 else deviations > math.inf
    return found
