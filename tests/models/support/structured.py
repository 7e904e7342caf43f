"""A selection problem with structure: what is learnable together is not what is learnable alone.

The learner sees a few topics and little else of an example, so that pairs which share a topic confuse it;
the reference tells them apart. Pairs strong in a topic match well by themselves, so their own learnability is
low, and they are what independent selection leaves out.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jestlab.models.two_towers import Embeddings

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]


def problem(
    seed: int, super_batch: int = 1280, width: int = 64, topics: int = 4
) -> tuple[Embeddings, Embeddings]:
    """Embeddings of a super-batch by learner and reference."""
    rng = np.random.default_rng(seed)

    def noise() -> Floats:
        return unit(rng.normal(size=(super_batch, width)))

    directions = unit(rng.normal(size=(topics, width)))
    shares = rng.dirichlet(np.ones(topics), super_batch)
    topic = rng.gamma(2.0, 0.5, size=(super_batch, 1)) * shares @ directions
    own = noise()
    learner = (unit(topic + own + 0.5 * noise()), unit(topic + own + 0.5 * noise()))
    told_apart = 0.2 * topic + own
    reference = (unit(told_apart + 0.3 * noise()), unit(told_apart + 0.3 * noise()))
    return embeddings(*learner, 20.0, -10.0), embeddings(*reference, 20.0, -10.0)


def embeddings(image: Floats, text: Floats, temperature: float, bias: float) -> Embeddings:
    """In float32."""
    return Embeddings(*(jnp.asarray(x, jnp.float32) for x in (image, text, temperature, bias)))


def unit(x: Floats) -> Floats:
    """Rows of length 1."""
    rows: Floats = x / np.linalg.norm(x, axis=1, keepdims=True)
    return rows


def pairs(n: int, width: int, seed: int, temperature: float = 10.0, bias: float = -5.0) -> Embeddings:
    """Random pairs whose image and text are somewhat alike."""
    rng = np.random.default_rng(seed)
    image, other = rng.normal(size=(2, n, width))
    return embeddings(unit(image), unit(0.3 * image + 0.7 * other), temperature, bias)


def sigmoid_matrix(learner: Embeddings | None, reference: Embeddings | None) -> Floats:
    """S in float64: learnability, or the criterion of the one that is given."""
    matrix: Floats = np.zeros(())
    for sign, z in ((1.0, learner), (-1.0, reference)):
        if z is not None:
            image, text, t, b = (np.asarray(x, np.float64) for x in z)
            logits = t * image @ text.T + b
            matrix = matrix + sign * np.logaddexp(0.0, np.where(np.eye(len(logits)), -1.0, 1.0) * logits)
    return matrix


def batch_score(matrix: Floats, chosen: Ints) -> float:
    """The score of a sub-batch: 1/b Σ_i Σ_j S_ij over it."""
    return float(matrix[np.ix_(chosen, chosen)].sum() / len(chosen))


def climbed(matrix: Floats, start: Ints, choices: int = 40) -> Ints:
    """The best sub-batch that swapping one example at a time leads to."""
    both, own = matrix + matrix.T, np.diag(matrix)
    inside = np.zeros(len(matrix), bool)
    inside[start] = True
    ties = both[:, inside].sum(axis=1)  # a member's to itself included
    while True:
        members, others = np.flatnonzero(inside), np.flatnonzero(~inside)
        leaving = members[np.argsort((ties - own)[members])[:choices]]
        coming = others[np.argsort(-(ties + own)[others])[:choices]]
        gains = (ties + own)[coming] - (ties - own)[leaving][:, None] - both[np.ix_(leaving, coming)]
        best = np.unravel_index(gains.argmax(), gains.shape)
        if gains[best] <= 1e-9:
            return members
        out, new = leaving[best[0]], coming[best[1]]
        inside[out], inside[new] = False, True
        ties += both[:, new] - both[:, out]
