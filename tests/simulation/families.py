"""Simulated families of claims: the share of wrong verdicts under a false discovery rate.

A verdict "holds" is wrong where the median is not above 0, and "does not hold" where it is. Claims are looked
at after every seed, in step; decided claims keep their verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tests.simulation.studies import DRAWS, Draw, Floats, Row, losing

from jestlab.analysis.claims.evidence import Sample
from jestlab.analysis.claims.family import MOST_RANKED, TestName
from jestlab.analysis.colors import PALETTE, REFERENCE

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
    return draw(generator, (studies, CLAIMS, MOST_RANKED))


def _shared(generator: np.random.Generator, draw: Draw, studies: int) -> Floats:
    """Compare five variants with each baseline."""
    baselines = np.repeat(draw(generator, (studies, CLAIMS // 5, MOST_RANKED)), 5, axis=1)
    return draw(generator, (studies, CLAIMS, MOST_RANKED)) - baselines


def _mirrored(generator: np.random.Generator, draw: Draw, studies: int) -> Floats:
    """State every second claim again the other way round."""
    values = draw(generator, (studies, CLAIMS, MOST_RANKED))
    values[:, 1::2] = -values[:, : CLAIMS - 1 : 2]
    return values


def _diverging(generator: np.random.Generator, draw: Draw, studies: int) -> Floats:
    """Lose a fifth of the runs of one label: those with the lowest values diverge."""
    return losing(draw, 0.2, -np.inf, the_worst=True)(generator, (studies, CLAIMS, MOST_RANKED))


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


def verdicts(
    values: Floats, is_true: Flags, test: TestName, *, has_rate: bool = True
) -> tuple[Counts, Counts]:
    """Count wrong verdicts and all verdicts after each look, [studies, looks].

    Args:
        values: Differences, [studies, claims, seeds].
        is_true: Whether each claim is true, [claims].
        has_rate: Whether the rate of wrong verdicts is bounded; if not, the family-wise error.
    """
    sample = Sample((), "above", limit=RATE, at_most=MOST_RANKED, test=test)
    holds, fails = sample.test_all(values)
    p_values = np.minimum(holds, fails)
    ranked = np.sort(p_values, axis=1)
    levels = RATE * np.arange(1, CLAIMS + 1) / CLAIMS
    counts = np.where(ranked <= levels[:, None], np.arange(1, CLAIMS + 1)[:, None], 0).max(axis=1)
    is_decided = p_values <= RATE * (counts[:, None] if has_rate else 1) / CLAIMS
    is_wrong = is_decided & np.where(is_true[:, None], fails < holds, holds < fails)
    return is_wrong.sum(axis=1), is_decided.sum(axis=1)


_RULES: dict[str, tuple[TestName, bool]] = {
    "sign test, family-wise error": ("sign", False),
    "sign test, false discovery rate": ("sign", True),
    "signed-rank test, false discovery rate": ("signed_rank", True),
}
"""Name of a rule → its test, and whether it bounds the rate."""


def by_seeds(studies: int) -> list[Row]:
    """Count decided claims after each seed, if 45 of 55 have differences of 0.6 to 4.4 deviations."""
    effects = np.where(np.arange(CLAIMS) < 45, np.linspace(0.6, 5.2, CLAIMS), 0.0)
    values = DRAWS["normal"](np.random.default_rng(0), (studies, CLAIMS, MOST_RANKED)) + effects[:, None]
    rows: list[Row] = []
    for rule, (test, has_rate) in _RULES.items():
        decided = verdicts(values, effects > 0, test, has_rate=has_rate)[1].mean(axis=0)
        rows += [{"rule": rule, "seeds": n, "decided": count} for n, count in enumerate(decided, start=1)]
    return rows


def figure(rows: list[Row], path: Path) -> None:
    """Draw the decided claims against the number of seeds."""
    import matplotlib.pyplot as plt

    plot, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
    for color, rule in zip((REFERENCE, *PALETTE), _RULES, strict=False):
        points = [(row["seeds"], row["decided"]) for row in rows if row["rule"] == rule]
        axes.plot(*zip(*points, strict=True), color=color.light, marker="o", ms=3, label=rule)
    axes.axhline(45, color="black", lw=1, ls="--")
    axes.text(1, 45.5, "claims with a difference", va="bottom")
    axes.set(xlabel="seeds", ylabel="decided claims of 55", ylim=(0, 50), xticks=range(2, MOST_RANKED + 1, 2))
    axes.legend(loc="lower right", frameon=False)
    plot.savefig(path, dpi=110)


def table(studies: int) -> list[Row]:
    """Simulate every kind of study, by both tests; the signed-rank test only with symmetric differences."""
    rows: list[Row] = []
    for kind, how in KINDS.items():
        for name, draw in DRAWS.items():
            for test in ("sign", "signed_rank") if name in SYMMETRIC else ("sign",):
                found = simulated(how, draw, test, studies)
                rows.append({"family": kind, "draw": name, "test": test} | asdict(found))
    return rows
