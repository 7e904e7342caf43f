"""The loss of DRRho-CLIP: distributionally robust learning beside a reference (Wei et al., 2025).

Model Steering, arXiv:2505.06699. With Δ_ij = c_ij − c_ii, the cosine by which text j is nearer to image i
than its own text is, and Δ*_ij the same by the reference, each image and each text has the risk

    F_i = τ log( 1/(b−1) Σ_{j≠i} exp((Δ_ij − Δ*_ij) / τ) ) + τ ρ,        L = ½ mean_i (F_i^im + F_i^txt).

It is the largest mean of Δ_ij − Δ*_ij under weights p_j of the negatives within a divergence ρ of equal ones,
and its gradient weighs each negative in proportion to exp((Δ_ij − Δ*_ij) / τ): one that the reference tells
apart and the learner does not counts most. Without Δ* it is the loss of FastCLIP, and without ρ that of CLIP
but for the positive pair in the denominator. The temperature τ is learned and is 1/t here.

Departures from the authors' code (github.com/Optimization-AI/DRRho-CLIP):

* The mean over negatives is that of the batch, their γ = 1. They go on with a moving average for each example
  of the data set, which corrects the bias of small batches and needs memory for every example.
* Their logarithm is of the mean plus ε = 1e-14, and their τ has a lower bound; neither is needed here.

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
        z: The learner's embeddings of b pairs; τ is 1 / `z.temperature`, the bias has no part in it.
        reference: The reference's of the same pairs, at any width; no gradient reaches them, and its own
            temperature has no part in it.
        rho: ρ; 8 in the authors' code. The smaller it is, the higher the temperature that is learned.

    Raises:
        ValueError: A batch of one pair has no negatives.
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
    """Return Δ, float32 [2, b, b]: of images with texts, and of texts with images."""
    cosines = jnp.dot(z.image, z.text.T, precision="highest", preferred_element_type=jnp.float32)
    own: jax.Array = jnp.diagonal(cosines)[:, None]
    return jnp.stack([cosines, cosines.T]) - own
