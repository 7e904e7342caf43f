"""Forecast when a test after every seed decides a claim.

The differences of further seeds are drawn from a normal distribution whose mean and deviation are drawn from
their posterior with Jeffreys' prior (σ² = (n − 1)·s²/χ², μ = mean + z·σ/√n). The test itself then judges each
of these futures. They only choose which seeds to run; no verdict depends on them.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from ..intervals import moments
from .count_test import Floats

_DRAWS = 1000  # futures; the standard error of a probability is at most 1.6%
_FAR = 1e300  # a difference more extreme than any measured one


class Forecast(NamedTuple):
    """The expected course of a test after every seed.

    Attributes:
        decided: Probability of a decision by the last seed.
        expected: Expected number of seeds at the end, decided or not.
        earliest: Minimum number of seeds for a decision; the maximum number if no decision is possible.
    """

    decided: float
    expected: float
    earliest: int


NO_FORECAST = Forecast(0.0, 0.0, 0)
"""The forecast without a test after every seed, or after its decision."""


@cache
def _draws(most: int) -> tuple[Floats, Floats, Floats]:
    """Return uniform draws [draw, 1], normal draws [draw, 1], and normal draws [draw, most].

    Normal draws are in pairs of opposite sign, so that negated differences have the same forecast.
    """
    generator = np.random.default_rng(0)
    uniform = generator.uniform(size=(_DRAWS // 2, 1))
    normals = generator.normal(size=(_DRAWS // 2, most + 1))
    normals = np.concatenate([normals, -normals])
    return np.tile(uniform, (2, 1)), normals[:, :1], normals[:, 1:]


def futures(values: Floats, most: int, effect: float | None = None) -> Floats:
    """Continue differences up to a number of seeds.

    Args:
        values: Differences so far, [seeds].
        effect: Mean of further differences with a standard deviation of 1; None to draw both.

    Returns:
        [future, most]: first the most extreme futures (all further differences far above, far below, or 0),
        then the drawn ones; with fewer than two seeds, only the extreme ones.
    """
    from scipy.special import chdtri

    n = len(values)
    further = np.repeat([[_FAR], [-_FAR], [0.0]], most - n, axis=1)
    normals = _draws(most)[2][:, : further.shape[1]]
    if effect is not None:
        further = np.concatenate([further, effect + normals])
    elif n > 1:
        largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
        mean, std = moments(np.nan_to_num(values, nan=0.0, posinf=largest, neginf=-largest).tolist())
        uniform, normal, _ = _draws(most)
        sigma = std * np.sqrt((n - 1) / chdtri(n - 1, uniform))
        drawn = mean + sigma * (normal / math.sqrt(n) + normals)
        further = np.concatenate([further, drawn])
    return np.concatenate([np.tile(values, (len(further), 1)), further], axis=1)


def ended(p_values: Floats, level: float, seeds: int) -> Forecast:
    """Summarize when futures are decided.

    Args:
        p_values: Of the futures from `futures`, [future, look].
        level: Level of the claim.
        seeds: Number of seeds so far.
    """
    most = p_values.shape[1]
    is_decided = p_values <= level
    ends = np.where(is_decided.any(axis=1), is_decided.argmax(axis=1) + 1, most)
    earliest, drawn = max(int(ends[:3].min()), min(seeds + 1, most)), slice(3, None)
    if len(ends) == 3:
        return Forecast(1.0, float(most), earliest)
    decided, expected = is_decided[drawn].any(axis=1).mean(), ends[drawn].mean()
    return Forecast(float(decided), float(expected), earliest)
