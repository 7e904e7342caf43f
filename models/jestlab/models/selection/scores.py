"""Scores of candidates: by one of three criteria and one of two losses, alone or given what is chosen.

A criterion (Sec. 3.1 of the paper) is a signed sum of the losses of the learner θ and the reference θ*:

    hard-learner   s^hard  =  ℓ(· | θ)
    easy-reference s^easy  = −ℓ(· | θ*)
    learnability   s^learn =  ℓ(· | θ) − ℓ(· | θ*)

There is no matrix of all pairs: what the chosen examples contribute to a candidate's score is accumulated
chunk by chunk, in one number per candidate (sigmoid), or two per candidate and model (softmax).

Letters: R candidates of this device, c chunk, C the chosen, s_ij = t z^im_i · z^txt_j, ± the sign of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jestlab.models.losses import pairwise_sigmoid_loss
from jestlab.models.selection.sums import Models, Sums, softplus
from jestlab.models.two_towers import Embeddings

_SIGNS = {
    "learnability": {"learner": 1.0, "reference": -1.0},
    "easy_reference": {"reference": -1.0},
    "hard_learner": {"learner": 1.0},
}


class Terms(NamedTuple):
    """The terms of a criterion: the loss of each model that it looks at, times a sign."""

    signs: tuple[float, ...]
    models: tuple[Embeddings, ...]


def terms(criterion: str, learner: Embeddings | None, reference: Embeddings | None) -> Terms:
    """Return the models that a criterion scores with.

    The paper's pseudo-code has no hard-learner path and names two config fields that it never sets
    (`cfg.scoring`, `cfg.learnability`); here the criterion is one argument.

    Args:
        criterion: "learnability", "easy_reference" or "hard_learner".
        learner: Embeddings by the learner; not used by "easy_reference".
        reference: Embeddings of the same pairs by the reference, at any width; not used by "hard_learner".

    Raises:
        ValueError: The criterion is unknown, the embeddings that it needs are missing, they are of different
            numbers of pairs, or of different widths within a model.
    """
    if criterion not in _SIGNS:
        raise ValueError(f"unknown criterion {criterion!r}: expected one of {', '.join(_SIGNS)}")
    given = {"learner": learner, "reference": reference}
    signs, models = [], []
    for name, sign in _SIGNS[criterion].items():
        z = given[name]
        if z is None:
            raise ValueError(f"the {name}'s embeddings are missing: criterion {criterion!r} scores with them")
        signs.append(sign)
        models.append(z)
    for z in models:
        if z.image.shape[1] != z.text.shape[1]:
            raise ValueError(
                f"images embedded at width {z.image.shape[1]}, texts at {z.text.shape[1]}: must be equal"
            )
    counts = {array.shape[0] for z in models for array in (z.image, z.text)}
    if len(counts) > 1:
        raise ValueError(f"embeddings of different numbers of examples: {sorted(counts)}")
    return Terms(tuple(signs), tuple(models))


def score_matrix(criterion: str, learner: Embeddings | None, reference: Embeddings | None) -> jax.Array:
    """Compute S, the sigmoid scores of every image with every text, without gain; to be looked at.

    Args:
        criterion: See `terms`.
        learner: Embeddings of n pairs.
        reference: Embeddings of the same pairs by the reference.

    Returns:
        float32 [n, n]; rows are images, columns are texts, the pairs' own scores are on the diagonal.

    Raises:
        ValueError: As in `terms`.
    """
    signs, models = terms(criterion, learner, reference)
    matrix = jnp.zeros((), jnp.float32)
    for sign, z in zip(signs, models, strict=True):
        matrix += sign * pairwise_sigmoid_loss(z)
    return matrix


Accumulated = Any
"""What the chosen examples contribute to the candidates' scores: a tree of float32 [R] arrays."""


class Scores(Protocol):
    """Scores by one loss. Each method works row by row on the rows that it is given."""

    def own(self, models: Models) -> jax.Array:
        """Return float32 [R]: the scores before anything is chosen."""

    def nothing(self, models: Models) -> Accumulated:
        """Return the contribution of no chosen example."""

    def add(self, accumulated: Accumulated, models: Models, chunk: Models) -> Accumulated:
        """Add the contribution of c newly chosen examples."""

    def given(self, accumulated: Accumulated, models: Models) -> jax.Array:
        """Return float32 [R]: scores of candidates that are not chosen, given at least one that is."""

    def shares(self, accumulated: Accumulated, models: Models) -> jax.Array:
        """Return float32 [R]: what each row that is chosen and added contributes to the sub-batch's score.

        Their mean over the sub-batch is its score: the learner's loss on it minus the reference's.
        """


class SigmoidScores:
    """By the sigmoid loss: ℓ_ij = softplus(s_ij + b) off the diagonal, ℓ_ii = softplus(−s_ii − b) on it.

    S = Σ_models ± ℓ is a matrix over pairs; the score given the chosen set C is
    S_ii + Σ_{j ∈ C} (S_ij + S_ji).
    """

    def __init__(self, signs: Sequence[float], sums: Sums) -> None:
        self._signs, self._sums = signs, sums.sigmoid

    def own(self, models: Models) -> jax.Array:
        """Return S_ii, the scores of the pairs alone."""
        return self._signed(lambda z: softplus(-(own_similarity(z) + z.bias)), models)

    def nothing(self, models: Models) -> jax.Array:
        """Return 0 for each row."""
        return jnp.zeros_like(models[0].image[:, 0])  # "like", so that it varies over devices if they do

    def add(self, accumulated: jax.Array, models: Models, chunk: Models) -> jax.Array:
        """Add Σ_{j ∈ chunk} (S_ij + S_ji)."""
        return accumulated + self._sums(self._signs, models, chunk)

    def given(self, accumulated: jax.Array, models: Models) -> jax.Array:
        """Return S_ii + Σ_{j ∈ C} (S_ij + S_ji)."""
        return self.own(models) + accumulated

    def shares(self, accumulated: jax.Array, models: Models) -> jax.Array:
        """Return S_ii + ½ Σ_{j ≠ i} (S_ij + S_ji); the sum holds i itself, as a non-match, twice."""
        itself = self._signed(lambda z: softplus(own_similarity(z) + z.bias), models)
        return self.own(models) + 0.5 * (accumulated - 2.0 * itself)

    def _signed(self, loss: Callable[[Embeddings], jax.Array], models: Models) -> jax.Array:
        return sum((sign * loss(z) for sign, z in zip(self._signs, models, strict=True)), jnp.float32(0.0))


class SoftmaxScores:
    """By the softmax loss: ℓ_i = −s_ii + ½ (log Σ_j e^s_ij + log Σ_j e^s_ji), j over the chosen and i itself.

    Departures from the paper's "Joint example selection: softmax loss", besides those named in `select`:

    * The candidate is part of its own denominators, as in Eq. 1; the print leaves it out. With it the scores
      rank candidates more like their true marginal gain (rank correlation .93 instead of .88).
    * The print's `return` is inside the loop, and it scores the reference with the learner's parameters.

    With nothing chosen ℓ_i = −s_ii, as in Sec. 3.1: with i alone the denominators would cancel it.
    """

    def __init__(self, signs: Sequence[float], sums: Sums) -> None:
        self._signs, self._sums = signs, sums.softmax

    def own(self, models: Models) -> jax.Array:
        """Return Σ ± (−s_ii), the scores of the pairs alone."""
        return self._signed([-own_similarity(z) for z in models])

    def nothing(self, models: Models) -> list[tuple[jax.Array, jax.Array]]:
        """Return log 0, for each model and direction."""
        none = jnp.full_like(models[0].image[:, 0], -jnp.inf)
        return [(none, none) for _ in models]

    def add(
        self, accumulated: list[tuple[jax.Array, jax.Array]], models: Models, chunk: Models
    ) -> list[tuple[jax.Array, jax.Array]]:
        """Update the log-sums over the chosen, of each model and direction."""
        sums = [self._sums(z, of_chunk) for z, of_chunk in zip(models, chunk, strict=True)]
        both: list[tuple[jax.Array, jax.Array]] = jax.tree.map(jnp.logaddexp, accumulated, sums)
        return both

    def given(self, accumulated: list[tuple[jax.Array, jax.Array]], models: Models) -> jax.Array:
        """Return Σ ± ℓ_i, with the candidate joined to the chosen."""
        losses = []
        for (over_texts, over_images), z in zip(accumulated, models, strict=True):
            own = own_similarity(z)
            losses.append(0.5 * (jnp.logaddexp(over_texts, own) + jnp.logaddexp(over_images, own)) - own)
        return self._signed(losses)

    def shares(self, accumulated: list[tuple[jax.Array, jax.Array]], models: Models) -> jax.Array:
        """Return Σ ± ℓ_i; the chosen are already in the sums."""
        losses = [
            0.5 * (over_texts + over_images) - own_similarity(z)
            for (over_texts, over_images), z in zip(accumulated, models, strict=True)
        ]
        return self._signed(losses)

    def _signed(self, losses: Sequence[jax.Array]) -> jax.Array:
        return sum((sign * loss for sign, loss in zip(self._signs, losses, strict=True)), jnp.float32(0.0))


def own_similarity(z: Embeddings) -> jax.Array:
    """Return s_ii, the similarity of each pair's image and text, float32 [R]."""
    return z.temperature * (z.image * z.text).sum(axis=1)


def scores_by(loss: str, signs: Sequence[float], sums: Sums) -> Scores:
    """Create the scores by a loss.

    Args:
        loss: "sigmoid" or "softmax".
        signs: The criterion's sign of each model.
        sums: How to sum over pairs.

    Raises:
        ValueError: The loss is unknown.
    """
    if loss == "sigmoid":
        return SigmoidScores(signs, sums)
    if loss == "softmax":
        return SoftmaxScores(signs, sums)
    raise ValueError(f"unknown loss {loss!r}: expected sigmoid or softmax")
