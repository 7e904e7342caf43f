"""Simulated scaling laws: how often intervals of extrapolated laws contain the true value.

Each study measures a power law at a few sizes with a few seeds. The 90% interval at ten times the largest
size should contain the true law in 90% of the studies, and so should those of the exponent and of the mean of
new runs. Claims about the exponent should be wrong in at most 5%.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from jestlab.analysis.errors import NotYet
from jestlab.analysis.scaling import PowerLaw, fit

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Row = dict[str, Any]
"""A kind of study, and what came of it."""

LADDERS = ((4, 3), (5, 5), (6, 8))
"""Numbers of sizes and of seeds."""

EXPONENTS = (0.2, 0.5, 0.8)

NOISE = (0.01, 0.05, 0.1)
"""Standard deviations of a seed, relative to the difference between the smallest and the largest size."""

SHAPES = ("equal", "of the seed", "less at large sizes", "more at large sizes")
"""Of noise: the same at all sizes, half of its variance shared by the sizes of a seed, or by size."""

TO = 10.0
"""The law is predicted at this many times the largest size."""


def noise(generator: np.random.Generator, shape: str, seeds: int, sizes: int) -> Floats:
    """Draw noise, [seeds, sizes]; its standard deviation at the middle size is about 1."""
    drawn = generator.normal(size=(seeds, sizes))
    if shape == "of the seed":
        return (drawn + generator.normal(size=(seeds, 1))) / math.sqrt(2)
    ends = {"less at large sizes": (2.0, 0.5), "more at large sizes": (0.5, 2.0)}.get(shape, (1.0, 1.0))
    return drawn * np.linspace(*ends, sizes)


def simulated(
    sizes: int,
    seeds: int,
    exponent: float,
    relative: float,
    shape: str = "equal",
    *,
    studies: int,
    seed: int = 0,
) -> Row:
    """Simulate studies of one kind.

    Args:
        sizes: Number of sizes, each twice the one before.
        seeds: Number of seeds, and of new runs.
        exponent: Of the law.
        relative: Noise of a seed, relative to the range of the law.
        shape: One of `SHAPES`.
        studies: How many.
        seed: Of the generator.

    Returns:
        The arguments; unknown, the share of studies whose law isn't identified, which are left out of what
        follows; the shares of studies in which the interval at `TO` (law), that of the exponent, and that of
        the new runs contain the true value; and those in which a claim about the exponent is wrong.
    """
    generator = np.random.default_rng(seed)
    x = 2.0 ** np.arange(sizes)
    law = 3.0 * x**-exponent
    far, deviation = TO * x[-1], relative * (law[0] - law[-1])
    true, outcomes = 3.0 * far**-exponent, []
    for _ in range(studies):
        values = 1.0 + law + deviation * noise(generator, shape, seeds, sizes)
        new = true + deviation * noise(generator, shape, seeds, sizes)[:, -1].mean()
        try:
            fitted = fit(x, values)
        except NotYet:
            continue
        if fitted.exponent().low > -math.inf:
            outcomes.append(_outcome(fitted, exponent, far, 1.0 + true, 1.0 + new, seeds))
    shares = np.mean(outcomes, axis=0).tolist()
    names = ("law", "exponent_covered", "new_runs", "wrong_above", "wrong_below")
    given = {"sizes": sizes, "seeds": seeds, "exponent": exponent, "noise": relative, "shape": shape}
    return given | {"unknown": 1 - len(outcomes) / studies} | dict(zip(names, shares, strict=True))


def _outcome(
    fitted: PowerLaw, exponent: float, far: float, true: float, new: float, seeds: int
) -> list[bool]:
    _, low, high = fitted.at([far])[:, 0]
    of_exponent, of_new = fitted.exponent(), fitted.new_runs(far, seeds)
    return [
        low <= true <= high,
        of_exponent.low <= exponent <= of_exponent.high,
        of_new.low <= new <= of_new.high,
        *(fitted.p_value(exponent, above=above) <= 0.05 for above in (True, False)),
    ]


def table(studies: int) -> list[Row]:
    """Simulate all that the documentation shows."""
    kinds = [*product(LADDERS, EXPONENTS, NOISE, SHAPES[:1]), *product(LADDERS, (0.5,), (0.05,), SHAPES[1:])]
    return [
        simulated(sizes, seeds, exponent, relative, shape, studies=studies, seed=seed)
        for seed, ((sizes, seeds), exponent, relative, shape) in enumerate(kinds)
    ]
