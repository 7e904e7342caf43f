"""The sums over pairs as a Pallas kernel for TPU, and the choice between it and the blocks of `scores`.

The logits stay in VMEM: the results of the matrix unit are turned into losses and summed in place, while the
matrix unit continues. A kernel computes one direction: the two directions share no operand, and one at a time
needs half the VMEM.

The speeds here are estimates; nothing has been measured on a TPU. Compiled for v5e (JAX 0.10.2), XLA also
keeps the logits of the blocks in VMEM, so the kernel saves no memory traffic. It saves work on losses that
waits for products, and rows that XLA computes twice. At R = 640, c = 2,048, and two models of E = 768, the
products need 369,000 cycles of the matrix unit in float32 (six passes of bfloat16), and the rest of the
kernel's work fits into the same cycles. The compiler estimates the blocks at 522,000 cycles, a sixth of them
for rows that 256 at a time don't divide.

A kernel for GPU would gain a few percent at most (also an estimate): there, the products in float32 outweigh
the traffic of the logits about twelve times at E = 768.

Letters: R rows (candidates of this device), c chunk, E embedding width, s_ij = t z^im_i · z^txt_j.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jestlab.models import processes
from jestlab.models.selection.scores import (
    BLOCKS,
    CRITERIA,
    Criterion,
    Embeddings,
    Models,
    Sums,
    losses_of,
    softplus,
)

_LOG = logging.getLogger(__name__)

ROWS = 128
"""Candidates in a block: the side of the matrix unit."""

CHUNK = 512
"""Maximum number of a chunk's examples in a block; fewer if embeddings are wide."""

WINDOWS = 10 << 20
"""Maximum bytes of embeddings in VMEM: both sides of a block, of all models, in two buffers. Two models of
E = 768 fill 7.5 MiB with 128 + 512 examples, two of 1,152 6.8 MiB with 128 + 256. Including logits and the
operands of products, the compiler requests up to 11 of the 16 MiB that a kernel can have (on v5e)."""


def sigmoid_sums(
    criterion: Criterion, models: Models, chunk: Models, *, interpret: bool = False
) -> jax.Array:
    """Compute Σ_j [g(softplus(s_ij + b)) + g(softplus(s_ji + b))], as `scores.sigmoid_sums`.

    Custom criteria and very wide embeddings are left to `scores.sigmoid_sums`.

    Args:
        interpret: Whether to run the kernel without a TPU, slowly, for tests.
    """
    width = sum(z.image.shape[1] for z in models.values())
    if criterion not in CRITERIA.values() or not fits(width):
        return BLOCKS.sigmoid(criterion, models, chunk)
    scalars = jnp.stack([jnp.stack([z.temperature, z.bias]) for z in chunk.values()])
    kernel = functools.partial(_sigmoid_kernel, criterion)
    over = functools.partial(_over_pairs, kernel, scalars, scratch=0, interpret=interpret)
    images, texts = ([z.image for z in models.values()], [z.text for z in models.values()])
    return over(images, [z.text for z in chunk.values()]) + over(texts, [z.image for z in chunk.values()])


def softmax_sums(z: Embeddings, chunk: Embeddings, *, interpret: bool = False) -> tuple[jax.Array, jax.Array]:
    """Compute log Σ_j exp(s_ij) and log Σ_j exp(s_ji) of one model, as `scores.softmax_sums`.

    Args:
        interpret: Whether to run the kernel without a TPU, slowly, for tests.
    """
    if not fits(z.image.shape[1]):
        return BLOCKS.softmax(z, chunk)
    scalars = chunk.temperature.reshape(1, 1)
    over = functools.partial(_over_pairs, _softmax_kernel, scalars, scratch=2, interpret=interpret)
    return over([z.image], [chunk.text]), over([z.text], [chunk.image])


Kernel = Callable[..., None]
"""(count, scalars, rows, chunk, sums, *scratch), all but `count` references to memory. Adds one block: the
candidates, [r, E] of each model, and a part of the chunk, [k, E] of each model, whose first `count` rows are
examples and whose other rows are undefined. `sums` and scratch [1, r] persist between the parts; after the
last part `sums` has the result."""


def _sigmoid_kernel(
    criterion: Criterion, count: Any, scalars: Any, rows: Sequence[Any], chunk: Sequence[Any], sums: Any
) -> None:
    """Σ_j g(softplus(t x · y + b))."""

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        sums[...] = jnp.zeros_like(sums)

    losses = {
        name: softplus(scalars[k, 0] * _products(chunk[k], rows[k]) + scalars[k, 1])
        for k, name in enumerate(losses_of(criterion))
    }
    sums[...] += jnp.sum(_first(count, criterion(**losses), 0.0), axis=0, keepdims=True)


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
    return jax.lax.dot_general(
        chunk[...],
        rows[...],
        (((1,), (1,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )


def _first(count: Any, values: jax.Array, rest: float) -> jax.Array:
    """Return [k, r] with `rest` in place of the undefined rows, from row `count` on."""
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
    """Sum over the pairs of every row with the chunk, in one direction.

    If blocks don't divide rows or chunk, the last one exceeds the array, and its excess is undefined. The
    kernel omits the excess of the chunk; the excess of the rows is cut off.

    Args:
        kernel: Adds one block.
        scalars: float32, for the kernel.
        rows: [R, E] of each model.
        chunk: [c, E] of each model.
        scratch: Number of arrays [1, r] that the kernel needs.
        interpret: Whether to run without a TPU.

    Returns:
        float32 [R].
    """
    (R, c), width = (x[0].shape[0] for x in (rows, chunk)), sum(x.shape[1] for x in rows)
    r, k = block(R, c, width)

    def body(scalars: Any, *refs: Any) -> None:
        n = len(rows)
        kernel(c - pl.program_id(1) * k, scalars, refs[:n], refs[n : 2 * n], *refs[2 * n :])

    # The type that XLA would infer, with the devices that it varies over.
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
    """Return whether a block of the kernel fits into VMEM, for the sum of the models' E."""
    return _examples(width) >= 2 * ROWS


def block(rows: int, chunk: int, width: int) -> tuple[int, int]:
    """Return the sizes (r, k) of a block for R rows, c of a chunk, and the sum of the models' E."""
    most = CHUNK
    while most + ROWS > _examples(width):
        most //= 2
    evenly = pl.cdiv(chunk, pl.cdiv(chunk, most))
    return min(rows, ROWS), chunk if chunk <= most else 8 * pl.cdiv(evenly, 8)  # registers have 8 rows


def _examples(width: int) -> int:
    return WINDOWS // (2 * 4 * width)


FUSED = Sums(sigmoid_sums, softmax_sums)
TOLERANCE = 2e-5
"""Maximum error on the example, relative to its largest sum. Measured on CPU, float32 has an error of 2e-7,
log(1 + x) in place of log1p of 4e-5, and embeddings in bfloat16 of 1e-4 (softmax) or 4e-3 (sigmoid)."""


@functools.cache
def best_sums(kind: str = "auto") -> Sums:
    """Return how to sum over pairs. Every process must call this, and all get the same result.

    Args:
        kind: "blocks"; "fused"; or "auto": "fused" on TPUs on which it compiles and agrees with "blocks",
            which is tested once per process.

    Raises:
        ValueError: "fused" on another backend than TPU.
    """
    backend = jax.default_backend()
    if kind == "fused" and backend != "tpu":
        raise ValueError(f"runtime.selection_kernel: fused runs on TPU only, and this is {backend}: use auto")
    if kind == "fused":
        return FUSED
    if kind == "blocks" or backend != "tpu":
        return BLOCKS
    problem = disagreement(FUSED)
    if processes.all_say(problem is None):
        return FUSED
    _LOG.warning("Selection sums in blocks, not by its TPU kernel: %s.", problem or "another process fails")
    return BLOCKS


def disagreement(sums: Sums) -> str | None:
    """Compare a way of summing with blocks, and return the problem, if any.

    The example has two models of different widths, sizes that no block divides, several blocks of candidates
    and chunk, and sums over small differences.
    """

    def computed(way: Sums) -> list[jax.Array]:
        sigmoid = jax.jit(way.sigmoid, static_argnums=0)(CRITERIA["learnability"], *example)
        softmax = [jax.jit(way.softmax)(*(models[name] for models in example)) for name in example[0]]
        return jax.tree.leaves((sigmoid, softmax))

    widths = {"learner": 96, "reference": 40}
    example = [{name: _embeddings(n, width) for name, width in widths.items()} for n in (150, 530)]
    try:
        pairs = list(zip(computed(sums), computed(BLOCKS), strict=True))
    except Exception as error:  # any exception of a compiler
        return f"it fails ({type(error).__name__}: {(str(error).splitlines() or [''])[0]})"
    for x, y in pairs:
        share = float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y)))
        if not share <= TOLERANCE:
            return f"it is off by {share:.1e} of the largest sum"
    return None


def _embeddings(count: int, width: int) -> Embeddings:
    """Make random pairs, with the initial t and b of a training."""
    z = np.random.default_rng(10 * count + width).normal(size=(2, count, width))
    image, text = jnp.asarray(z / np.linalg.norm(z, axis=2, keepdims=True), jnp.float32)
    return Embeddings(image, text, jnp.float32(10.0), jnp.float32(-10.0))
