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

import math

import numpy as np
import numpy.typing as npt

from .errors import NotYet
from .intervals import half_widths

Floats = npt.NDArray[np.float64]

BAND = 0.9
"""Confidence level of the intervals of scaling laws."""

_RANGE = (-6.0, 30.0)  # of the steepness
_STEPS = 1500  # on each side of the best steepness
_FAR = 1e6  # u of a size at which only the offset is left
_REMEDY = "add sizes or seeds"


class PowerLaw:
    """A power law with offset, fitted by least squares to the means over seeds.

    Sizes are scaled: their logarithms u have mean 0 and range 1. The exponent of e^u is the steepness.

    Attributes:
        exponent: b and the ends of its interval; the upper end may be infinite.
        offset: c and the ends of its interval, or NaN if b may be 0: then, c and a compensate each other.
        note: A sentence on b or c if the results don't bound it; else empty.
    """

    def __init__(self, sizes: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Fit a law.

        Args:
            sizes: x above 0, ascending, [k].
            values: y, [n seeds, k sizes], finite.

        Raises:
            NotYet: There are too few sizes or seeds, the fit doesn't converge, or b isn't identified.
        """
        self._sizes, self._values = np.asarray(sizes, float), np.asarray(values, float)
        n, k = self._values.shape
        if n < 2 or k < 3:
            raise NotYet(f"a fit takes 3 sizes and 2 seeds that completed at all of them, not {k} and {n}")
        grid = np.linspace(*_RANGE, _STEPS)
        for _ in range(6):
            best = int(self._lines(grid)[-1].argmin())
            steepness = float(grid[best])
            grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 41)
        if not _RANGE[0] < steepness < _RANGE[1] or np.ptp(self._values.mean(axis=0)) == 0:
            raise NotYet(f"the fit doesn't converge, since no power law with offset fits best: {_REMEDY}")
        below, above = (np.geomspace(1e-7, abs(end - steepness), _STEPS) for end in _RANGE)
        grid = np.concatenate([steepness - below[::-1], [steepness], steepness + above])
        *lines, squares = self._lines(grid)
        excess = squares - squares[_STEPS]
        self._profile = np.stack([grid, *lines, excess])
        is_near = excess <= self._rooms(np.eye(3)[2:])
        if is_near[0]:
            raise NotYet(f"the exponent isn't identified, and nothing can be predicted: {_REMEDY}")
        span = math.log(self._sizes[-1] / self._sizes[0])
        low, high = (grid[is_near][[0, -1]] / span).tolist()
        self.exponent, self.offset, end = [steepness / span, low, high], 3 * [math.nan], [math.inf]
        self.note = f"the offset isn't identified, since the exponent may be 0: {_REMEDY}"
        if steepness > 1e-3 and excess[grid <= 0].min() > self._rooms(self._derivatives(end)):
            self.offset, self.note = self.at(end)[:, 0].tolist(), ""
        if is_near[-1]:
            self.exponent[2] = math.inf
            self.note = self.note or "the exponent has no upper bound, since only the smallest sizes differ"

    def at(self, x: npt.ArrayLike) -> Floats:
        """Return the law and the ends of its interval at sizes x [m]: [3, m].

        For each steepness, the least squares of a law through a value are quadratic in that value.
        """
        rooms = self._rooms(self._derivatives(x))
        is_near = self._profile[-1] <= rooms.max()
        grid, center, slope, spread, excess = self._profile[:, is_near, None]
        away = _basis(grid[:, 0], self._scaled(x)) - center
        half = np.sqrt(np.maximum(rooms - excess, 0.0) * (1 / len(self._sizes) + away**2 / spread))
        law, outside = self._values.mean() + slope * away, np.where(excess <= rooms, 0.0, math.inf)
        ends = (law - half + outside).min(axis=0), (law + half - outside).max(axis=0)
        return np.stack([law[excess[:, 0] == 0][0], *ends])

    def _scaled(self, x: npt.ArrayLike) -> Floats:
        logs = np.log(self._sizes)
        scaled: Floats = np.minimum((np.log(x) - logs.mean()) / np.ptp(logs), _FAR)
        return scaled

    def _lines(self, steepness: Floats) -> tuple[Floats, ...]:
        """Fit a line over the basis of each steepness; return center, slope, squares of x, squares left."""
        powers, y = _basis(steepness, self._scaled(self._sizes)), self._values.mean(axis=0)
        center = powers.mean(axis=-1)
        away, heights = powers - center[:, None], y - y.mean()
        spread = (away**2).sum(axis=-1)
        slope = away @ heights / spread
        return center, slope, spread, ((heights - slope[:, None] * away) ** 2).sum(axis=-1)

    def _derivatives(self, x: npt.ArrayLike) -> Floats:
        """Return the derivatives of the best law at sizes x [m] by c, a, and the steepness: [m, 3]."""
        u, (t, _, slope, *_) = self._scaled(x), self._profile[:, _STEPS]
        of_basis = (_basis(t + 1e-4, u) - _basis(t - 1e-4, u)) / 2e-4
        return np.stack([np.ones(u.shape), _basis(t, u), slope * of_basis], axis=-1)

    def _rooms(self, derivatives: Floats) -> Floats:
        """Return by how much squares may exceed the least, for values with these derivatives [m, 3].

        Its root is half the confidence interval of the means in the direction that moves the value.
        """
        moved = derivatives @ np.linalg.pinv(self._derivatives(self._sizes))  # by the means, [m, k]
        deviations = (self._values @ moved.T / np.linalg.norm(moved, axis=1)).std(axis=0, ddof=1)
        return half_widths(deviations, len(self._values), BAND) ** 2


def _basis(steepness: npt.ArrayLike, u: npt.ArrayLike) -> Floats:
    """Return (e^(−t·u) − 1) / t, or its limit −u at t = 0, for t [g] and u [m]: [g, m]."""
    t = np.asarray(steepness, float)[..., None]
    t = np.where(np.abs(t) < 1e-8, 1e-8, t)  # near the limit, without a division by 0
    powers: Floats = np.expm1(-t * np.asarray(u, float)) / t
    return powers
