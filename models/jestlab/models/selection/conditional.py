"""Scores of candidates given what is chosen already, without a matrix of all pairs.

What the chosen examples contribute to a candidate's score is accumulated chunk by chunk. The accumulators
hold one number (sigmoid), or two a model (softmax), a candidate.

Letters: R candidates of this device, c chunk, s_ij = t z^im_i · z^txt_j, ± the criterion's sign of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from ..two_towers import Embeddings
from .blocks import Models, Sums, softplus

Accumulated = Any
"""A tree of float32 [R] arrays."""


class ConditionalScores(Protocol):
    """Scores by one loss; each method works on the rows that it is given, each row by itself."""

    def own(self, models: Models) -> jax.Array:
        """float32 [R]: scores where nothing is chosen yet."""

    def nothing(self, models: Models) -> Accumulated:
        """What no chosen example contributes."""

    def add(self, accumulated: Accumulated, models: Models, chunk: Models) -> Accumulated:
        """Count c newly chosen examples in."""

    def given(self, accumulated: Accumulated, models: Models) -> jax.Array:
        """float32 [R]: scores of candidates that are not chosen, given all those counted, one at least."""

    def shares(self, accumulated: Accumulated, models: Models) -> jax.Array:
        """float32 [R]: of rows that are chosen and counted, what each contributes to the sub-batch's score.

        Their mean over the sub-batch is its score: learner's loss of it less the reference's.
        """


class SigmoidScores:
    """By the sigmoid loss, ℓ_ij = softplus(s_ij + b) off the diagonal and ℓ_ii = softplus(−s_ii − b) on it.

    S = Σ_models ± ℓ is a matrix of pairs, and a score given the chosen set C is
    S_ii + Σ_{j ∈ C} (S_ij + S_ji).
    """

    def __init__(self, signs: Sequence[float], sums: Sums) -> None:
        self._signs, self._sums = signs, sums.sigmoid

    def own(self, models: Models) -> jax.Array:
        """S_ii."""
        return self._signed(lambda z: softplus(-(own_similarity(z) + z.bias)), models)

    def nothing(self, models: Models) -> jax.Array:
        """0."""
        return jnp.zeros_like(models[0].image[:, 0])  # "like", so that it varies over devices if they do

    def add(self, accumulated: jax.Array, models: Models, chunk: Models) -> jax.Array:
        """+ Σ_{j ∈ chunk} (S_ij + S_ji)."""
        return accumulated + self._sums(self._signs, models, chunk)

    def given(self, accumulated: jax.Array, models: Models) -> jax.Array:
        """S_ii + Σ (S_ij + S_ji)."""
        return self.own(models) + accumulated

    def shares(self, accumulated: jax.Array, models: Models) -> jax.Array:
        """S_ii + ½ Σ_{j ≠ i} (S_ij + S_ji), from a sum in which i met itself twice as if it did not match."""
        itself = self._signed(lambda z: softplus(own_similarity(z) + z.bias), models)
        return self.own(models) + 0.5 * (accumulated - 2.0 * itself)

    def _signed(self, loss: Callable[[Embeddings], jax.Array], models: Models) -> jax.Array:
        return sum((sign * loss(z) for sign, z in zip(self._signs, models, strict=True)), jnp.float32(0.0))


class SoftmaxScores:
    """By the softmax loss, ℓ_i = −s_ii + ½ (log Σ_j e^s_ij + log Σ_j e^s_ji), j over the chosen and i itself.

    Departures from the paper's "Joint example selection: softmax loss", besides those named in `dense`:

    * The candidate is part of its own denominators, as in Eq. 1; the print leaves it out. With it the scores
      rank candidates more like their true marginal gain (.93 against .88, by rank).
    * The print's `return` stands inside the loop, and it scores the reference with the learner's parameters.

    With nothing chosen ℓ_i = −s_ii, as in Sec. 3.1: the denominators would leave nothing of it.
    """

    def __init__(self, signs: Sequence[float], sums: Sums) -> None:
        self._signs, self._sums = signs, sums.softmax

    def own(self, models: Models) -> jax.Array:
        """Σ ± (−s_ii)."""
        return self._signed([-own_similarity(z) for z in models])

    def nothing(self, models: Models) -> list[tuple[jax.Array, jax.Array]]:
        """log 0, of each model and direction."""
        none = jnp.full_like(models[0].image[:, 0], -jnp.inf)
        return [(none, none) for _ in models]

    def add(
        self, accumulated: list[tuple[jax.Array, jax.Array]], models: Models, chunk: Models
    ) -> list[tuple[jax.Array, jax.Array]]:
        """Running log-sums over the chosen, of each model and direction."""
        sums = [self._sums(z, of_chunk) for z, of_chunk in zip(models, chunk, strict=True)]
        both: list[tuple[jax.Array, jax.Array]] = jax.tree.map(jnp.logaddexp, accumulated, sums)
        return both

    def given(self, accumulated: list[tuple[jax.Array, jax.Array]], models: Models) -> jax.Array:
        """Σ ± ℓ_i, the candidate joined to the chosen."""
        losses = []
        for (over_texts, over_images), z in zip(accumulated, models, strict=True):
            own = own_similarity(z)
            losses.append(0.5 * (jnp.logaddexp(over_texts, own) + jnp.logaddexp(over_images, own)) - own)
        return self._signed(losses)

    def shares(self, accumulated: list[tuple[jax.Array, jax.Array]], models: Models) -> jax.Array:
        """Σ ± ℓ_i; the chosen are in the sums themselves."""
        losses = [
            0.5 * (over_texts + over_images) - own_similarity(z)
            for (over_texts, over_images), z in zip(accumulated, models, strict=True)
        ]
        return self._signed(losses)

    def _signed(self, losses: Sequence[jax.Array]) -> jax.Array:
        return sum((sign * loss for sign, loss in zip(self._signs, losses, strict=True)), jnp.float32(0.0))


def own_similarity(z: Embeddings) -> jax.Array:
    """s_ii, float32 [R]."""
    return z.temperature * (z.image * z.text).sum(axis=1)


def conditional_scores(loss: str, signs: Sequence[float], sums: Sums) -> ConditionalScores:
    """Scores by a loss.

    Args:
        loss: "sigmoid" or "softmax".
        signs: The criterion's, of each model.
        sums: How to sum.

    Raises:
        ValueError: An unknown loss.
    """
    if loss == "sigmoid":
        return SigmoidScores(signs, sums)
    if loss == "softmax":
        return SoftmaxScores(signs, sums)
    raise ValueError(f"unknown loss {loss!r}: known are sigmoid, softmax")
