"""negCLIPLoss: quality of a pair by a model's contrastive loss (Wang et al., 2024, arXiv:2405.19547).

    negCLIPLoss_i = c_ii − τ/K Σ_k ½ [ log Σ_{j ∈ B_k} exp(c_ij / τ) + log Σ_{j ∈ B_k} exp(c_ji / τ) ]

for the cosine c_ij of image i and text j and K random divisions of the data set into batches, of which B_k is
the one that holds i. The first term is CLIPScore; the second lowers what goes with everything, such as a
caption that says little.

Departure from the authors' code (github.com/ypwang61/negCLIPLoss_NormSim): the last batch of a division is
filled up with others of it, so that no pair meets fewer.

Letters: n examples, b batch, K divisions, τ temperature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jestlab.models.selection import Embeddings
from jestlab.models.selection.fused import best_sums

Rows = npt.NDArray[np.float32]


def clip_scores(images: Rows, texts: Rows) -> Rows:
    """Return c_ii, float32 [n], for unit embeddings float32 [n, E]."""
    return np.asarray(np.einsum("ne,ne->n", images, texts), np.float32)


def negative_clip_loss(
    images: Rows,
    texts: Rows,
    *,
    temperature: float,
    batch_size: int,
    repeats: int,
    seed: int,
    advance: Callable[[], Any] = lambda: None,
) -> Rows:
    """Compute negCLIPLoss of every pair.

    Args:
        images: float32 [n, E], unit embeddings.
        texts: float32 [n, E], of the same pairs.
        temperature: τ.
        batch_size: b; all pairs are one batch if there are fewer.
        repeats: K.
        seed: Of the divisions.
        advance: Called after each batch.

    Returns:
        float32 [n]; higher is better.
    """
    n = len(images)
    size = min(batch_size, n)
    norms, rng = np.zeros(n), np.random.default_rng(seed)
    sums = best_sums()

    @jax.jit
    def log_sums(image: jax.Array, text: jax.Array) -> jax.Array:
        z = Embeddings(image, text, jnp.float32(1.0 / temperature), jnp.float32(0.0))
        over_texts, over_images = sums.softmax(z, z)
        return 0.5 * (over_texts + over_images)

    for _ in range(repeats):
        order = rng.permutation(n)
        for first in range(0, n, size):
            batch = order[first : first + size]
            filled = np.concatenate([batch, order[: size - len(batch)]])
            norms[batch] += np.asarray(log_sums(images[filled], texts[filled]))[: len(batch)]
            advance()
    return np.asarray(clip_scores(images, texts) - temperature * norms / repeats, np.float32)
