"""Every method satisfies the contract of rules or losses; RHO-LOSS's rule against sorting."""

import jax
import numpy as np
import pytest

from jestlab.models.methods.concepts import concept_diversity, concept_frequency
from jestlab.models.methods.distillation import distilled
from jestlab.models.methods.drrho import drrho
from jestlab.models.methods.highest import highest
from jestlab.models.selection import select
from jestlab.testing.training import check_loss, check_rule


@pytest.mark.parametrize(
    "rule, options",
    [
        (highest, {}),
        (concept_frequency, {}),
        pytest.param(concept_diversity, {"target": 2}, marks=pytest.mark.full),
    ],
)
def test_rules(rule, options):
    check_rule(rule, **options)


@pytest.mark.parametrize("loss, options", [(drrho, {}), (distilled, {"loss": "softmax", "weight": 0.5})])
def test_losses(loss, options):
    check_loss(loss, **options)


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
