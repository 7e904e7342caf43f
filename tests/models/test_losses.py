"""The sigmoid loss against a float64 NumPy oracle written from the equation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jestlab.models.losses import pairwise_sigmoid_loss, sigmoid_loss


def oracle(z):
    """−log σ(m (t z·z + b)) in float64, by the definition."""
    image, text = np.asarray(z.image, np.float64), np.asarray(z.text, np.float64)
    logits = float(z.temperature) * image @ text.T + float(z.bias)
    m = 2 * np.eye(len(image)) - 1
    return -np.log(1 / (1 + np.exp(-m * logits)))


@pytest.mark.parametrize("n, width", [(1, 4), (7, 16), (64, 48)])
def test_pairwise_loss_is_the_equation(embeddings, n, width):
    z = embeddings(n, width)
    np.testing.assert_allclose(pairwise_sigmoid_loss(z), oracle(z), rtol=2e-5, atol=1e-6)


def test_loss_is_divided_by_the_batch_and_not_by_its_square(embeddings):
    z = embeddings(32, 16)
    np.testing.assert_allclose(sigmoid_loss(z), oracle(z).sum() / 32, rtol=1e-5)


@pytest.mark.parametrize("temperature", [1e4, 1e6])
def test_huge_logits_stay_finite_in_value_and_gradient(embeddings, temperature):
    z = embeddings(8, 16, temperature=temperature, bias=0.0)
    loss, gradient = jax.value_and_grad(lambda image: sigmoid_loss(z._replace(image=image)))(z.image)
    assert jnp.isfinite(loss)
    assert jnp.isfinite(gradient).all()


def test_gradient_is_that_of_the_oracle(embeddings):
    z = embeddings(6, 5)
    gradient = np.asarray(jax.grad(lambda image: sigmoid_loss(z._replace(image=image)))(z.image))
    h = 1e-6
    for i, k in [(0, 0), (3, 2), (5, 4)]:
        bump = np.zeros((6, 5))
        bump[i, k] = h
        image = np.asarray(z.image, np.float64)
        up, down = (oracle(z._replace(image=image + s * bump)).sum() / 6 for s in (1, -1))
        np.testing.assert_allclose(gradient[i, k], (up - down) / (2 * h), rtol=1e-3, atol=1e-4)
