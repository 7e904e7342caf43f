"""The sums of the sigmoid loss over pairs as a Pallas kernel for TPU, and the choice between it and blocks.

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
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from jestlab.models.devices import any_says
from jestlab.models.selection import scores
from jestlab.models.selection.scores import CRITERIA, Criterion, Embeddings, Models, Sums, softplus

_LOG = logging.getLogger(__name__)

ROWS = 128
"""Candidates in a block: the side of the matrix unit."""

CHUNK = 512
"""Maximum number of a chunk's examples in a block; fewer if embeddings are wide."""

WINDOWS = 10 << 20
"""Maximum bytes of embeddings in VMEM: both sides of a block, of all models, in two buffers. Two models of
E = 768 fill 7.5 MiB with 128 + 512 examples, two of 1,152 6.8 MiB with 128 + 256. Including logits and the
operands of products, the compiler requests up to 11 of the 16 MiB that a kernel can have (on v5e)."""


def sigmoid_sums(criterion: Criterion, models: Models, chunk: Models) -> jax.Array:
    """Compute Σ_j [g(softplus(s_ij + b)) + g(softplus(s_ji + b))], as `scores.sigmoid_sums`.

    `scores.sigmoid_sums` itself is used for custom criteria and for embeddings that are too wide for a block.
    """
    width = sum(z.image.shape[1] for z in models.values())
    if criterion not in CRITERIA.values() or _most_examples(width) < 2 * ROWS:
        return scores.sigmoid_sums(criterion, models, chunk)
    images, texts = ([getattr(z, side) for z in models.values()] for side in ("image", "text"))
    chunk_images, chunk_texts = ([getattr(z, side) for z in chunk.values()] for side in ("image", "text"))
    scalars = jnp.stack([jnp.stack([z.temperature, z.bias]) for z in chunk.values()])
    kernel = functools.partial(_kernel, criterion, tuple(models))
    return _over_pairs(kernel, scalars, images, chunk_texts) + _over_pairs(
        kernel, scalars, texts, chunk_images
    )


def _kernel(
    criterion: Criterion,
    names: tuple[str, ...],
    count: Any,
    scalars: Any,
    rows: Sequence[Any],
    chunk: Sequence[Any],
    sums: Any,
) -> None:
    """Add one block to Σ_j g(softplus(t x · y + b)), in references to memory.

    Args:
        criterion: g.
        names: Of the models.
        count: Number of the chunk's rows that are examples; the others are undefined.
        scalars: t and b of each model.
        rows: Candidates, [r, E] of each model.
        chunk: A part of the chunk, [k, E] of each model.
        sums: [1, r], persists between the parts of the chunk.
    """

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        sums[...] = jnp.zeros_like(sums)

    # [k, r]: candidates lie along the lanes, so that a sum over the chunk adds whole registers.
    products = [
        jax.lax.dot_general(
            y[...],
            x[...],
            (((1,), (1,)), ((), ())),
            precision=jax.lax.Precision.HIGHEST,
            preferred_element_type=jnp.float32,
        )
        for x, y in zip(rows, chunk, strict=True)
    ]
    losses = [softplus(scalars[i, 0] * products[i] + scalars[i, 1]) for i in range(len(names))]
    s = criterion(**dict(zip(names, losses, strict=True)))
    is_example = jax.lax.broadcasted_iota(jnp.int32, s.shape, 0) < count
    sums[...] += jnp.sum(jnp.where(is_example, s, 0.0), axis=0, keepdims=True)


def _over_pairs(kernel: Any, scalars: jax.Array, rows: list[jax.Array], chunk: list[jax.Array]) -> jax.Array:
    """Sum over the pairs of every row with the chunk, in one direction.

    If blocks don't divide rows or chunk, the last one exceeds the array, and its excess is undefined. The
    kernel omits the excess of the chunk; the excess of the rows is cut off.

    Args:
        kernel: Adds one block.
        scalars: float32, t and b of each model.
        rows: [R, E] of each model.
        chunk: [c, E] of each model.

    Returns:
        float32 [R].
    """
    (R, c), width = (x[0].shape[0] for x in (rows, chunk)), sum(x.shape[1] for x in rows)
    r, k = block(R, c, width)

    def body(scalars: Any, *refs: Any) -> None:
        n = len(rows)
        kernel(c - pl.program_id(1) * k, scalars, refs[:n], refs[n : 2 * n], refs[-1])

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
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    )(scalars, *rows, *chunk)
    return sums[0]


def block(rows: int, chunk: int, width: int) -> tuple[int, int]:
    """Return the sizes (r, k) of a block for R rows, c of a chunk, and the sum of the models' E."""
    most = CHUNK
    while most + ROWS > _most_examples(width):
        most //= 2
    evenly = pl.cdiv(chunk, pl.cdiv(chunk, most))
    return min(rows, ROWS), chunk if chunk <= most else 8 * pl.cdiv(evenly, 8)  # registers have 8 rows


def _most_examples(width: int) -> int:
    """Return how many examples of both sides fit into VMEM, for the sum of the models' E."""
    return WINDOWS // (2 * 4 * width)


TOLERANCE = 2e-5
"""Maximum error on the example, relative to its largest sum. Measured on CPU, float32 has an error of 2e-7,
log(1 + x) in place of log1p of 4e-5, and embeddings in bfloat16 of 4e-3."""


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
        return sigmoid_sums
    if kind == "blocks" or backend != "tpu":
        return scores.sigmoid_sums
    problem = disagreement()
    if not any_says(problem is not None):
        return sigmoid_sums
    _LOG.warning("Selection sums in blocks, not by its TPU kernel: %s.", problem or "another process fails")
    return scores.sigmoid_sums


def disagreement(sums: Sums = sigmoid_sums) -> str | None:
    """Compare a way of summing with blocks, and return the problem, if any.

    The example has two models of different widths, sizes that no block divides, several blocks of candidates
    and chunk, and sums over small differences.
    """
    widths = {"learner": 96, "reference": 40}
    models, chunk = ({name: _pairs(n, width) for name, width in widths.items()} for n in (150, 530))
    try:
        x, y = (
            jax.jit(way, static_argnums=0)(scores.learnability, models, chunk)
            for way in (sums, scores.sigmoid_sums)
        )
        share = float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y)))
    except Exception as error:  # any exception of a compiler
        return f"it fails ({type(error).__name__}: {(str(error).splitlines() or [''])[0]})"
    return None if share <= TOLERANCE else f"it is off by {share:.1e} of the largest sum"


def _pairs(count: int, width: int) -> Embeddings:
    """Make random pairs, with the initial t and b of a training."""
    z = np.random.default_rng(10 * count + width).normal(size=(2, count, width))
    image, text = jnp.asarray(z / np.linalg.norm(z, axis=2, keepdims=True), jnp.float32)
    return Embeddings(image, text, jnp.float32(10.0), jnp.float32(-10.0))
