"""The sums of `blocks` as a Pallas kernel for TPU: logits live in VMEM, whatever XLA would do with them.

The matrix unit's result is turned into losses and summed up where it stands, while the matrix unit goes on. A
kernel does one direction: the two share no operand, and one at a time needs half the VMEM.

What is known of its speed is computed; nothing has been measured on a TPU. Compiled for v5e (JAX 0.10.2), XLA
keeps the logits of `blocks` in VMEM, too: there is no traffic to save, but work on losses that waits for
products, and rows that it computes twice. At R = 640, c = 2,048 and two models of E = 768 the products need
369,000 cycles of the matrix unit in float32 (six passes of bfloat16), and the kernel's schedule fits all else
beside them. The compiler estimates `blocks` at 522,000, a sixth for rows that 256 at a time do not divide.

On GPU there is no such kernel: there, computed as well, the products in float32 outweigh the traffic of the
logits about twelve times at E = 768, so that fusing would gain a few percent at most.

Letters: R rows (candidates of this device), c chunk, E embedding width, s_ij = t z^im_i · z^txt_j.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ..two_towers import Embeddings
from . import blocks

ROWS = 128
"""Candidates in a block: the matrix unit's side."""

CHUNK = 512
"""Examples of a chunk in a block, at most: fewer where embeddings are wide."""

WINDOWS = 10 << 20
"""Bytes of embeddings that may lie in VMEM: both sides of a block, of all models, in two buffers. Two models
of E = 768 fill 7.5 MiB with 128 + 512 examples, two of 1,152 6.8 MiB with 128 + 256. With logits and what the
products need, the compiler asks for up to 11 MiB of the 16 that a kernel may have (found for v5e)."""


def sigmoid_sums(
    signs: Sequence[float],
    models: Sequence[Embeddings],
    chunk: Sequence[Embeddings],
    *,
    interpret: bool = False,
) -> jax.Array:
    """Σ_j Σ_models ± [softplus(s_ij + b) + softplus(s_ji + b)], as `blocks.sigmoid_sums`.

    Args:
        signs: Of the models.
        models: Each model's embeddings of R candidates.
        chunk: Each model's embeddings of c examples.
        interpret: Whether to run the kernel without a TPU, slowly, for tests.

    Returns:
        float32 [R].
    """
    if not fits(sum(z.image.shape[1] for z in models)):
        return blocks.sigmoid_sums(signs, models, chunk)
    scalars = jnp.stack([jnp.stack([z.temperature, z.bias]) for z in chunk])
    kernel = functools.partial(_sigmoid_kernel, signs=tuple(signs))
    over = functools.partial(_over_pairs, kernel, scalars, scratch=0, interpret=interpret)
    return over([z.image for z in models], [z.text for z in chunk]) + over(
        [z.text for z in models], [z.image for z in chunk]
    )


def softmax_sums(z: Embeddings, chunk: Embeddings, *, interpret: bool = False) -> tuple[jax.Array, jax.Array]:
    """log Σ_j exp(s_ij) and log Σ_j exp(s_ji) of one model, as `blocks.softmax_sums`.

    Args:
        z: Its embeddings of R candidates.
        chunk: Its embeddings of c examples.
        interpret: Whether to run the kernel without a TPU, slowly, for tests.

    Returns:
        float32 [R] from images to texts, and from texts to images.
    """
    if not fits(z.image.shape[1]):
        return blocks.softmax_sums(z, chunk)
    scalars = chunk.temperature.reshape(1, 1)
    over = functools.partial(_over_pairs, _softmax_kernel, scalars, scratch=2, interpret=interpret)
    return over([z.image], [chunk.text]), over([z.text], [chunk.image])


Kernel = Callable[..., None]
"""(count, scalars, rows, chunk, sums, *scratch), all but `count` references to memory. It counts in a block:
candidates, of each model [r, E], and a part of the chunk, of each model [k, E], whose first `count` are
examples and whose rest may be anything. From one part to the next `sums` and scratch [1, r] stay as they are;
after the last `sums` holds the result."""


def _sigmoid_kernel(
    count: Any,
    scalars: Any,
    rows: Sequence[Any],
    chunk: Sequence[Any],
    sums: Any,
    *,
    signs: tuple[float, ...],
) -> None:
    """Σ_j Σ_models ± softplus(t x · y + b)."""

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        sums[...] = jnp.zeros_like(sums)

    losses = jnp.float32(0.0)
    for k, sign in enumerate(signs):  # subtracted pair by pair
        losses += sign * blocks.softplus(scalars[k, 0] * _products(chunk[k], rows[k]) + scalars[k, 1])
    sums[...] += jnp.sum(_first(count, losses, 0.0), axis=0, keepdims=True)


def _softmax_kernel(
    count: Any, scalars: Any, rows: Sequence[Any], chunk: Sequence[Any], sums: Any, largest: Any, total: Any
) -> None:
    """log Σ_j exp(t x · y), from the largest logit so far and the sum of all in proportion to it."""

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        largest[...] = jnp.full_like(largest, -jnp.inf)
        total[...] = jnp.zeros_like(total)

    logits = _first(count, scalars[0, 0] * _products(chunk[0], rows[0]), -jnp.inf)
    top = jnp.maximum(largest[...], jnp.max(logits, axis=0, keepdims=True))  # finite: no block is empty
    rescaled = total[...] * jnp.exp(largest[...] - top)
    total[...] = rescaled + jnp.sum(jnp.exp(logits - top), axis=0, keepdims=True)
    largest[...] = top

    @pl.when(pl.program_id(1) == pl.num_programs(1) - 1)
    def _() -> None:
        sums[...] = largest[...] + jnp.log(total[...])


def _products(chunk: Any, rows: Any) -> jax.Array:
    """float32 [k, r]. Candidates lie along the lanes, so that a sum over the chunk adds whole registers."""
    products: jax.Array = jax.lax.dot_general(
        chunk[...],
        rows[...],
        (((1,), (1,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return products


def _first(count: Any, values: jax.Array, rest: float) -> jax.Array:
    """[k, r] with `rest` from the count-th row on, whatever stood there."""
    return jnp.where(jax.lax.broadcasted_iota(jnp.int32, values.shape, 0) < count, values, rest)


def _over_pairs(
    kernel: Kernel,
    scalars: jax.Array,
    rows: list[jax.Array],
    chunk: list[jax.Array],
    *,
    scratch: int,
    interpret: bool,
) -> jax.Array:
    """Sums over the pairs of every row with the chunk, in one direction.

    Where blocks do not divide rows or chunk, the last one reaches beyond the array's end, and holds anything
    there: of the chunk the kernel leaves it out, of the rows it is not kept.

    Args:
        kernel: What to do with a block.
        scalars: float32, for the kernel.
        rows: Of each model [R, E].
        chunk: Of each model [c, E].
        scratch: How many arrays [1, r] the kernel keeps.
        interpret: Whether to run without a TPU.

    Returns:
        float32 [R].
    """
    (R, c), width = (x[0].shape[0] for x in (rows, chunk)), sum(x.shape[1] for x in rows)
    r, k = block(R, c, width)

    def body(scalars: Any, *refs: Any) -> None:
        n = len(rows)
        kernel(c - pl.program_id(1) * k, scalars, refs[:n], refs[n : 2 * n], *refs[2 * n :])

    # As XLA would type it, with the devices that it varies over.
    out = jax.eval_shape(lambda: jnp.zeros((1, R)) + sum(x[0, 0] for x in (scalars, *rows, *chunk)))
    sums: jax.Array = pl.pallas_call(
        body,
        grid=(pl.cdiv(R, r), pl.cdiv(c, k)),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            *(pl.BlockSpec((r, x.shape[1]), lambda i, j: (i, 0)) for x in rows),
            *(pl.BlockSpec((k, x.shape[1]), lambda i, j: (j, 0)) for x in chunk),
        ],
        out_specs=pl.BlockSpec((1, r), lambda i, j: (0, i)),
        out_shape=out,
        scratch_shapes=[pltpu.VMEM((1, r), jnp.float32)] * scratch,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(scalars, *rows, *chunk)
    return sums[0]


def fits(width: int) -> bool:
    """Whether models whose E sum up to that width leave VMEM for a block; if not, `blocks` sums."""
    return _examples(width) >= 2 * ROWS


def block(rows: int, chunk: int, width: int) -> tuple[int, int]:
    """The sizes (r, k) of a block.

    Args:
        rows: R.
        chunk: c.
        width: Sum of the models' E.
    """
    most = CHUNK
    while most + ROWS > _examples(width):
        most //= 2
    evenly = pl.cdiv(chunk, pl.cdiv(chunk, most))
    return min(rows, ROWS), chunk if chunk <= most else 8 * pl.cdiv(evenly, 8)  # registers hold 8 rows


def _examples(width: int) -> int:
    return WINDOWS // (2 * 4 * width)
