"""Simulated claims about the score at equal seconds: how often they are wrong if both sides are alike.

The faster run of each seed sets the seconds at which both are compared. Speeds vary a lot, are shared in part
by the runs of a seed, and go together with the score: a fast run also learns faster, or less.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from tests.simulation.studies import Floats, Row, once, until_decided

from jestlab.analysis.claims.claim import AT_SECONDS
from jestlab.analysis.claims.measures import Measures

SEEDS, STEPS = 8, 5
"""Seeds of a study, and evaluations of a run."""

LABELS = ("a", "b")


def differences(studies: int, correlation: float) -> Floats:
    """Compare runs of two labels at equal seconds.

    Args:
        correlation: Of the logarithms of a run's speed and of what it learns.

    Returns:
        [studies, 1, seeds].
    """
    generator = np.random.default_rng(0)
    runs = studies * SEEDS
    of_seed = generator.normal(size=runs)
    step = np.arange(1, STEPS + 1)
    curves = []
    for label in LABELS:
        speed = 0.7 * of_seed + 0.7 * generator.normal(size=runs)
        learning = correlation * speed + np.sqrt(1 - correlation**2) * generator.normal(size=runs)
        curves.append(
            pd.DataFrame(
                {
                    "label": label,
                    "seed": np.repeat(np.arange(runs), STEPS),
                    "seconds": (step / np.exp(0.5 * speed)[:, None]).ravel(),
                    "score": (np.exp(0.2 * learning)[:, None] * np.log1p(step)).ravel(),
                    "final": np.tile(step == STEPS, runs),
                }
            )
        )
    logged = pd.DataFrame(columns=["label", "seed", "name", "step", "value"]).astype({"value": float})
    measures = Measures(None, pd.concat(curves, ignore_index=True), logged)
    values = measures.values([(AT_SECONDS, label, seed) for label in LABELS for seed in range(runs)])
    a, b = (
        np.array([values.get((AT_SECONDS, label, seed), np.nan) for seed in range(runs)]) for label in LABELS
    )
    found: Floats = (a - b).reshape(studies, 1, SEEDS)
    return found


def table(studies: int) -> list[Row]:
    """Simulate claims without a difference, by one look and by a look after every seed."""
    rows: list[Row] = []
    for correlation in (-0.8, 0.0, 0.8):
        values = differences(studies, correlation)
        for judge in (once, until_decided):
            found = judge(values, 0.05)
            rows.append(
                {
                    "measure": AT_SECONDS,
                    "correlation": correlation,
                    "how": judge.__name__,
                    "wrong": found.wrong,
                }
            )
    return rows
