"""How learnable the batches are that each rule selects, on a problem with structure.

What is learnable together isn't what is learnable alone: the learner sees a few topics and little else of an
example, so pairs that share a topic confuse it, and the reference separates them. Pairs that are strong in a
topic match well by themselves. Their own learnability is low, so independent selection leaves them out.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support.structured import sigmoid_matrix

from jestlab.models.selection import Embeddings, select

SUPER_BATCH = 1280
SUB_BATCH = 256
RULES: dict[str, dict[str, Any]] = {
    "independent": {"rule": "independent"},
    "joint": {"rule": "joint", "chunks": 16},
    "gibbs": {"rule": "gibbs", "sweeps": 1},
    "greedy": {"rule": "greedy"},
}


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def problem(seed, width=64, topics=4):
    """Embeddings of a super-batch by learner and reference, in float32."""
    rng = np.random.default_rng(seed)

    def noise():
        return unit(rng.normal(size=(SUPER_BATCH, width)))

    directions = unit(rng.normal(size=(topics, width)))
    shares = rng.dirichlet(np.ones(topics), SUPER_BATCH)
    topic = rng.gamma(2.0, 0.5, size=(SUPER_BATCH, 1)) * shares @ directions
    own = noise()
    models = ((topic + own, 0.5), (0.2 * topic + own, 0.3))
    pairs = [[unit(signal + scale * noise()) for _ in range(2)] for signal, scale in models]
    return [Embeddings(*(jnp.asarray(x, jnp.float32) for x in (*z, 20.0, -10.0))) for z in pairs]


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]
)
def test_joint_selection_finds_learnable_batches(seed):
    """Quality is 0 for the mean of random batches, and 1 for the greedy one: test_select checks its draws."""
    models = problem(seed)
    matrix = sigmoid_matrix(*models)
    chosen = {
        name: select(jax.random.key(seed), *models, batch_size=SUB_BATCH, **rule).indices
        for name, rule in RULES.items()
    }
    scores = {name: matrix[np.ix_(batch, batch)].sum() / SUB_BATCH for name, batch in chosen.items()}
    own = np.trace(matrix) / SUPER_BATCH
    zero = own + (matrix.mean() * SUPER_BATCH - own) * (SUB_BATCH - 1) / (SUPER_BATCH - 1)
    quality = {name: (score - zero) / (scores["greedy"] - zero) for name, score in scores.items()}
    assert abs(quality["independent"]) <= 0.1
    assert 0.92 <= quality["joint"] < 1
    # Gibbs sampling with as many draws as the sub-batch has examples.
    assert quality["joint"] > quality["gibbs"] > 0.5
