"""The loss of DRRho-CLIP: distributionally robust learning with a reference (Wei et al., 2025).

Model Steering, arXiv:2505.06699. Let Δ_ij = c_ij − c_ii, the cosine of image i with text j minus that with
its own text, and Δ*_ij the same by the reference. Each image, and likewise each text, has the risk

    F_i = τ log( 1/(b−1) Σ_{j≠i} exp((Δ_ij − Δ*_ij) / τ) ) + τ ρ,        L = ½ mean_i (F_i^im + F_i^txt).

The risk is the largest mean of Δ_ij − Δ*_ij over weights p_j of the negatives within a divergence ρ of
uniform weights. Its gradient weighs each negative in proportion to exp((Δ_ij − Δ*_ij) / τ): negatives that
the reference separates and the learner does not count most. Without Δ* it is the loss of FastCLIP; also
without ρ it is that of CLIP without the positive pair in the denominator. The temperature τ = 1/t is
learned.

Departures from the authors' code (github.com/Optimization-AI/DRRho-CLIP):

* The mean over negatives is that of the batch, their γ = 1. Their moving average for each example of the data
  set corrects the bias of small batches, but needs memory for every example.
* They add ε = 1e-14 to the mean and bound τ from below; neither is needed here.

Letters: b batch, c_ij cosine of image i and text j, τ temperature, ρ radius of the divergence.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jestlab.models.selection import Embeddings


def drrho(z: Embeddings, reference: Embeddings, *, rho: float = 8.0) -> jax.Array:
    """Compute the loss of DRRho-CLIP, float32 [].

    Args:
        z: Embeddings of b pairs by the learner; τ is 1 / `z.temperature`, and the bias is not used.
        reference: Embeddings of the same pairs by the reference, of any width; treated as constants. The
            reference's temperature is not used.
        rho: ρ; 8 in the authors' code. A smaller ρ leads to a higher learned τ.

    Raises:
        ValueError: The batch has one pair, and therefore no negatives.
    """
    b = z.image.shape[0]
    if b < 2:
        raise ValueError(f"the loss of DRRho needs negatives: a batch of {b} has none")
    excess = _differences(z) - jax.lax.stop_gradient(_differences(reference))
    logits = jnp.where(jnp.eye(b, dtype=bool), -jnp.inf, z.temperature * excess)  # of [i, j], both directions
    risks = jax.nn.logsumexp(logits, axis=2) - math.log(b - 1) + rho
    loss: jax.Array = jnp.mean(risks) / z.temperature
    return loss


def _differences(z: Embeddings) -> jax.Array:
    """Return Δ, float32 [2, b, b], of images with texts and of texts with images."""
    cosines = jnp.dot(z.image, z.text.T, precision="highest", preferred_element_type=jnp.float32)
    own: jax.Array = jnp.diagonal(cosines)[:, None]
    return jnp.stack([cosines, cosines.T]) - own
