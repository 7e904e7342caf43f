"""The rules of CABS against a plain reading of their paper, in fractions."""

from collections import Counter
from fractions import Fraction

import jax
import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.methods.concepts import concept_diversity, concept_frequency

B = 12
SETS = st.lists(st.sets(st.integers(0, 9), max_size=4), min_size=B, max_size=B)
SIZES = st.sampled_from([5, B])

compiled_diversity = jax.jit(concept_diversity, static_argnames=("batch_size", "target"))
compiled_frequency = jax.jit(concept_frequency, static_argnames="batch_size")


def padded(sets):
    """int32 [B, 4], sorted, then −1."""
    return jnp.asarray([[*sorted(one), *[-1] * (4 - len(one))] for one in sets], jnp.int32)


def gain(concepts, reached, frequency, t):
    """h(i) by its equation; −1 of a candidate without concepts, which the authors' code never takes."""
    if not concepts:
        return Fraction(-1)
    parts = (Fraction(t - reached[c], t) + Fraction(1, frequency[c]) for c in concepts if reached[c] < t)
    return sum(parts, Fraction(0)) / len(concepts)


@given(SETS, SIZES, st.sampled_from([None, 2]))
def test_diversity_takes_the_largest_gain_each_time(sets, b, target):
    chosen = compiled_diversity(jax.random.key(0), padded(sets), batch_size=b, target=target).tolist()
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


def test_equal_candidates_are_chosen_at_random():
    equal = padded([{1}] * B)
    choices = [compiled_diversity(jax.random.key(k), equal, batch_size=5).tolist() for k in range(5)]
    assert len({tuple(sorted(chosen)) for chosen in choices}) == 5


@given(SETS, SIZES)
def test_frequency_takes_those_with_the_most_concepts(sets, b):
    chosen = compiled_frequency(jax.random.key(0), padded(sets), batch_size=b).tolist()
    assert len(set(chosen)) == b
    sizes = sorted((len(one) for one in sets), reverse=True)
    assert sorted((len(sets[i]) for i in chosen), reverse=True) == sizes[:b]
