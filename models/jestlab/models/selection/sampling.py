"""Draws without replacement, in proportion to exp(gain × score), from candidates that lie anywhere."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .candidates import Candidates

LEAST = float(np.finfo(np.float32).min) / 2
"""Of a perturbed score that may still be drawn."""


class Draw(NamedTuple):
    """One draw of k candidates."""

    indices: jax.Array  # int32 [k], global, in the order in which they were drawn
    effective: jax.Array  # float32 [], among how many candidates the first of them was a choice: 1 / Σ p_i²


def gumbel(key: jax.Array, count: int) -> jax.Array:
    """float32 [count]: noise of all candidates, the same on every device and however many there are."""
    return jax.random.gumbel(key, (count,), jnp.float32, mode="high")


def draw(
    candidates: Candidates,
    scores: jax.Array,
    excluded: jax.Array,
    noise: jax.Array | None,
    gain: float | jax.Array,
    k: int,
) -> Draw:
    """Draw by Gumbel top-k: exactly k successive draws in proportion to exp(gain × score) (Plackett–Luce).

    Scores are taken relative to the largest before the gain, so that no digits of those that matter are lost
    to a common offset. (`jax.random.choice(replace=False)` gives mostly items of probability 0 where scores
    are far apart.)

    Args:
        candidates: Where they are.
        scores: float32 [R], of this device's.
        excluded: bool [R], which of them cannot be drawn.
        noise: float32 [R], Gumbel noise; None: the k largest scores, which is no choice.
        gain: Factor on the scores: the inverse of a sampling temperature. 0: all alike.
        k: How many, no more than are not excluded.
    """
    open_scores = jnp.where(excluded, -jnp.inf, scores)
    relative = gain * (scores - candidates.largest(open_scores))
    relative = jnp.maximum(relative, LEAST)  # −inf is for those that are excluded
    weights = jnp.where(excluded, 0.0, jnp.exp(relative))
    perturbed = jnp.where(excluded, -jnp.inf, relative if noise is None else relative + noise)
    indices, (total, of_squares) = candidates.top(
        perturbed, k, jnp.stack([weights.sum(), jnp.square(weights).sum()])
    )
    return Draw(indices, jnp.ones_like(total) if noise is None else total**2 / of_squares)
