"""Small makers that several tests share."""

from __future__ import annotations

import numpy as np


def unit_embeddings(n: int, width: int = 16, seed: int = 0, temperature: float = 10.0, bias: float = -10.0):
    """Random `Embeddings` of n pairs on the unit sphere."""
    import jax.numpy as jnp

    from jestlab.models.two_towers import Embeddings

    rng = np.random.default_rng(seed)
    z = [rng.normal(size=(n, width)) for _ in range(2)]
    image, text = (jnp.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), jnp.float32) for x in z)
    return Embeddings(image, text, jnp.float32(temperature), jnp.float32(bias))
