"""Simulated scaling laws: how often intervals of extrapolated laws contain the true value.

Each study measures a power law at a few sizes with a few seeds. The 90% interval at ten times the largest
size should contain the true law in 90% of the studies, and so should that of the exponent. Claims about the
exponent should be wrong in at most 5%.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from jestlab.analysis.claims.evidence import Sample
from jestlab.analysis.claims.ladder import weights_of
from jestlab.analysis.errors import NotYet
from jestlab.analysis.scaling import PowerLaw

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
        seeds: Number of seeds.
        exponent: Of the law.
        relative: Noise of a seed, relative to the range of the law.
        shape: One of `SHAPES`.
        studies: How many.
        seed: Of the generator.

    Returns:
        The arguments; unknown, the share of studies whose law isn't identified, which are left out of what
        follows; the shares of studies in which the interval at `TO` (law) and that of the exponent contain
        the true value; and those of all studies in which a claim about the exponent is wrong.
    """
    generator = np.random.default_rng(seed)
    x = 2.0 ** np.arange(sizes)
    law = 3.0 * x**-exponent
    far, deviation = TO * x[-1], relative * (law[0] - law[-1])
    true, outcomes, verdicts = 3.0 * far**-exponent, [], []
    weights = np.array(weights_of(x.tolist(), exponent))
    for _ in range(studies):
        values = 1.0 + law + deviation * noise(generator, shape, seeds, sizes)
        sample = Sample((values @ weights).tolist(), "below")
        verdicts.append(sample.evidence(0.05).verdict)
        try:
            fitted = PowerLaw(x, values)
        except NotYet:
            continue
        ends = fitted.at([far])[1:, 0] - 1.0, fitted.exponent[1:]
        truths = zip(ends, (true, exponent), strict=True)
        outcomes.append([low <= truth <= high for (low, high), truth in truths])
    shares = np.mean(outcomes, axis=0).tolist()
    shares += [verdicts.count(verdict) / studies for verdict in ("holds", "does not hold")]
    names = ("law", "exponent_covered", "wrong_above", "wrong_below")
    given = {"sizes": sizes, "seeds": seeds, "exponent": exponent, "noise": relative, "shape": shape}
    return given | {"unknown": 1 - len(outcomes) / studies} | dict(zip(names, shares, strict=True))


def table(studies: int) -> list[Row]:
    """Simulate all that the documentation shows."""
    kinds = [*product(LADDERS, EXPONENTS, NOISE, SHAPES[:1]), *product(LADDERS, (0.5,), (0.05,), SHAPES[1:])]
    return [
        simulated(sizes, seeds, exponent, relative, shape, studies=studies, seed=seed)
        for seed, ((sizes, seeds), exponent, relative, shape) in enumerate(kinds)
    ]
