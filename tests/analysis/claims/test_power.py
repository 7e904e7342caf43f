"""How many seeds Student's t needs: against simulated studies and printed tables."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from jestlab.analysis.claims.looks import MOST_SEEDS
from jestlab.analysis.claims.power import Needed, needed, power


@pytest.mark.parametrize(("effect", "n", "error"), [(1.0, 3, 0.05), (2.0, 3, 0.05), (1.0, 8, 0.05 / 8)])
def test_power_is_the_share_of_simulated_studies(effect, n, error):
    samples = np.random.default_rng(0).normal(effect, 1.0, size=(20_000, n))
    found = ttest_1samp(samples, 0.0, axis=1)
    assert power(effect, n, error) == pytest.approx(
        np.mean((found.pvalue <= error) & (found.statistic > 0)), abs=0.012
    )


def test_three_seeds_see_an_effect_of_one_deviation_in_18_of_100_cases():
    assert power(1.0, 3) == pytest.approx(0.179, abs=5e-4)
    assert power(1.0, 1) == 0.0
    assert power(0.0, 5) == pytest.approx(0.025, abs=1e-6)


def test_what_is_needed_rises_with_the_spread():
    found = [needed(1.0, std, 3, 0.05) for std in (0.5, 1.0, 2.0)]
    assert found == [Needed(4, 9), Needed(7, 33), Needed(15, 97)]


def test_nothing_is_needed_that_nobody_can_know():
    assert needed(1.0, 1.0, 1, 0.05) == Needed(None, None)
    assert needed(1.0, 0.0, 3, 0.05) == Needed(None, None)
    assert needed(0.0, 1.0, MOST_SEEDS, 0.05) == Needed(None, None)


def test_the_prediction_is_right_as_often_as_it_says():
    """Of studies with three seeds and true effects that a flat prior has, `even` seeds decide half."""
    generator = np.random.default_rng(2)
    hits, rounds, even = 0, 400, needed(1.0, 1.0, 3, 0.05).even
    assert even is not None
    for _ in range(rounds):
        # What was seen is fixed; truth is drawn from its posterior, and a new study from the truth.
        sigma = np.sqrt(2 / generator.chisquare(2))
        mean = 1.0 + sigma * generator.normal() / np.sqrt(3)
        hits += ttest_1samp(generator.normal(mean, sigma, size=even), 0.0).pvalue <= 0.05
    assert hits / rounds == pytest.approx(0.5, abs=0.07)
