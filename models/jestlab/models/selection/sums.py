"""Sums over the pairs of all candidates with one chunk, block by block: no matrix of all pairs exists.

A sum goes over the pairs of candidate i with the examples j of the chunk, in both directions: image i with
text j, and text i with image j. This implementation is for any backend; `fused` has one for TPU.

Letters: R rows (candidates of this device), c chunk, E embedding width, s_ij = t z^im_i · z^txt_j.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jestlab.models.two_towers import Embeddings

Result = TypeVar("Result")

Models = Sequence[Embeddings]
"""The embeddings of the same examples by each model."""

BLOCK_LOGITS = 1 << 19
"""Logits of one model and direction that exist at a time: 2 MB, in up to four such arrays. On CPU this is the
fastest of 2^15 to 2^20; on TPU they stay in VMEM."""

GPU_BLOCK_LOGITS = 1 << 24
"""The same on GPU, where many small kernels would mostly wait: a guess, not measured."""


def sigmoid_sums(
    signs: Sequence[float], models: Sequence[Embeddings], chunk: Sequence[Embeddings]
) -> jax.Array:
    """Compute Σ_j Σ_models ± [softplus(s_ij + b) + softplus(s_ji + b)], the losses of non-matching pairs.

    Models are subtracted pair by pair, before the sum, where their difference is still exact.

    Args:
        signs: The sign of each model.
        models: Each model's embeddings of R candidates.
        chunk: Each model's embeddings of c examples.

    Returns:
        float32 [R].
    """

    def block(rows: Rows) -> jax.Array:
        total = jnp.float32(0.0)
        for sign, (image, text), z in zip(signs, rows, chunk, strict=True):
            losses = softplus(logits(image, z.text, z)) + softplus(logits(text, z.image, z))
            total = total + sign * losses
        return jnp.sum(total, axis=1)

    return over_rows(block, [(z.image, z.text) for z in models], chunk[0].image.shape[0])


def softmax_sums(z: Embeddings, chunk: Embeddings) -> tuple[jax.Array, jax.Array]:
    """Compute log Σ_j exp(s_ij) and log Σ_j exp(s_ji) by one model.

    Args:
        z: Its embeddings of R candidates.
        chunk: Its embeddings of c examples.

    Returns:
        float32 [R] from images to texts, and from texts to images.
    """
    unbiased = chunk._replace(bias=jnp.float32(0.0))

    def block(rows: Rows) -> tuple[jax.Array, jax.Array]:
        ((image, text),) = rows
        return (
            jax.nn.logsumexp(logits(image, unbiased.text, unbiased), axis=1),
            jax.nn.logsumexp(logits(text, unbiased.image, unbiased), axis=1),
        )

    return over_rows(block, [(z.image, z.text)], chunk.image.shape[0])


Rows = list[tuple[jax.Array, jax.Array]]
"""Image and text embeddings of a block of candidates, by each model."""


def over_rows(block: Callable[[Rows], Result], rows: Rows, chunk_size: int) -> Result:
    """Compute block(rows), a bounded number of rows at a time.

    Where blocks do not divide the rows, the last one begins early and computes some rows again, so that
    nothing has to be padded or masked.

    Args:
        block: Function from rows of every model to arrays of as many rows.
        rows: All rows, of every model.
        chunk_size: c, the number of logits per row.
    """
    count = rows[0][0].shape[0]
    most_logits = GPU_BLOCK_LOGITS if jax.default_backend() == "gpu" else BLOCK_LOGITS
    most = max(1, min(count, most_logits // chunk_size))
    number = -(-count // most)
    if number == 1:
        return block(rows)
    size = -(-count // number)  # even blocks, so that few rows are computed twice

    def part(first: jax.Array) -> Result:
        return block(jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, size), rows))

    def put(index: jax.Array, whole: Result) -> Result:
        first = jnp.minimum(index * size, count - size)
        updated: Result = jax.tree.map(
            lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, first, 0), whole, part(first)
        )
        return updated

    empty = jax.tree.map(
        lambda like: jnp.zeros_like(rows[0][0][:, 0], like.dtype),
        jax.eval_shape(part, jnp.int32(0)),
    )
    sums: Result = jax.lax.fori_loop(0, number, put, empty)
    return sums


def logits(x: jax.Array, y: jax.Array, z: Embeddings) -> jax.Array:
    """Return t x · y + b, float32 [len(x), len(y)], in full float32 even where the hardware would round."""
    products = jnp.dot(x, y.T, precision="highest", preferred_element_type=jnp.float32)
    found: jax.Array = z.temperature * products + z.bias
    return found


def softplus(x: jax.Array) -> jax.Array:
    """Return log(1 + e^x) = max(x, 0) + log1p(e^−|x|).

    `jax.nn.softplus` agrees to 1 ulp and is half as fast on CPU, because it handles infinities.
    """
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


class Sums(NamedTuple):
    """A way to sum over the pairs of all candidates with a chunk: the functions here, or those of `fused`."""

    sigmoid: Callable[[Sequence[float], Models, Models], jax.Array]
    softmax: Callable[[Embeddings, Embeddings], tuple[jax.Array, jax.Array]]


BLOCKS = Sums(sigmoid_sums, softmax_sums)
