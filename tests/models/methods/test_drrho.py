"""The loss of DRRho-CLIP against a float64 NumPy reading of its paper."""

import jax
import numpy as np
import pytest

from jestlab.models.methods.drrho import drrho


def cosines_of(z):
    return np.asarray(z.image, np.float64) @ np.asarray(z.text, np.float64).T


def risks(z, reference, rho):
    """F_i of every image, then of every text, one by one."""
    tau = 1.0 / float(z.temperature)
    cosines, theirs = cosines_of(z), cosines_of(reference)
    found = []
    for c, r in ((cosines, theirs), (cosines.T, theirs.T)):
        for i in range(len(c)):
            excess = [(c[i, j] - c[i, i]) - (r[i, j] - r[i, i]) for j in range(len(c)) if j != i]
            found.append(tau * np.log(np.mean(np.exp(np.array(excess) / tau))) + tau * rho)
    return found


@pytest.mark.parametrize("rho, temperature", [(8.0, 14.0), (0.5, 1.0), (0.5, 100.0)])
def test_the_loss_is_the_mean_of_the_risks(embeddings, rho, temperature):
    z, reference = embeddings(10, 8, temperature=temperature), embeddings(10, 24, seed=1)
    np.testing.assert_allclose(
        drrho(z, reference, rho=rho), np.mean(risks(z, reference, rho)), rtol=1e-5, atol=1e-6
    )


def test_the_gradient_weighs_negatives_by_what_only_the_reference_separates(embeddings):
    """∂F_i / ∂c_ij = p_ij, with p_ij in proportion to exp((Δ_ij − Δ*_ij) / τ)."""
    z, reference, b = embeddings(7, 7, seed=5, temperature=4.0), embeddings(7, 7, seed=6), 7
    found = jax.jit(jax.grad(lambda text: drrho(z._replace(text=text), reference)))(z.text)
    cosines, theirs = cosines_of(z), cosines_of(reference)
    of_cosines = np.zeros((b, b))
    for c, r, out in ((cosines, theirs, of_cosines), (cosines.T, theirs.T, of_cosines.T)):
        excess = (c - np.diag(c)[:, None]) - (r - np.diag(r)[:, None])
        p = np.where(np.eye(b, dtype=bool), 0.0, np.exp(4.0 * excess))
        p /= p.sum(axis=1, keepdims=True)
        out += p - np.eye(b)
    np.testing.assert_allclose(
        found, of_cosines.T @ np.asarray(z.image, np.float64) / (2 * b), rtol=1e-4, atol=1e-6
    )


def test_rejects_a_batch_without_negatives(embeddings):
    with pytest.raises(ValueError, match="a batch of 1 has none"):
        drrho(embeddings(1), embeddings(1))
