"""The losses against float64 NumPy written from the equations, on one device and on several."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support import own_code
from tests.models.support.virtual_devices import on_devices

from jestlab.models.devices import AXIS
from jestlab.models.losses import loss_function, score_matrix, sigmoid_loss, softmax_loss
from jestlab.models.methods.distillation import distilled
from jestlab.models.selection import Embeddings


def logits(z):
    """t z·z in float64."""
    image, text = np.asarray(z.image, np.float64), np.asarray(z.text, np.float64)
    return float(z.temperature) * image @ text.T


def oracle(z):
    """−log σ(m (t z·z + b)) in float64, by the definition."""
    m = 2 * np.eye(len(z.image)) - 1
    return -np.log(1 / (1 + np.exp(-m * (logits(z) + float(z.bias)))))


@pytest.mark.parametrize("n, width", [(1, 4), (7, 16)])
def test_sigmoid_loss_is_the_equation(embeddings, n, width):
    """The mean over images of the sum over texts: divided by n, not by n²."""
    z = embeddings(n, width)
    np.testing.assert_allclose(score_matrix("hard_learner", z, None), oracle(z), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(sigmoid_loss(z), oracle(z).sum() / n, rtol=1e-5)


def test_softmax_loss_is_the_equation(embeddings):
    z = embeddings(7, 16)
    s = logits(z)
    both = np.log(np.exp(s).sum(axis=1)) + np.log(np.exp(s).sum(axis=0))
    np.testing.assert_allclose(softmax_loss(z), np.mean(0.5 * both - np.diag(s)), rtol=1e-5)


def test_huge_logits_stay_finite_in_value_and_gradient(embeddings):
    z = embeddings(8, 16, temperature=1e6, bias=0.0)
    loss, gradient = jax.jit(jax.value_and_grad(lambda image: sigmoid_loss(z._replace(image=image))))(z.image)
    assert jnp.isfinite(loss)
    assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize("kind", ["sigmoid", "softmax", own_code.decoupled, distilled])
def test_shares_of_devices_sum_to_the_loss_and_its_gradient(embeddings, kind):
    z, reference = embeddings(12, 8, temperature=5.0, bias=-2.0), embeddings(12, 6, seed=1)

    def share(devices, scalars, image, text, *theirs):
        both = {"reference": Embeddings(*theirs, *reference[2:])} if kind is distilled else {}
        return loss_function(kind, devices, AXIS)(Embeddings(image, text, *scalars), **both)

    def loss(devices, image, text, *scalars):
        of_rows = functools.partial(share, devices, scalars)
        return on_devices(devices, of_rows, image, text, *reference[:2]).sum()

    found, expected = (
        jax.jit(jax.value_and_grad(functools.partial(loss, devices), argnums=(0, 1, 2, 3)))(*z)
        for devices in (4, 1)
    )
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_rejects_an_unknown_loss():
    with pytest.raises(ValueError, match="unknown loss 'hinge': expected sigmoid or softmax"):
        loss_function("hinge", 1, AXIS)
