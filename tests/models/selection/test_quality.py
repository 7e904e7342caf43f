"""How learnable the batches are that each rule selects, on a problem with structure.

What is learnable together isn't what is learnable alone: the learner sees a few topics and little else of an
example, so pairs that share a topic confuse it, and the reference separates them. Pairs that are strong in a
topic match well by themselves. Their own learnability is low, so independent selection leaves them out.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from tests.models.support.structured import sigmoid_matrix

from jestlab.models.selection import Embeddings, select

Floats = npt.NDArray[np.float64]
SUPER_BATCH = 1280
SUB_BATCH = 256
RULES: dict[str, dict[str, Any]] = {
    "independent": {"rule": "independent"},
    "joint": {"rule": "joint", "chunks": 16},
    "gibbs": {"rule": "gibbs", "sweeps": 1},
    "greedy": {"rule": "greedy"},
}


def unit(x: Floats) -> Floats:
    rows: Floats = x / np.linalg.norm(x, axis=1, keepdims=True)
    return rows


def problem(seed: int, width: int = 64, topics: int = 4) -> list[Embeddings]:
    """Embeddings of a super-batch by learner and reference, in float32."""
    rng = np.random.default_rng(seed)

    def noise() -> Floats:
        return unit(rng.normal(size=(SUPER_BATCH, width)))

    directions = unit(rng.normal(size=(topics, width)))
    shares = rng.dirichlet(np.ones(topics), SUPER_BATCH)
    topic = rng.gamma(2.0, 0.5, size=(SUPER_BATCH, 1)) * shares @ directions
    own = noise()
    models = ((topic + own, 0.5), (0.2 * topic + own, 0.3))
    pairs = [[unit(signal + scale * noise()) for _ in range(2)] for signal, scale in models]
    return [Embeddings(*(jnp.asarray(x, jnp.float32) for x in (*z, 20.0, -10.0))) for z in pairs]


def batch_score(matrix: Floats, chosen: npt.NDArray[Any]) -> float:
    """The score of a sub-batch: 1/b Σ_i Σ_j S_ij over it."""
    return float(matrix[np.ix_(chosen, chosen)].sum() / len(chosen))


def climb(matrix: Floats, start: npt.NDArray[Any], choices: int = 40) -> npt.NDArray[Any]:
    """Swap one example at a time for a better one, until no swap improves the sub-batch."""
    both, own = matrix + matrix.T, np.diag(matrix)
    inside = np.zeros(len(matrix), bool)
    inside[start] = True
    links = both[:, inside].sum(axis=1)  # to all members; a member's link to itself is included
    while True:
        members, others = np.flatnonzero(inside), np.flatnonzero(~inside)
        leaving = members[np.argsort((links - own)[members])[:choices]]
        coming = others[np.argsort(-(links + own)[others])[:choices]]
        gains = (links + own)[coming] - (links - own)[leaving][:, None] - both[np.ix_(leaving, coming)]
        best = np.unravel_index(gains.argmax(), gains.shape)
        if gains[best] <= 1e-9:
            return members
        out, new = leaving[best[0]], coming[best[1]]
        inside[out], inside[new] = False, True
        links += both[:, new] - both[:, out]


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]
)
def test_joint_selection_finds_learnable_batches(seed):
    """Quality is 0 for a random batch and 1 for the best that climbing finds from any start."""
    models = problem(seed)
    matrix = sigmoid_matrix(*models)
    rng = np.random.default_rng(seed)
    random = [rng.choice(len(matrix), SUB_BATCH, replace=False) for _ in range(20)]
    chosen = {
        name: np.asarray(select(jax.random.key(seed), *models, batch_size=SUB_BATCH, **rule).indices)
        for name, rule in RULES.items()
    }
    zero = np.mean([batch_score(matrix, batch) for batch in random])
    one = max(batch_score(matrix, climb(matrix, start)) for start in [*random[:4], *chosen.values()])
    quality = {name: (batch_score(matrix, batch) - zero) / (one - zero) for name, batch in chosen.items()}
    assert quality["independent"] <= 0.1
    assert quality["joint"] >= 0.9
    # Gibbs sampling with as many draws as the sub-batch has examples.
    assert quality["joint"] > quality["gibbs"] > 0.5
    assert quality["greedy"] >= 0.95
