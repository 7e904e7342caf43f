"""Simulated claims about the best of several runs, such as learning rates, which a validation metric chooses.

Each run has a validation and a test value with some correlation. In each seed, the run with the best
validation value is chosen, and its test value is compared, by a sign test after every seed. The median
difference between both sides is 0, so that a verdict "holds" is wrong.

For comparison, the run is also chosen by the mean test value of all seeds, and reported by the same values.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
from tests.simulation.studies import LAST, Floats, Outcome, Row, outcome_of, until_decided

from jestlab.analysis.claims.sign_test import SIGN

RUNS = (2, 5, 10)
"""Numbers of runs to choose from."""

CORRELATIONS = (0.5, 0.9)
"""Correlations of a run's validation value with its test value."""

ERROR = 0.05

_MANY = 1_000_000  # draws that estimate the median difference


def tuned(generator: np.random.Generator, shape: tuple[int, ...], runs: int, correlation: float) -> Floats:
    """Draw the test values of the best of several runs by their validation values; all values are normal."""
    validation, own = generator.normal(size=(*shape, runs)), generator.normal(size=(*shape, runs))
    test = correlation * validation + math.sqrt(1 - correlation**2) * own
    best = validation.argmax(axis=-1)
    return np.take_along_axis(test, best[..., None], axis=-1)[..., 0]


def both_tuned(studies: int, runs: int, correlation: float, seed: int = 0) -> Outcome:
    """Compare two sides that are tuned in the same way."""
    generator = np.random.default_rng(seed)
    of, other = (tuned(generator, (studies, 1, LAST), runs, correlation) for _ in range(2))
    return until_decided(of - other, ERROR)


def one_tuned(studies: int, runs: int, correlation: float, seed: int = 0) -> Outcome:
    """Compare a tuned side with a single run that is as good: the median difference is 0."""

    def differences(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        return tuned(generator, shape, runs, correlation) - generator.normal(size=shape)

    ahead = np.median(differences(np.random.default_rng(seed + 1), (_MANY,)))
    return until_decided(differences(np.random.default_rng(seed), (studies, 1, LAST)) - ahead, ERROR)


def same_metric(studies: int, runs: int, seed: int = 0) -> Outcome:
    """Choose by the mean test value of all seeds so far, and report it; all runs of both sides are as good.

    The run is chosen again at each look, and its values in all seeds so far count.
    """
    generator = np.random.default_rng(seed)
    test = generator.normal(size=(studies, LAST, runs))
    difference = test - generator.normal(size=(studies, LAST, 1))
    best = test.cumsum(axis=1).argmax(axis=2)[..., None]
    against, behind = (
        np.take_along_axis((~(sign * difference > 0)).cumsum(axis=1), best, axis=2)[..., 0]
        for sign in (1, -1)
    )
    p_values = SIGN.all_looks()
    holds, fails = (p_values[np.arange(1, LAST + 1), counts] <= ERROR for counts in (against, behind))
    return outcome_of(holds[:, None], fails[:, None])


def table(studies: int) -> list[Row]:
    """Simulate claims of both kinds, and the choice by the reported metric, for each number of runs."""
    tuned_rows = [
        {"how": judge.__name__, "runs": runs, "correlation": correlation}
        | asdict(judge(studies, runs, correlation))
        for judge in (both_tuned, one_tuned)
        for runs in RUNS
        for correlation in CORRELATIONS
    ]
    return [*tuned_rows, *({"how": "same_metric", "runs": n} | asdict(same_metric(studies, n)) for n in RUNS)]
