"""Draws without replacement follow Plackett–Luce, lose no digits, and say among how many they choose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.selection.sampling import Candidates, draw, gumbel


def drawn(scores, k, gain=1.0, excluded=(), key=0):
    scores = jnp.asarray(scores, jnp.float32)
    out = jnp.isin(jnp.arange(len(scores)), jnp.asarray(excluded, int))
    noise = gumbel(jax.random.key(key), len(scores))
    return draw(Candidates(len(scores), None), scores, out, noise, gain, k)


def test_draws_follow_plackett_luce():
    """Without replacement p(i, j) = p_i p_j / (1 − p_i): χ² on 20 ordered pairs, 19 degrees of freedom."""
    weights = np.array([0.0, 0.5, 1.0, 2.0, 1.5])
    p = np.exp(weights) / np.exp(weights).sum()
    n, count = 40_000, len(weights)
    place = Candidates(count, None)
    none = jnp.zeros(count, bool)
    pairs = np.asarray(
        jax.vmap(
            lambda key: (
                draw(place, jnp.asarray(weights, jnp.float32), none, gumbel(key, count), 1.0, 2).indices
            )
        )(jax.random.split(jax.random.key(0), n))
    )
    chi2 = 0.0
    for i in range(count):
        for j in range(count):
            if i != j:
                expected = n * p[i] * p[j] / (1 - p[i])
                observed = int(((pairs[:, 0] == i) & (pairs[:, 1] == j)).sum())
                chi2 += (observed - expected) ** 2 / expected
    assert chi2 < 43.8  # the 99.9th percentile


def test_without_noise_the_highest_are_drawn_and_it_is_no_choice():
    scores = jnp.asarray([3.0, 1.0, 2.0, 5.0])
    found = draw(Candidates(4, None), scores, jnp.zeros(4, bool), None, 1.0, 2)
    assert found.indices.tolist() == [3, 0]
    assert float(found.effective) == 1.0


def test_what_is_excluded_is_never_drawn():
    chosen = drawn(np.linspace(0, 50, 20), 15, gain=100.0, excluded=[19, 18, 3]).indices
    assert not set(np.asarray(chosen).tolist()) & {19, 18, 3}


def test_a_common_offset_changes_no_draw():
    scores = np.random.default_rng(0).normal(size=50).astype(np.float32).round(2)
    one, other = (drawn(scores + offset, 10).indices for offset in (0.0, 1024.0))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "scores, excluded, expected",
    [
        (np.zeros(40), (), 40),
        (np.zeros(40), range(10), 30),
        ([0.0] * 39 + [100.0], (), 1),
        ([0, 0, -50.0], (), 2),
    ],
)
def test_effective_sample_size_is_the_number_of_likely_candidates(scores, excluded, expected):
    assert float(drawn(scores, 1, excluded=list(excluded)).effective) == pytest.approx(expected, rel=1e-5)


ANY_FLOAT = st.floats(width=32) | st.sampled_from([np.inf, -np.inf, np.nan, -np.nan, 3e38, -3e38, 0.0])
COMPILED = {
    with_noise: jax.jit(
        lambda scores, excluded, gain, noisy=with_noise: (
            draw(
                Candidates(12, None),
                scores,
                excluded,
                gumbel(jax.random.key(0), 12) if noisy else None,
                gain,
                5,
            ).indices
        )
    )
    for with_noise in (True, False)
}


@given(
    scores=st.lists(ANY_FLOAT, min_size=12, max_size=12),
    excluded=st.sets(st.integers(0, 11), max_size=7),
    gain=st.floats(0.0, np.inf),
    noise=st.booleans(),
)
def test_whatever_the_scores_are_nothing_excluded_is_drawn_and_nothing_twice(scores, excluded, gain, noise):
    with np.errstate(over="ignore"):
        found = COMPILED[noise](
            np.array(scores, np.float32), np.isin(np.arange(12), list(excluded)), np.float32(gain)
        )
    drawn = set(np.asarray(found).tolist())
    assert len(drawn) == 5
    assert not drawn & excluded
