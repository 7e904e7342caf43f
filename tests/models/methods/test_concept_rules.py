"""The rules of CABS against a plain reading of their paper, in fractions."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.methods.concepts import concept_diversity, concept_frequency
from jestlab.platform.contracts.training import check_rule

SETS = st.lists(st.sets(st.integers(0, 9), max_size=4), min_size=1, max_size=24)


def padded(sets):
    """int32 [B, 4], sorted, then −1."""
    return jnp.asarray([[*sorted(one), *[-1] * (4 - len(one))] for one in sets], jnp.int32)


def gain(concepts, reached, frequency, t):
    """h(i) by its equation; −1 of a candidate without concepts, which the authors' code never takes."""
    if not concepts:
        return Fraction(-1)
    parts = (Fraction(t - reached[c], t) + Fraction(1, frequency[c]) for c in concepts if reached[c] < t)
    return sum(parts, Fraction(0)) / len(concepts)


@given(SETS, st.data())
def test_diversity_takes_the_largest_gain_each_time(sets, data):
    b = data.draw(st.integers(1, len(sets)))
    target = data.draw(st.sampled_from([None, 1, 3]))
    chosen = concept_diversity(jax.random.key(0), padded(sets), batch_size=b, target=target).tolist()
    assert len(set(chosen)) == b
    frequency = Counter(c for one in sets for c in one)
    t = target or max(1, b // max(1, len(frequency)))
    reached: Counter[int] = Counter()
    left = set(range(len(sets)))
    for i in chosen:
        best = max(gain(sets[j], reached, frequency, t) for j in left)
        # Gains that differ by less than 2^-16 count as equal.
        assert gain(sets[i], reached, frequency, t) >= best - Fraction(1, 2**15)
        reached.update(sets[i])
        left.remove(i)


def test_equals_are_chosen_at_random():
    alike = padded([{1}] * 30)
    choices = [concept_diversity(jax.random.key(k), alike, batch_size=3).tolist() for k in range(5)]
    assert len({tuple(sorted(chosen)) for chosen in choices}) == 5


def test_a_batch_is_more_balanced_than_what_it_is_chosen_from():
    rng = np.random.default_rng(0)
    labels = np.minimum(rng.geometric(0.4, 400) - 1, 9)  # the first of ten is 40% of all
    concepts = jnp.asarray(labels[:, None], jnp.int32)
    chosen = np.asarray(concept_diversity(jax.random.key(1), concepts, batch_size=50))
    counts = np.bincount(labels[chosen], minlength=10)
    there = np.bincount(labels, minlength=10)
    # Every concept comes up t = 5 times, or as often as it is there; what is left is filled by any.
    assert all(counts[c] >= min(5, there[c]) for c in range(10))


@given(SETS, st.data())
def test_frequency_takes_those_with_the_most_concepts(sets, data):
    b = data.draw(st.integers(1, len(sets)))
    chosen = concept_frequency(jax.random.key(0), padded(sets), batch_size=b).tolist()
    assert len(set(chosen)) == b
    sizes = sorted((len(one) for one in sets), reverse=True)
    assert sorted((len(sets[i]) for i in chosen), reverse=True) == sizes[:b]


def test_they_are_rules():
    check_rule(concept_diversity)
    check_rule(concept_diversity, target=2)
    check_rule(concept_frequency)
