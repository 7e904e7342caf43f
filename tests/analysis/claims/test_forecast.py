"""Forecasts of tests after every seed: against the distributions that they claim, and simulated studies."""

import math

import numpy as np
import pytest
from tests.simulation.studies import DRAWS, LAST, simulated, until_decided

from jestlab.analysis.claims.evidence import Sample, planned
from jestlab.analysis.claims.forecast import Forecast, futures

INF, NAN = math.inf, math.nan


def forecast(differences, relation="above", within=0.0, level=0.05):
    return Sample(differences, relation, within, level, LAST).evidence(level).forecast


def test_the_next_difference_has_its_predictive_distribution():
    """Student's t with n − 1 degrees of freedom, whose scale includes the uncertainty of the mean."""
    from scipy.stats import kstest
    from scipy.stats import t as student

    values = np.array([0.5, 1.0, 3.0, 1.5])
    found = futures(values, LAST)
    assert (found[:, :4] == values).all()
    scale = values.std(ddof=1) * math.sqrt(1 + 1 / 4)
    assert kstest(found[3:, 4], student(3, values.mean(), scale).cdf).pvalue > 0.01
    assert kstest(found[3:, -1], student(3, values.mean(), scale).cdf).pvalue > 0.01


def test_extremes_bound_the_earliest_decision():
    assert forecast([1.0] * 3) == Forecast(1.0, 5.0, 5)
    assert forecast([1.0, -1.0, 1.0, 1.0]).earliest == 9  # with one that disagrees
    assert forecast([-1.0, 1.0, -1.0, -1.0]).earliest == 9
    assert forecast([0.0] * 3, "near", 0.5).earliest == 5
    assert forecast([0.7] * 3, "near", 0.5).earliest == 6  # either side could have been far
    assert forecast([1.0, -1.0] * 11, level=0.0009).decided == 0.0
    assert forecast([1.0], level=0.05 / 8) == Forecast(1.0, LAST, 8)


@pytest.mark.parametrize("lost", [INF, -INF, NAN])
def test_lost_seeds_are_neither_forecast_nor_ignored(lost):
    found = forecast([1.0, 1.1, 0.9, lost])
    assert 0.0 < found.decided < 1.0 or lost == INF
    assert forecast([lost] * 4).earliest >= 5


@pytest.mark.parametrize("effect", [0.0, 1.5])
def test_expects_decisions_for_known_effects(effect):
    found = planned(effect, 0.05, LAST, None)
    simulation = simulated(DRAWS["normal"], until_decided, studies=4_000, claims=1, effect=effect)
    assert found.decided == pytest.approx(simulation.decided, abs=0.04)
    assert found.expected == pytest.approx(simulation.seeds, abs=1.0)
    assert found.earliest == 5
    assert planned(effect, 0.05, 20, "signed_rank").earliest == 6
