"""Softmax distillation added to a contrastive loss (Udandarao et al., 2025, arXiv:2411.18674).

    L = L_contrastive(θ) + λ L_dist,
    L_dist = −1/(2b) Σ_i Σ_j [ p*_ij log p_ij + q*_ij log q_ij ]

where p_ij = softmax_j(s_ij) over the texts j of a batch and q_ij = softmax_j(s_ji) over its images, by the
learner. p* and q* are the same by the reference, each model with its temperature. With uniform selection,
this is the paper's Softmax-KD. With joint selection by the same reference, it is ACED in the variant
ACIDistill, which selects one batch for both terms.

Letters: b batch, s_ij = t z^im_i · z^txt_j, λ weight of the distillation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jestlab.models.losses import loss_function
from jestlab.models.selection import Embeddings
from jestlab.models.selection.scores import similarity


def distilled(
    z: Embeddings, reference: Embeddings, *, weight: float = 1.0, loss: str = "sigmoid"
) -> jax.Array:
    """Compute the contrastive loss plus the weighted distillation from the reference, float32 [].

    Args:
        z: Embeddings of b pairs by the learner.
        reference: Embeddings of the same pairs by the reference, of any width; treated as constants.
        weight: λ.
        loss: The contrastive loss, "sigmoid" or "softmax".
    """
    contrastive = loss_function(loss, 1, "")(z)
    return contrastive + weight * distillation_loss(z, reference)


def distillation_loss(z: Embeddings, reference: Embeddings) -> jax.Array:
    """Compute L_dist, the cross-entropy of the learner's matching relative to the reference's, float32 []."""
    # The bias cancels in every softmax.
    logits, targets = (similarity(each.image, each.text, each.temperature) for each in (z, reference))
    targets = jax.lax.stop_gradient(targets)
    crossed = [
        -jnp.sum(jax.nn.softmax(targets, axis) * jax.nn.log_softmax(logits, axis), axis) for axis in (1, 0)
    ]
    return 0.5 * (crossed[0].mean() + crossed[1].mean())
