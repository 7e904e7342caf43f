"""Power laws with offset: the fit, and the coverage of its intervals."""

import math

import numpy as np
import pytest
from tests.simulation import scaling as simulation

from jestlab.analysis.errors import NotYet
from jestlab.analysis.scaling import PowerLaw

X = np.array([10.0, 20, 40, 80])


def measured(exponent, deviation=0.01, amplitude=3.0, seeds=4, sizes=X):
    noise = np.random.default_rng(0).normal(scale=deviation, size=(seeds, len(sizes)))
    return 1.0 + amplitude * sizes**-exponent + noise


@pytest.mark.parametrize("amplitude", [3.0, -3.0])
def test_an_exact_law_is_found(amplitude):
    law = PowerLaw(X, measured(0.5, 0.0, amplitude))
    assert law.exponent == pytest.approx([0.5, 0.5, 0.5], abs=1e-4)
    assert law.offset == pytest.approx([1.0, 1.0, 1.0], abs=1e-3)
    assert not law.note
    assert law.at([800])[:, 0] == pytest.approx(1.0 + amplitude * 800**-0.5, abs=1e-3)


def test_intervals_of_little_noise_are_those_of_the_linear_model():
    y = measured(0.5, 1e-6)
    law = PowerLaw(X, y)
    b, c = law.exponent[0], law.offset[0]
    a = (law.at([10.0])[0, 0] - c) * 10**b

    def gradient(x):
        return np.stack([np.ones_like(x), x**-b, -a * x**-b * np.log(x)], axis=-1)

    inverse = np.linalg.pinv(gradient(X))
    rows = {"c": inverse[0], "b": inverse[2], "at": gradient(np.array(800.0)) @ inverse}
    t = 2.3534  # of 3 degrees of freedom, 95%
    half = {name: t * (y @ row).std(ddof=1) / 2 for name, row in rows.items()}
    for name, found in {"c": law.offset, "b": law.exponent, "at": law.at([800.0])[:, 0]}.items():
        assert found[2] - found[0] == pytest.approx(half[name], rel=0.02)
        assert found[0] - found[1] == pytest.approx(half[name], rel=0.02)


def test_an_offset_is_unknown_where_the_exponent_may_be_zero():
    law = PowerLaw(X, 1 - np.log(X) + np.random.default_rng(0).normal(scale=0.05, size=(4, 4)))
    assert law.exponent[1] < 0 < law.exponent[2]
    assert math.isnan(law.offset[0])
    assert "the exponent may be 0" in law.note
    _, low, high = law.at([800])[:, 0]
    assert low < 1 - math.log(800) < high


@pytest.mark.parametrize(
    ("sizes", "values", "error"),
    [
        ([10, 20], [[3, 2], [3, 2.1]], "a fit takes 3 sizes and 2 seeds .* not 2 and 2"),
        ([10, 20, 40], [[3, 2, 1]], "not 3 and 1"),
        ([10, 20, 40], [[1, 1, 1], [1, 1, 1]], "doesn't converge"),
        ([10, 20, 40, 80], [[1, 0, 1, 0], [1, 0, 1, 0]], "doesn't converge"),
        (X, np.random.default_rng(1).normal(size=(4, 4)), "the exponent isn't identified"),
    ],
)
def test_what_cannot_be_fitted_is_refused(sizes, values, error):
    with pytest.raises(NotYet, match=error):
        PowerLaw(sizes, values)


def test_an_exponent_has_no_upper_bound_where_only_the_smallest_sizes_differ():
    law = PowerLaw(X, measured(3.0, 0.1, amplitude=1e3))
    assert law.exponent[2] == math.inf
    assert "no upper bound" in law.note


@pytest.mark.parametrize("shape", ["of the seed", "more at large sizes"])
def test_intervals_cover_what_they_promise(shape):
    row = simulation.simulated(5, 4, 0.5, 0.05, shape, studies=60)
    for name in ("law", "exponent_covered"):
        assert row[name] > 0.9 - 3.5 * math.sqrt(0.9 * 0.1 / 60), name
    assert max(row["wrong_above"], row["wrong_below"]) < 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / 60)
