"""Which way of summing over pairs runs here: `fused` on TPU, where it proves itself, else `blocks`."""

from __future__ import annotations

import functools
import logging

import jax
import jax.numpy as jnp
import numpy as np

from .. import processes
from ..two_towers import Embeddings
from . import fused
from .blocks import BLOCKS, Sums

_LOG = logging.getLogger(__name__)

FUSED = Sums(fused.sigmoid_sums, fused.softmax_sums)
TOLERANCE = 2e-5
"""Of the largest sum of the probe. On it, as seen on CPU, float32 errs by 2e-7, log(1 + x) in place of log1p
by 4e-5, and embeddings in bfloat16 by 1e-4 (softmax) or 4e-3 (sigmoid)."""


@functools.cache
def best_sums(kind: str = "auto") -> Sums:
    """How to sum over pairs. Of several processes all must ask, and all are told the same.

    Args:
        kind: "blocks", "fused", or "auto": fused on TPU if it compiles there and agrees with blocks, which
            is tried once a process.

    Raises:
        ValueError: "fused" on another backend than TPU, or an unknown kind.
    """
    if kind not in ("auto", "blocks", "fused"):
        raise ValueError(f"unknown selection kernel {kind!r}: known are auto, blocks, fused")
    backend = jax.default_backend()
    if kind == "fused" and backend != "tpu":
        raise ValueError(f"runtime.selection_kernel: fused runs on TPU, and this is {backend}: use auto")
    if kind == "fused":
        return FUSED
    if kind == "blocks" or backend != "tpu":
        return BLOCKS
    found = trouble(FUSED)
    if processes.all_say(found is None):
        return FUSED
    _LOG.warning("Selection sums in blocks, not by its TPU kernel: %s.", found or "another process cannot")
    return BLOCKS


def trouble(sums: Sums) -> str | None:
    """What is wrong with a way of summing, by blocks' account of a small example; None: nothing.

    The example has what can go wrong: two models of different width, sizes that no block divides, several
    blocks of candidates and chunk, and sums over small differences.
    """
    signs = (1.0, -1.0)
    models, chunk = ([_embeddings(n, width, 10 * n + width) for width in (96, 40)] for n in (150, 530))
    try:
        ours, theirs = (
            [jax.jit(way.sigmoid, static_argnums=0)(signs, models, chunk)]
            + [x for pair in zip(models, chunk, strict=True) for x in jax.jit(way.softmax)(*pair)]
            for way in (sums, BLOCKS)
        )
    except Exception as error:  # whatever a compiler raises
        return f"it fails ({type(error).__name__}: {(str(error).splitlines() or [''])[0]})"
    for x, y in zip(ours, theirs, strict=True):
        share = float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y)))
        if not share <= TOLERANCE:
            return f"it is off by {share:.1e} of the largest sum"
    return None


def _embeddings(count: int, width: int, seed: int) -> Embeddings:
    """Random pairs, at the t and b that training begins with."""
    z = np.random.default_rng(seed).normal(size=(2, count, width))
    image, text = jnp.asarray(z / np.linalg.norm(z, axis=2, keepdims=True), jnp.float32)
    return Embeddings(image, text, jnp.float32(10.0), jnp.float32(-10.0))
