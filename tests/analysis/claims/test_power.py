"""Number of seeds that Student's t needs: against simulated studies and printed tables."""

import numpy as np
import pytest

from jestlab.analysis.claims.looks import MOST_SEEDS
from jestlab.analysis.claims.power import Needed, needed, power


def test_power_is_the_share_of_simulated_studies():
    from scipy.stats import ttest_1samp

    for effect, n, error in ((1.0, 3, 0.05), (2.0, 3, 0.05), (1.0, 8, 0.05 / 8)):
        samples = np.random.default_rng(0).normal(effect, 1.0, size=(20_000, n))
        found = ttest_1samp(samples, 0.0, axis=1)
        is_positive = (found.pvalue <= error) & (found.statistic > 0)
        assert power(effect, n, error) == pytest.approx(is_positive.mean(), abs=0.012)


def test_power_equals_printed_values():
    assert power(1.0, 3) == pytest.approx(0.179, abs=5e-4)
    assert power(1.0, 1) == 0.0
    assert power(0.0, 5) == pytest.approx(0.025, abs=1e-6)


def test_needed_seeds_increase_with_the_spread():
    """They are unknown without a spread, and above the limit."""
    found = [needed(1.0, std, 3, 0.05) for std in (0.5, 1.0, 2.0)]
    assert found == [Needed(4, 9), Needed(7, 33), Needed(15, 97)]
    assert needed(1.0, 1.0, 1, 0.05) == Needed(None, None)
    assert needed(1.0, 0.0, 3, 0.05) == Needed(None, None)
    assert needed(0.0, 1.0, MOST_SEEDS, 0.05) == Needed(None, None)
