"""Softmax distillation against a float64 NumPy reading of its equation."""

import jax
import numpy as np
import pytest

from jestlab.models.losses import sigmoid_loss, softmax_loss
from jestlab.models.methods.distillation import distillation_loss, distilled


def logits(z):
    return float(z.temperature) * np.asarray(z.image, np.float64) @ np.asarray(z.text, np.float64).T


def log_softmax(s, axis):
    return s - np.log(np.exp(s).sum(axis=axis, keepdims=True))


def oracle(z, reference):
    """L_dist = −1/(2b) Σ_i Σ_j [p*_ij log p_ij + q*_ij log q_ij]."""
    total = 0.0
    for axis in (1, 0):
        p, teacher = log_softmax(logits(z), axis), np.exp(log_softmax(logits(reference), axis))
        total -= (teacher * p).sum()
    return total / (2 * len(z.image))


@pytest.mark.parametrize("loss, of", [("sigmoid", sigmoid_loss), ("softmax", softmax_loss)])
def test_the_loss_is_the_equation(embeddings, loss, of):
    z, reference = embeddings(12, 8), embeddings(12, 20, seed=1, temperature=3.0)
    found = jax.jit(lambda *both: distilled(*both, weight=2.0, loss=loss) - of(both[0]))(z, reference)
    np.testing.assert_allclose(found, 2.0 * oracle(z, reference), rtol=1e-4)


def test_the_gradient_is_the_difference_of_softmaxes(embeddings):
    """∂L_dist / ∂s = (p − p* + q − q*) / (2b), carried to the images by the texts; none to the reference."""
    z, reference = embeddings(9, 8), embeddings(9, 8, seed=1)
    gradients = jax.grad(
        lambda image, other: distillation_loss(z._replace(image=image), reference._replace(image=other)),
        argnums=(0, 1),
    )
    found, theirs = jax.jit(gradients)(z.image, reference.image)
    by_logits = sum(
        np.exp(log_softmax(logits(z), axis)) - np.exp(log_softmax(logits(reference), axis)) for axis in (1, 0)
    ) / (2 * 9)
    expected = float(z.temperature) * by_logits @ np.asarray(z.text, np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert not np.asarray(theirs).any()
