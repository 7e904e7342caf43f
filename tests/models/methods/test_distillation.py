"""Softmax distillation against a float64 NumPy reading of its equation."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jestlab.models.losses import sigmoid_loss, softmax_loss
from jestlab.models.methods.distillation import distillation_loss, distilled
from jestlab.platform.contracts.training import check_loss


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
    expected = float(of(z)) + 2.0 * oracle(z, reference)
    np.testing.assert_allclose(distilled(z, reference, weight=2.0, loss=loss), expected, rtol=1e-5)


def test_the_gradient_is_the_difference_of_softmaxes(embeddings):
    """∂L_dist / ∂s = (p − p* + q − q*) / (2b), carried to the images by the texts; none to the reference."""
    z, reference = embeddings(9, 8), embeddings(9, 8, seed=1)
    found, theirs = jax.grad(
        lambda image, other: distillation_loss(z._replace(image=image), reference._replace(image=other)),
        argnums=(0, 1),
    )(z.image, reference.image)
    by_logits = sum(
        np.exp(log_softmax(logits(z), axis)) - np.exp(log_softmax(logits(reference), axis)) for axis in (1, 0)
    ) / (2 * 9)
    expected = float(z.temperature) * by_logits @ np.asarray(z.text, np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert not np.asarray(theirs).any()


def test_a_learner_like_its_reference_has_the_least_loss(embeddings):
    z = embeddings(16, 8)
    _, of_learner = jax.value_and_grad(lambda x: distillation_loss(z._replace(image=x), z))(z.image)
    np.testing.assert_allclose(of_learner, 0.0, atol=1e-6)


def test_it_is_a_loss():
    check_loss(distilled)
    check_loss(distilled, loss="softmax", weight=0.5)
