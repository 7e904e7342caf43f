"""The rule of RHO-LOSS against sorting."""

from __future__ import annotations

import jax
import numpy as np

from jestlab.models.methods.highest import highest
from jestlab.models.selection import select
from jestlab.platform.contracts.training import check_rule


def reducible(learner, reference):
    """ℓ(θ) − ℓ(θ_il) of each pair alone, in float64, by the sigmoid loss."""
    both = []
    for z in (learner, reference):
        own = (np.asarray(z.image, np.float64) * np.asarray(z.text, np.float64)).sum(axis=1)
        both.append(np.log1p(np.exp(-(float(z.temperature) * own + float(z.bias)))))
    return both[0] - both[1]


def test_it_takes_the_examples_of_largest_reducible_loss(embeddings):
    learner, irreducible = embeddings(60, 16), embeddings(60, 8, seed=1, temperature=20.0)
    chosen = select(jax.random.key(0), learner, irreducible, batch_size=9, rule=highest).indices
    scores = reducible(learner, irreducible)
    assert sorted(chosen.tolist()) == sorted(np.argsort(-scores)[:9].tolist())


def test_no_key_changes_the_choice(embeddings):
    z, reference = embeddings(40), embeddings(40, seed=1)
    choices = [
        select(jax.random.key(seed), z, reference, batch_size=8, rule=highest).indices.tolist()
        for seed in range(3)
    ]
    assert choices[0] == choices[1] == choices[2]


def test_it_is_a_rule():
    check_rule(highest)
