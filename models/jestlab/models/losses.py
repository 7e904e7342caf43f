"""The sigmoid-contrastive loss (Zhai et al., 2023; Eq. 2 of the JEST paper).

Letters: n batch, z^im and z^txt unit embeddings, t temperature (the paper's α), b bias.

The paper's equation writes the logit as α z^im·z^txt − β, its pseudo-code as α z^im·z^txt + β. The code's
sign is the one of SigLIP's public code and is used here: b here is −β of the equation, and starts at −10.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .two_towers import Embeddings


def pairwise_sigmoid_loss(z: Embeddings) -> jax.Array:
    """The loss of every image with every text of a batch.

    ℓ[i, j] = −log σ(m_ij (t z^im_i · z^txt_j + b)), with m_ij = 1 on the diagonal and −1 off it,
    as softplus(−m_ij · logit), which overflows nowhere.

    Args:
        z: Embeddings of n pairs.

    Returns:
        float32 [n, n]; rows are images, columns are texts.
    """
    logits = z.temperature * jnp.dot(z.image, z.text.T, preferred_element_type=jnp.float32) + z.bias
    n = logits.shape[0]
    m = 2.0 * jnp.eye(n, dtype=logits.dtype) - 1.0
    return jax.nn.softplus(-m * logits)


def sigmoid_loss(z: Embeddings) -> jax.Array:
    """Mean over images of the sum over texts: divided by n, not by n².

    Args:
        z: Embeddings of n pairs.

    Returns:
        float32 [].
    """
    return pairwise_sigmoid_loss(z).sum(axis=-1).mean()
