"""The order of examples: a permutation each epoch, another for each seed and epoch, of no visible pattern."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.data.pipeline import examples_at, permute

COUNTS = st.one_of(st.integers(1, 40), st.integers(1, 5_000))
SEEDS = st.integers(0, 2**63)


@given(COUNTS, SEEDS, st.integers(0, 2**40))
def test_each_epoch_is_a_permutation(count, seed, epoch):
    assert np.array_equal(np.sort(permute(np.arange(count), count, seed, epoch)), np.arange(count))


@given(st.integers(50, 5_000), SEEDS, st.integers(0, 1_000))
def test_seeds_and_epochs_differ(count, seed, epoch):
    first = permute(np.arange(count), count, seed, epoch)
    for other in ((seed + 1, epoch), (seed, epoch + 1), (epoch, seed)):
        if other != (seed, epoch):
            # Two random permutations agree in one place on average, hardly ever in ten.
            assert (permute(np.arange(count), count, *other) == first).sum() < 10


@given(COUNTS, SEEDS, st.integers(0, 10**6), st.integers(1, 300))
def test_a_part_of_the_order_is_the_order_s_part(count, seed, start, length):
    whole = examples_at(np.arange(start, start + length), count, seed)
    places = np.random.default_rng(0).permutation(length)
    assert np.array_equal(examples_at(start + places, count, seed), whole[places])
    epochs = np.arange(start, start + length) // count
    for epoch in np.unique(epochs):
        assert len(set(whole[epochs == epoch])) == (epochs == epoch).sum()


@given(st.integers(2**30, 2**50), SEEDS)
def test_large_sets_are_permuted_without_a_table(count, seed):
    places = np.random.default_rng(0).choice(count, 500, replace=False, shuffle=False)
    found = permute(places, count, seed, 0)
    assert len(set(found)) == 500 and found.min() >= 0 and found.max() < count


@pytest.mark.parametrize("count", [3, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 4, 5, 6))])
def test_all_orders_of_few_examples_are_equally_frequent(count):
    """χ² over all orders, from seeds and from epochs, below its 99.9th percentile."""
    from scipy.special import chdtri

    orders = math.factorial(count)
    expected = 30
    for arguments in (lambda n: (n, 0), lambda n: (7, n)):
        found = Counter(
            tuple(permute(np.arange(count), count, *arguments(n)).tolist()) for n in range(expected * orders)
        )
        chi2 = sum((n - expected) ** 2 / expected for n in found.values())
        chi2 += (orders - len(found)) * expected
        assert chi2 < chdtri(orders - 1, 0.001)


def test_neighbours_are_unrelated():
    place = np.arange(100_000)
    order = permute(place, 100_000, 0, 0)
    for other in (place, np.roll(order, 1), np.roll(order, 256), permute(place, 100_000, 0, 1)):
        assert abs(np.corrcoef(order, other)[0, 1]) < 0.015  # standard error 0.003


def test_the_order_is_the_one_of_earlier_versions():
    """Another order would change the results of the same config: raise TrainConfig.version with it."""
    assert permute(np.arange(10), 10, 0, 0).tolist() == [6, 0, 1, 8, 5, 9, 4, 7, 2, 3]
    large = permute(np.arange(300), 300, 3, 2)
    assert large[:10].tolist() == [81, 74, 294, 243, 191, 180, 54, 26, 1, 204]
