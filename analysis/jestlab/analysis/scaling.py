"""Scaling laws: fit y = c + a · x^(−b) to the results of several sizes, with intervals that extrapolate.

For a given exponent b, the law is linear in c and a, so the least-squares fit to the means over seeds is a
search over b alone (variable projection: Golub and Pereyra, SIAM J. Numer. Anal. 1973). The search includes
negative exponents: without them, intervals would be wrong where the true exponent is close to 0.

Intervals are profile intervals (Seber and Wild, "Nonlinear Regression", 1989, section 5.2.2): they contain
the values with which a law fits almost as well as the best one. The tolerance is Student's t of one number
per seed: its results in the direction in which the value moves with them. So whole seeds are the replicates.
Results of a seed may be correlated over sizes, and sizes may differ in noise. A bootstrap of few seeds is too
narrow, and pooled variances are wrong if noise depends on size. `tests/simulation/scaling.py` measures it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from .errors import NotYet

Floats = npt.NDArray[np.float64]

BAND = 0.9
"""Confidence level of the intervals of scaling laws."""

_RANGE = (-6.0, 30.0)  # of the steepness
_STEPS = 1500  # on each side of the best steepness
_FAR = 1e6  # u of a size at which only the offset is left


class Interval(NamedTuple):
    """An estimate and the ends of its interval; NaN or infinite if unknown."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PowerLaw:
    """A power law with offset from `fit`. Sizes are scaled: their logarithms u have mean 0 and range 1.

    Attributes:
        sizes: x, ascending, [k].
        values: y of each seed at each size, [n, k].
    """

    sizes: Floats
    values: Floats

    def exponent(self, confidence: float = BAND) -> Interval:
        """Return b. If the lower end is infinite, b isn't identified, and nothing can be predicted."""
        low, high = self._grid[self._fits[3] <= self._rooms(confidence)[0]][[0, -1]]
        low, high = (math.copysign(math.inf, end) if end in _RANGE else float(end) for end in (low, high))
        return Interval(*(end / self._span for end in (self.steepness, low, high)))

    def offset(self, confidence: float = BAND) -> Interval:
        """Return c, which is unknown if b may be 0: then, c and a compensate each other."""
        if self.steepness > 1e-3:
            near = self._grid[self._fits[3] <= self._rooms(confidence, [_FAR])[1]]
            if near[0] > 0:
                return Interval(*self._at([_FAR], confidence)[:, 0].tolist())
        return Interval(math.nan, math.nan, math.nan)

    def at(self, x: npt.ArrayLike, confidence: float = BAND) -> Floats:
        """Return the law and the ends of its interval at sizes x: [3, m]."""
        return self._at(self._scaled(x), confidence)

    @cached_property
    def steepness(self) -> float:
        """The best exponent of e^u; an end of the range if the search doesn't converge."""
        grid = np.linspace(*_RANGE, _STEPS)
        for _ in range(6):
            best = int(self._lines(grid)[3].argmin())
            steepness = float(grid[best])
            grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 41)
        return steepness

    @cached_property
    def _grid(self) -> Floats:
        """The range of the steepness, dense around the best one."""
        below, above = (np.geomspace(1e-7, abs(end - self.steepness), _STEPS) for end in _RANGE)
        grid = np.concatenate([self.steepness - below[::-1], [self.steepness], self.steepness + above])
        grid[[0, -1]] = _RANGE
        return grid

    @cached_property
    def _fits(self) -> tuple[Floats, ...]:
        """The lines of the grid, with the excess over the least squares instead of the squares."""
        *lines, squares = self._lines(self._grid)
        return (*lines, squares - squares[_STEPS])

    @property
    def _span(self) -> float:
        return math.log(self.sizes[-1] / self.sizes[0])

    def _scaled(self, x: npt.ArrayLike) -> Floats:
        logs: Floats = (np.log(x) - np.log(self.sizes).mean()) / self._span
        return logs

    def _student(self, confidence: float) -> float:
        return float(stdtrit(len(self.values) - 1, 0.5 + confidence / 2))

    def _lines(self, steepness: npt.ArrayLike) -> tuple[Floats, ...]:
        """Fit a line over the basis of each steepness; return center, slope, squares of x, squares left."""
        powers, y = _basis(steepness, self._scaled(self.sizes)), self.values.mean(axis=0)
        center = powers.mean(axis=-1)
        away, heights = powers - center[..., None], y - y.mean()
        spread = (away**2).sum(axis=-1)
        slope = away @ heights / spread
        return center, slope, spread, ((heights - slope[..., None] * away) ** 2).sum(axis=-1)

    def _rooms(self, confidence: float, u: npt.ArrayLike = ()) -> Floats:
        """Return by how much squares may exceed the least: for the steepness, and for the law at each u.

        It is Student's t² times the variance of the means in the direction that moves the value.
        """
        t, slope = self.steepness, self._lines(self.steepness)[1]

        def derivatives(u: npt.ArrayLike) -> Floats:
            of_basis = (_basis(t + 1e-4, u) - _basis(t - 1e-4, u)) / 2e-4
            return np.stack([np.ones(np.shape(u)), _basis(t, u), slope * of_basis], axis=-1)

        inverse = np.linalg.pinv(derivatives(self._scaled(self.sizes)))
        moved = np.vstack([inverse[2], derivatives(u) @ inverse])
        lengths = np.maximum(np.linalg.norm(moved, axis=1), 1e-300)
        variances: Floats = (self.values @ moved.T / lengths).var(axis=0, ddof=1) / len(self.values)
        return self._student(confidence) ** 2 * variances

    def _at(self, u: npt.ArrayLike, confidence: float) -> Floats:
        """Return the law and the ends of its interval at u [m]: [3, m].

        For each steepness, the least squares of a law through a value are quadratic in that value.
        """
        rooms = self._rooms(confidence, u)[1:]
        is_near = self._fits[3] <= rooms.max()
        center, slope, spread, excess = (part[is_near][:, None] for part in self._fits)
        away = _basis(self._grid[is_near], u) - center
        half = np.sqrt(np.maximum(rooms - excess, 0.0) * (1 / len(self.sizes) + away**2 / spread))
        law, outside = self.values.mean() + slope * away, np.where(excess <= rooms, 0.0, math.inf)
        ends = (law - half + outside).min(axis=0), (law + half - outside).max(axis=0)
        return np.stack([law[excess[:, 0] == 0][0], *ends])


def fit(sizes: npt.ArrayLike, values: npt.ArrayLike) -> PowerLaw:
    """Fit a power law with offset by least squares to the means over seeds.

    Args:
        sizes: x above 0, [k], all different.
        values: y, [n seeds, k sizes], finite.

    Raises:
        NotYet: There are too few sizes or seeds, or the fit doesn't converge.
    """
    x, y = np.asarray(sizes, float), np.asarray(values, float)
    if len(x) < 3 or len(y) < 2:
        has = f"{len(x)} size{'s' * (len(x) != 1)} and {len(y)} such seed{'s' * (len(y) != 1)}"
        raise NotYet(f"{has}: a fit takes 3 sizes, and 2 seeds that completed at all of them")
    order = np.argsort(x)
    law = PowerLaw(x[order], y[:, order])
    if not _RANGE[0] < law.steepness < _RANGE[1] or np.ptp(law.values.mean(axis=0)) == 0:
        raise NotYet("the fit doesn't converge, since no power law with offset fits best: add sizes or seeds")
    return law


def _basis(steepness: npt.ArrayLike, u: npt.ArrayLike) -> Floats:
    """Return (e^(−t·u) − 1) / t, or its limit −u at t = 0, for t [g] and u [m]: [g, m]."""
    t = np.asarray(steepness, float)[..., None]
    t = np.where(np.abs(t) < 1e-8, 1e-8, t)  # near the limit, without a division by 0
    powers: Floats = np.expm1(-t * np.asarray(u, float)) / t
    return powers
