"""Random embeddings, and their scores in float64."""

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jestlab.models.selection import Embeddings

Floats = npt.NDArray[np.float64]


def pairs(n: int, width: int, seed: int, temperature: float = 10.0, bias: float = -5.0) -> Embeddings:
    """Random pairs whose image and text have something in common."""
    image, other = np.random.default_rng(seed).normal(size=(2, n, width))
    image /= np.linalg.norm(image, axis=1, keepdims=True)
    text = 0.3 * image + 0.7 * other
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    return Embeddings(*(jnp.asarray(x, jnp.float32) for x in (image, text, temperature, bias)))


def sigmoid_matrix(learner: Embeddings | None, reference: Embeddings | None) -> Floats:
    """S in float64: learnability, or the criterion of the one that is given."""
    matrix: Floats = np.zeros(())
    for sign, z in ((1.0, learner), (-1.0, reference)):
        if z is not None:
            image, text, t, b = (np.asarray(x, np.float64) for x in z)
            logits = t * image @ text.T + b
            matrix = matrix + sign * np.logaddexp(0.0, np.where(np.eye(len(logits)), -1.0, 1.0) * logits)
    return matrix
