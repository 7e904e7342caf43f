"""Algorithm 1 as it should have been printed, with all pairs in one matrix: for reading, and as an oracle.

Readable, not scalable: a matrix of B² scores, and work of N B². `select` draws the same indices without it.

Where this departs from the printed algorithms, and why:

* The print's first `choice(logits_ii, n)` draws values at random; here indices are drawn in proportion to
  exp(score), as the text says.
* The print samples each chunk with replacement from unnormalised, overflowing `exp(logits)`. Here a chunk is
  drawn without replacement by Gumbel top-k, which is exactly successive draws in proportion to exp(score)
  (Plackett–Luce) and needs no exponential.
* Chosen examples are excluded by −inf, not by subtracting 1e8, which would swallow the scores' digits.
* `int(B (1 − f) / N)` loses examples to floating error (2047 instead of 2048 at f = .8). Here b is given;
  the first b mod N chunks hold one example more than the others.
* The text puts 1/b inside the exponent, the code multiplies the sum by `softmax_score_gain` = 100. Here the
  gain is an explicit factor on the sum, applied after the largest score is subtracted.
* The text's conditional is one-directional; like the code, both directions count (image→text, text→image).
* The softmax variant: see `conditional.SoftmaxScores`.

Letters: B super-batch, b sub-batch, N chunks, S scores [B, B], C the chosen.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..losses import pairwise_sigmoid_loss
from ..two_towers import Embeddings
from .criteria import terms
from .rules import chunk_sizes
from .sampling import gumbel


def jointly_sample_batch(
    key: jax.Array,
    learner: Embeddings | None,
    reference: Embeddings | None,
    *,
    batch_size: int,
    criterion: str = "learnability",
    loss: str = "sigmoid",
    chunks: int = 16,
    gain: float = 100.0,
) -> tuple[jax.Array, jax.Array]:
    """Algorithm 1; with one chunk, independent selection. Arguments are those of `select`.

    Returns:
        int32 [b], indices, chunk by chunk, each ascending; float32 [N, B], the conditional scores that
        each chunk was drawn by.
    """
    super_batch = next(z.image.shape[0] for z in (learner, reference) if z is not None)
    is_sampled = jnp.zeros(super_batch, bool)
    inds, scores = [], []
    if loss == "sigmoid":  # all that rounds need of the embeddings, once
        matrix = score_matrix(criterion, learner, reference)
    for round_key, size in zip(jax.random.split(key, chunks), chunk_sizes(batch_size, chunks), strict=True):
        if loss == "sigmoid":
            conditional = conditional_scores(matrix, is_sampled)
        else:
            conditional = softmax_scores(criterion, learner, reference, is_sampled)
        relative = gain * (conditional - conditional.max(where=~is_sampled, initial=-jnp.inf))
        perturbed = jnp.where(is_sampled, -jnp.inf, relative + gumbel(round_key, super_batch))
        _, new_inds = jax.lax.top_k(perturbed, size)
        is_sampled = is_sampled.at[new_inds].set(True)
        inds.append(jnp.sort(new_inds))
        scores.append(conditional)
    return jnp.concatenate(inds).astype(jnp.int32), jnp.stack(scores)


def score_matrix(criterion: str, learner: Embeddings | None, reference: Embeddings | None) -> jax.Array:
    """S: the sigmoid scores of every image with every text, without gain; the pairs' own on the diagonal.

    Args:
        criterion: As of `criteria.terms`.
        learner: Embeddings of B pairs.
        reference: The same by the reference.

    Returns:
        float32 [B, B].

    Raises:
        ValueError: As `criteria.terms`.
    """
    signs, models = terms(criterion, learner, reference)
    matrix = jnp.zeros((), jnp.float32)
    for sign, z in zip(signs, models, strict=True):
        matrix += sign * pairwise_sigmoid_loss(z)
    return matrix


def conditional_scores(matrix: jax.Array, is_sampled: jax.Array) -> jax.Array:
    """S_ii + Σ_{j ∈ C} (S_ij + S_ji), float32 [B], from S [B, B] and C as bool [B]."""
    logits_ij = (matrix * is_sampled[:, None]).sum(axis=0)
    logits_ji = (matrix * is_sampled[None, :]).sum(axis=1)
    conditional: jax.Array = jnp.diagonal(matrix) + logits_ij + logits_ji
    return conditional


def softmax_scores(
    criterion: str, learner: Embeddings | None, reference: Embeddings | None, is_sampled: jax.Array
) -> jax.Array:
    """Σ ± [½ (log Σ_{j ∈ C ∪ i} e^s_ij + log Σ_{j ∈ C ∪ i} e^s_ji) − s_ii], or Σ ± (−s_ii) where C is empty.

    Args:
        criterion: As of `criteria.terms`.
        learner: Embeddings of B pairs.
        reference: The same by the reference.
        is_sampled: bool [B], C.

    Returns:
        float32 [B].
    """
    signs, models = terms(criterion, learner, reference)
    counts = is_sampled | jnp.eye(len(is_sampled), dtype=bool)  # row i: the chosen, and i itself
    total = jnp.zeros((), jnp.float32)
    for sign, z in zip(signs, models, strict=True):
        products = jnp.dot(z.image, z.text.T, precision="highest", preferred_element_type=jnp.float32)
        s = z.temperature * products
        over_texts, over_images = (jax.nn.logsumexp(jnp.where(counts, x, -jnp.inf), axis=1) for x in (s, s.T))
        denominators = jnp.where(is_sampled.any(), 0.5 * (over_texts + over_images), 0.0)
        total += sign * (denominators - jnp.diagonal(s))
    return total
