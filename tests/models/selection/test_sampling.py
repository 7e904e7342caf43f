"""Draws without replacement follow Plackett–Luce, lose no digits, and report an effective sample size."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.support.virtual_devices import on_devices

from jestlab.models.devices import AXIS
from jestlab.models.selection.sampling import MAX_CANDIDATES, Candidates, draw

B = 40
KEY = jax.random.key(0)


@functools.partial(jax.jit, static_argnames="k")
def compiled_draw(key, scores, excluded, gain, *, k):
    return draw(key, Candidates(len(scores)), scores, excluded, gain, k)


def drawn(scores, *, gain=1.0, excluded=(), key=KEY):
    """Ten candidates of B."""
    is_excluded = np.isin(np.arange(B), list(excluded))
    return compiled_draw(key, np.asarray(scores, np.float32), is_excluded, np.float32(gain), k=10)


def test_draws_follow_plackett_luce():
    """Without replacement p(i, j) = p_i p_j / (1 − p_i): χ² on 20 ordered pairs, 19 degrees of freedom."""
    weights = np.array([0.0, 0.5, 1.0, 2.0, 1.5])
    p = np.exp(weights) / np.exp(weights).sum()
    n, count = 40_000, len(weights)
    scores, none = jnp.asarray(weights, jnp.float32), jnp.zeros(count, bool)
    draws = jax.vmap(lambda key: compiled_draw(key, scores, none, 1.0, k=2).indices)(jax.random.split(KEY, n))
    observed = np.zeros((count, count))
    np.add.at(observed, tuple(np.asarray(draws).T), 1)
    expected = n * p[:, None] * p / (1 - p[:, None])
    off = ~np.eye(count, dtype=bool)
    assert not observed[~off].any()
    chi2 = ((observed - expected)[off] ** 2 / expected[off]).sum()
    assert chi2 < 43.8  # the 99.9th percentile


def test_without_noise_the_highest_are_drawn():
    scores = np.random.default_rng(0).permutation(B)
    found = drawn(scores, key=None)
    assert found.indices.tolist() == np.argsort(-scores)[:10].tolist()
    assert float(found.effective) == 1.0


def test_a_common_offset_changes_no_draw():
    scores = np.random.default_rng(0).integers(-200, 200, B) / 64  # exact, also with the offset
    one, other = (drawn(scores + offset).indices for offset in (0.0, 1024.0))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "scores, excluded, expected",
    [
        ([0.0] * B, (), B),
        ([0.0] * B, range(10), B - 10),
        ([0.0] * (B - 1) + [100.0], (), 1),
        ([0.0, 0.0] + [-50.0] * (B - 2), (), 2),
    ],
)
def test_effective_sample_size_is_the_number_of_likely_candidates(scores, excluded, expected):
    assert float(drawn(scores, excluded=excluded).effective) == pytest.approx(expected, rel=1e-5)


ANY_FLOAT = st.floats(width=32) | st.sampled_from([np.inf, -np.inf, np.nan, -np.nan, 3e38, -3e38, 0.0])


@given(
    scores=st.lists(ANY_FLOAT, min_size=12, max_size=12),
    excluded=st.sets(st.integers(0, 11), max_size=7),
    gain=st.floats(0.0, np.inf),
    key=st.sampled_from([KEY, None]),
)
def test_any_scores_draw_nothing_excluded_and_nothing_twice(scores, excluded, gain, key):
    is_excluded = np.isin(np.arange(12), list(excluded))
    with np.errstate(over="ignore"):
        arguments = np.array(scores, np.float32), is_excluded, np.float32(gain)
    found = set(compiled_draw(key, *arguments, k=5).indices.tolist())
    assert len(found) == 5
    assert not found & excluded


@pytest.mark.parametrize("key", [jax.random.key(1), None])
def test_several_devices_draw_what_one_draws(key):
    """More than one device has candidates for; of equal scores, the smaller index."""
    scores = np.array([2, 0, 1, 2, 2, 0, 1, 1, 0, 2, 2, 2], np.float32)
    rows = (scores, np.isin(np.arange(12), [3, 8]))

    def of_rows(scores, excluded):
        return draw(key, Candidates(4, AXIS), scores, excluded, 0.5, 7)

    found = jax.jit(functools.partial(on_devices, 3, of_rows))(*rows)
    alone = compiled_draw(key, *rows, 0.5, k=7)
    for indices, effective in zip(found.indices, found.effective, strict=True):
        assert indices.tolist() == alone.indices.tolist()
        assert float(effective) == pytest.approx(float(alone.effective), rel=1e-6)
    if key is None:
        assert alone.indices.tolist() == [0, 4, 9, 10, 11, 2, 6]


def test_rows_are_fetched_from_the_devices_that_hold_them():
    rng = np.random.default_rng(0)
    image, text = rng.normal(size=(12, 3)).astype(np.float32), rng.normal(size=(12, 2)).astype(np.float32)
    indices = jnp.array([11, 0, 3, 4])

    def of_rows(*tree):
        candidates = Candidates(4, AXIS)
        return candidates.fetch(tree, indices), candidates.mask(indices), candidates.maximum(tree[0][:, 0])

    (rows, again), mask, maximum = jax.jit(functools.partial(on_devices, 3, of_rows))(image, text)
    for found, expected in zip((*rows, again), (image[indices], text[indices], indices), strict=True):
        np.testing.assert_array_equal(found, [expected] * 3)
    assert maximum.tolist() == [image[:, 0].max()] * 3
    assert np.flatnonzero(mask.reshape(-1)).tolist() == [0, 3, 4, 11]


def test_rejects_super_batches_whose_indices_float32_cannot_hold():
    assert Candidates(MAX_CANDIDATES).count == MAX_CANDIDATES
    with pytest.raises(ValueError, match=r"super-batch of 16,777,217 examples: must be at most 16,777,216"):
        Candidates(MAX_CANDIDATES + 1)
