"""NormSim: how alike images are to those of a target set (Wang et al., 2024, arXiv:2405.19547).

    NormSim_p(x) = ( Σ_t |f(x) · f(t)|^p )^(1/p),        NormSim_∞(x) = max_t |f(x) · f(t)|

over the images t of the target set, by the image embeddings f of a model. It needs to know what will be
tested, and no labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]

Norm = Literal[2, "inf"]

ROWS = 1_024
"""Images that meet the target set at a time."""


def norm_similarity(
    images: Rows, targets: Rows, *, norm: Norm = "inf", advance: Callable[[], Any] = lambda: None
) -> Rows:
    """Compute NormSim of every image.

    Args:
        images: float32 [n, E], unit embeddings.
        targets: float32 [m, E], of the target set, by the same model.
        norm: p.
        advance: Called after each `ROWS` images.

    Returns:
        float32 [n].
    """

    @jax.jit
    def norms(rows: jax.Array, targets: jax.Array) -> jax.Array:
        similar = jnp.abs(jnp.dot(rows, targets.T, precision="highest"))
        found: jax.Array = (
            jnp.max(similar, axis=1) if norm == "inf" else jnp.sqrt(jnp.sum(similar**2, axis=1))
        )
        return found

    on_device, found = jnp.asarray(targets), np.empty(len(images), np.float32)
    for first in range(0, len(images), ROWS):
        part = images[first : first + ROWS]
        padded = np.zeros((ROWS, images.shape[1]), np.float32)  # one shape, compiled once
        padded[: len(part)] = part
        found[first : first + len(part)] = np.asarray(norms(padded, on_device))[: len(part)]
        advance()
    return found
