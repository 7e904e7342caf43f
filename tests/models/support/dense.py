"""Algorithm 1 with all pairs in one matrix: readable, and the baseline of a benchmark.

It doesn't scale: it needs a matrix of B² scores and work of N B². How it departs from the print is
described in `jestlab.models.selection.jax`.

Letters: B super-batch, b sub-batch, N chunks, S scores [B, B], C the chosen.
"""

import jax
import jax.numpy as jnp

from jestlab.models.losses import score_matrix
from jestlab.models.selection import Embeddings
from jestlab.models.selection.criteria import chunk_sizes
from jestlab.models.selection.sampling import gumbel


def jointly_sample_batch(
    key: jax.Array,
    learner: Embeddings,
    reference: Embeddings,
    *,
    batch_size: int,
    loss: str = "sigmoid",
    chunks: int = 16,
    gain: float = 100.0,
    running: bool = False,
) -> jax.Array:
    """Algorithm 1; with one chunk, independent selection. Arguments are those of `select`, and:

    Args:
        running: Add only the new chunk's rows and columns to running sums, instead of summing over the
            whole matrix in each round.

    Returns:
        int32 [b], indices, chunk by chunk, each ascending.
    """
    is_sampled = jnp.zeros(learner.image.shape[0], bool)
    inds = []
    if loss == "sigmoid":
        matrix = score_matrix("learnability", learner, reference)
        conditional = jnp.diagonal(matrix)
    else:
        conditional = softmax_scores(learner, reference, is_sampled)
    for round_key, size in zip(jax.random.split(key, chunks), chunk_sizes(batch_size, chunks), strict=True):
        relative = gain * (conditional - conditional.max(where=~is_sampled, initial=-jnp.inf))
        perturbed = jnp.where(is_sampled, -jnp.inf, relative + gumbel(round_key, len(is_sampled)))
        _, new_inds = jax.lax.top_k(perturbed, size)
        is_sampled = is_sampled.at[new_inds].set(True)
        inds.append(jnp.sort(new_inds))
        if loss != "sigmoid":
            conditional = softmax_scores(learner, reference, is_sampled)
        elif running:
            conditional = conditional + matrix[new_inds].sum(axis=0) + matrix[:, new_inds].sum(axis=1)
        else:  # S_ii + Σ_{j ∈ C} (S_ij + S_ji)
            logits_ij = (matrix * is_sampled[:, None]).sum(axis=0)
            logits_ji = (matrix * is_sampled[None, :]).sum(axis=1)
            conditional = jnp.diagonal(matrix) + logits_ij + logits_ji
    return jnp.concatenate(inds).astype(jnp.int32)


def softmax_scores(learner: Embeddings, reference: Embeddings, is_sampled: jax.Array) -> jax.Array:
    """Differences of ½ (log Σ_{j ∈ C ∪ i} e^s_ij + log Σ_{j ∈ C ∪ i} e^s_ji) − s_ii, or −s_ii if C is empty.

    Returns:
        float32 [B].
    """
    counts = is_sampled | jnp.eye(len(is_sampled), dtype=bool)  # row i: the chosen, and i itself
    total = jnp.zeros((), jnp.float32)
    for sign, z in ((1, learner), (-1, reference)):
        products = jnp.dot(z.image, z.text.T, precision="highest", preferred_element_type=jnp.float32)
        s = z.temperature * products
        over_texts, over_images = (jax.nn.logsumexp(jnp.where(counts, x, -jnp.inf), axis=1) for x in (s, s.T))
        denominators = jnp.where(is_sampled.any(), 0.5 * (over_texts + over_images), 0.0)
        total += sign * (denominators - jnp.diagonal(s))
    return total
