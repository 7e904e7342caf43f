"""Scores of candidates: by one of three criteria and one of two losses, alone or given what is chosen.

A criterion (Sec. 3.1 of the paper) is a signed sum of the losses of the learner θ and the reference θ*:

    hard-learner   s^hard  =  ℓ(· | θ)
    easy-reference s^easy  = −ℓ(· | θ*)
    learnability   s^learn =  ℓ(· | θ) − ℓ(· | θ*)

There is no matrix of all pairs: what the chosen examples contribute to a candidate's score is accumulated
chunk by chunk, in one number per candidate (sigmoid), or two per candidate and model (softmax). Each is a sum
over the pairs of candidate i with the examples j of the chunk, in both directions: image i with text j, and
text i with image j. Sums are computed here block by block, for any backend; `fused` does so on TPU.

Letters: R rows (candidates of this device), c chunk, C the chosen, E embedding width,
s_ij = t z^im_i · z^txt_j, ± the sign of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp

from jestlab.models.losses import pairwise_sigmoid_loss
from jestlab.models.two_towers import Embeddings

Result = TypeVar("Result")

Models = Sequence[Embeddings]
"""The embeddings of the same examples by each model."""

BLOCK_LOGITS = 1 << 19
"""Logits of one model and direction that exist at a time: 2 MB, in up to four such arrays. On CPU this is the
fastest of 2^15 to 2^20; on TPU they stay in VMEM."""

GPU_BLOCK_LOGITS = 1 << 24
"""The same on GPU, where many small kernels would mostly wait: a guess, not measured."""


def sigmoid_sums(
    signs: Sequence[float], models: Sequence[Embeddings], chunk: Sequence[Embeddings]
) -> jax.Array:
    """Compute Σ_j Σ_models ± [softplus(s_ij + b) + softplus(s_ji + b)], the losses of non-matching pairs.

    Models are subtracted pair by pair, before the sum, where their difference is still exact.

    Args:
        signs: The sign of each model.
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
    """Compute log Σ_j exp(s_ij) and log Σ_j exp(s_ji) by one model.

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
"""Image and text embeddings of a block of candidates, by each model."""


def over_rows(block: Callable[[Rows], Result], rows: Rows, chunk_size: int) -> Result:
    """Compute block(rows), a bounded number of rows at a time.

    Where blocks do not divide the rows, the last one begins early and computes some rows again, so that
    nothing has to be padded or masked.

    Args:
        block: Function from rows of every model to arrays of as many rows.
        rows: All rows, of every model.
        chunk_size: c, the number of logits per row.
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
    """Return t x · y + b, float32 [len(x), len(y)], in full float32 even where the hardware would round."""
    products = jnp.dot(x, y.T, precision="highest", preferred_element_type=jnp.float32)
    found: jax.Array = z.temperature * products + z.bias
    return found


def softplus(x: jax.Array) -> jax.Array:
    """Return log(1 + e^x) = max(x, 0) + log1p(e^−|x|).

    `jax.nn.softplus` agrees to 1 ulp and is half as fast on CPU, because it handles infinities.
    """
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


class Sums(NamedTuple):
    """A way to sum over the pairs of all candidates with a chunk: the functions here, or those of `fused`."""

    sigmoid: Callable[[Sequence[float], Models, Models], jax.Array]
    softmax: Callable[[Embeddings, Embeddings], tuple[jax.Array, jax.Array]]


BLOCKS = Sums(sigmoid_sums, softmax_sums)


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
        criterion: See `terms`, like what is raised.
        learner: Embeddings of n pairs.
        reference: Embeddings of the same pairs by the reference.

    Returns:
        float32 [n, n]; rows are images, columns are texts, the pairs' own scores are on the diagonal.
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
        return _signed(self._signs, (softplus(-(own_similarity(z) + z.bias)) for z in models))

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
        itself = _signed(self._signs, (softplus(own_similarity(z) + z.bias) for z in models))
        return self.own(models) + 0.5 * (accumulated - 2.0 * itself)


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
        return _signed(self._signs, [-own_similarity(z) for z in models])

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
        return _signed(self._signs, losses)

    def shares(self, accumulated: list[tuple[jax.Array, jax.Array]], models: Models) -> jax.Array:
        """Return Σ ± ℓ_i; the chosen are already in the sums."""
        losses = [
            0.5 * (over_texts + over_images) - own_similarity(z)
            for (over_texts, over_images), z in zip(accumulated, models, strict=True)
        ]
        return _signed(self._signs, losses)


def _signed(signs: Sequence[float], losses: Iterable[jax.Array]) -> jax.Array:
    """Return Σ ± ℓ over the models."""
    return sum((sign * loss for sign, loss in zip(signs, losses, strict=True)), jnp.float32(0.0))


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
