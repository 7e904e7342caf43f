"""Simulated families of claims: the share of wrong verdicts under a false discovery rate.

A verdict "holds" is wrong where the median is not above 0, and "does not hold" where it is. Claims are looked
at after every seed, in step; decided claims keep their verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from tests.simulation.studies import DRAWS, Draw, Floats, Row, losing

from jestlab.analysis.claims.evidence import Sample
from jestlab.analysis.claims.family import TestName
from jestlab.analysis.claims.signed_rank import LAST

Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int_]

CLAIMS = 55
"""Number of claims of a family, as in the paper."""

RATE = 0.05
"""False discovery rate."""

SYMMETRIC = ("normal", "heavy-tailed (t of 2)")
"""Distributions that the signed-rank test may be used with."""

_BATCH = 1_000  # studies at a time


@dataclass(frozen=True)
class Shares:
    """What came of simulated families.

    Attributes:
        wrong: Mean share of wrong verdicts among all verdicts (false discovery rate).
        at_worst: The same, if every study ended after the look with the largest share.
        any_wrong: Share of studies with a wrong verdict.
        decided: Share of claims that are decided.
    """

    wrong: float
    at_worst: float
    any_wrong: float
    decided: float


@dataclass(frozen=True)
class Kind:
    """A kind of study.

    Attributes:
        effects: Mean differences of the claims, in standard deviations.
        compared: Draw of [studies, runs, seeds] → differences without effects, [studies, claims, seeds].
    """

    effects: Floats
    compared: Callable[[np.random.Generator, Draw, int], Floats]


def _independent(generator: np.random.Generator, draw: Draw, studies: int) -> Floats:
    return draw(generator, (studies, CLAIMS, LAST))


def _shared(generator: np.random.Generator, draw: Draw, studies: int) -> Floats:
    """Compare five variants with each baseline."""
    baselines = np.repeat(draw(generator, (studies, CLAIMS // 5, LAST)), 5, axis=1)
    return draw(generator, (studies, CLAIMS, LAST)) - baselines


def _mirrored(generator: np.random.Generator, draw: Draw, studies: int) -> Floats:
    """State every second claim again the other way round."""
    values = draw(generator, (studies, CLAIMS, LAST))
    values[:, 1::2] = -values[:, : CLAIMS - 1 : 2]
    return values


def _diverging(generator: np.random.Generator, draw: Draw, studies: int) -> Floats:
    """Lose a fifth of the runs of one label: those with the lowest values diverge."""
    return losing(draw, 0.2, -np.inf, the_worst=True)(generator, (studies, CLAIMS, LAST))


_NULL = np.zeros(CLAIMS)
_HALF = np.where(np.arange(CLAIMS) % 2, np.linspace(0.5, 3.0, CLAIMS), 0.0)
_OPPOSED = np.where(np.arange(CLAIMS) % 4 == 0, 1.5, np.where(np.arange(CLAIMS) % 4 == 1, -1.5, 0.0))

KINDS = {
    "all claims without a difference": Kind(_NULL, _independent),
    "half of the claims without a difference": Kind(_HALF, _independent),
    "five claims share a baseline, half without a difference": Kind(_HALF, _shared),
    "every claim also stated the other way round": Kind(_NULL, _mirrored),
    "every claim also stated the other way round, half with a difference": Kind(_OPPOSED, _mirrored),
    "one label diverges in a fifth of its runs": Kind(_NULL, _diverging),
    "one label diverges in a fifth of its runs, half with a difference": Kind(_HALF, _diverging),
}


def simulated(kind: Kind, draw: Draw, test: TestName, studies: int) -> Shares:
    """Judge studies as the product does, after every seed."""
    generator, found = np.random.default_rng(0), []
    for start in range(0, studies, _BATCH):
        values = kind.compared(generator, draw, min(_BATCH, studies - start)) + kind.effects[:, None]
        found.append(verdicts(values, kind.effects > 0, test))
    wrong, total = (np.concatenate(counts) for counts in zip(*found, strict=True))  # [studies, looks]
    shares = wrong / np.maximum(total, 1)
    return Shares(
        wrong=float(shares[:, -1].mean()),
        at_worst=float(shares.max(axis=1).mean()),
        any_wrong=float((wrong[:, -1] > 0).mean()),
        decided=float(total[:, -1].mean() / CLAIMS),
    )


def verdicts(values: Floats, is_true: Flags, test: TestName) -> tuple[Counts, Counts]:
    """Count wrong verdicts and all verdicts after each look, [studies, looks]."""
    sample = Sample((), "above", limit=RATE, at_most=LAST, test=test)
    holds, fails = sample.test_all(values)
    p_values = np.minimum(holds, fails)
    ranked = np.sort(p_values, axis=1)
    levels = RATE * np.arange(1, CLAIMS + 1) / CLAIMS
    counts = np.where(ranked <= levels[:, None], np.arange(1, CLAIMS + 1)[:, None], 0).max(axis=1)
    is_decided = p_values <= RATE * counts[:, None] / CLAIMS
    is_wrong = is_decided & np.where(is_true[:, None], fails < holds, holds < fails)
    return is_wrong.sum(axis=1), is_decided.sum(axis=1)


def table(studies: int) -> list[Row]:
    """Simulate every kind of study, by both tests; the signed-rank test only with symmetric differences."""
    rows: list[Row] = []
    for kind, how in KINDS.items():
        for name, draw in DRAWS.items():
            for test in ("sign", "signed_rank") if name in SYMMETRIC else ("sign",):
                found = simulated(how, draw, test, studies)
                rows.append({"family": kind, "draw": name, "test": test} | asdict(found))
    return rows
