"""Sums over a chunk's pairs, block by block: no array larger than a block of logits ever exists.

A sum goes over the pairs of all candidates i with the examples j of one chunk, in both directions, image i
with text j and text i with image j. This is XLA's way to it, for any backend; `fused` is Pallas's.

Letters: R rows (candidates of this device), c chunk, E embedding width, s_ij = t z^im_i · z^txt_j.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from ..two_towers import Embeddings

Result = TypeVar("Result")

Models = Sequence[Embeddings]
"""Each model's embeddings of the same examples."""

BLOCK_LOGITS = 1 << 19
"""Logits of one model and direction that exist at a time: 2 MB. Up to four such arrays do. On CPU the fastest
of 2^15 to 2^20; on TPU they stay in VMEM."""

GPU_BLOCK_LOGITS = 1 << 24
"""The same on GPU, where more and smaller kernels would mostly wait: a guess, not measured."""


def sigmoid_sums(
    signs: Sequence[float], models: Sequence[Embeddings], chunk: Sequence[Embeddings]
) -> jax.Array:
    """Σ_j Σ_models ± [softplus(s_ij + b) + softplus(s_ji + b)], the losses of non-matching pairs.

    Models are subtracted pair by pair, before the sum, where their difference is still exact.

    Args:
        signs: Of the models.
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
    """log Σ_j exp(s_ij) and log Σ_j exp(s_ji) of one model.

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
"""Of each model, image and text embeddings of a block of candidates."""


def over_rows(block: Callable[[Rows], Result], rows: Rows, chunk_size: int) -> Result:
    """block(rows), a bounded number of rows at a time.

    Where blocks do not divide the rows, the last one begins early and computes some rows again, so that there
    is nothing to pad and nothing to mask.

    Args:
        block: Rows of every model → arrays of as many rows.
        rows: Of every model.
        chunk_size: c, logits to a row.
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
    """t x · y + b, float32 [len(x), len(y)], in full float32 also where the hardware would rather round."""
    products = jnp.dot(x, y.T, precision="highest", preferred_element_type=jnp.float32)
    found: jax.Array = z.temperature * products + z.bias
    return found


def softplus(x: jax.Array) -> jax.Array:
    """log(1 + e^x) = max(x, 0) + log1p(e^−|x|).

    `jax.nn.softplus` is the same to 1 ulp, and on CPU half as fast: it looks after infinities.
    """
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


class Sums(NamedTuple):
    """How to sum over the pairs of all candidates with a chunk: these functions, or those of `fused`."""

    sigmoid: Callable[[Sequence[float], Models, Models], jax.Array]
    softmax: Callable[[Embeddings, Embeddings], tuple[jax.Array, jax.Array]]


BLOCKS = Sums(sigmoid_sums, softmax_sums)
