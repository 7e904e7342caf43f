"""The rule of RHO-LOSS against sorting."""

from __future__ import annotations

import jax
import numpy as np

from jestlab.models.methods.highest import highest
from jestlab.models.selection import select


def reducible(learner, reference):
    """ℓ(θ) − ℓ(θ_il) of each pair alone, in float64, by the sigmoid loss."""
    both = []
    for z in (learner, reference):
        own = (np.asarray(z.image, np.float64) * np.asarray(z.text, np.float64)).sum(axis=1)
        both.append(np.log1p(np.exp(-(float(z.temperature) * own + float(z.bias)))))
    return both[0] - both[1]


def test_takes_the_examples_of_largest_reducible_loss(embeddings):
    """Whatever the key."""
    learner, irreducible = embeddings(60, 16), embeddings(60, 8, seed=1, temperature=20.0)
    scores = reducible(learner, irreducible)
    order = np.argsort(-scores)
    assert scores[order[8]] - scores[order[9]] > 1e-3  # rounding can't decide
    for seed in (0, 1):
        chosen = select(jax.random.key(seed), learner, irreducible, batch_size=9, rule=highest).indices
        assert sorted(chosen.tolist()) == sorted(order[:9].tolist())
