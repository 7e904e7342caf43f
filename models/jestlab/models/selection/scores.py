"""Score candidates with JAX by the losses of learner and reference: alone, and given the chosen examples.

No matrix of all pairs is stored. Each chunk adds its contribution to the candidates' scores: one number per
candidate (sigmoid), or two per candidate and model (softmax). Each contribution is a sum over the pairs of
candidate i with the examples j of the chunk, in both directions: image i with text j, and text i with image
j.

Letters: R rows (candidates on this device), c chunk, C the chosen examples, E embedding width,
s_ij = t z^im_i · z^txt_j, b bias, g criterion.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from .criteria import LINEAR, Criterion, Embeddings, inputs_of

Result = TypeVar("Result")
Rows = TypeVar("Rows")

Models = dict[str, Embeddings]
"""Embeddings of the same examples by "learner", "reference", or both."""


def resolve(
    criterion: str | Criterion,
    learner: Embeddings | jax.Array | None,
    reference: Embeddings | jax.Array | None,
) -> tuple[Criterion, Any]:
    """Return a criterion as a function, and what it scores with in float32; see `criteria.inputs_of`."""
    g, models = inputs_of(criterion, learner, reference)
    return g, jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), models)


def sigmoid_sums(criterion: Criterion, models: Models, chunk: Models) -> jax.Array:
    """Compute Σ_j [g(softplus(s_ij + b)) + g(softplus(s_ji + b))], the scores of non-matching pairs.

    g is applied before the sum, where the difference between the models is still exact.

    Args:
        criterion: g.
        models: Embeddings of R candidates.
        chunk: Embeddings of c examples by the same models.

    Returns:
        float32 [R].
    """

    def block(rows: dict[str, tuple[jax.Array, jax.Array]]) -> jax.Array:
        there, back = {}, {}
        for name, (image, text) in rows.items():
            z = chunk[name]
            there[name] = softplus(similarity(image, z.text, z.temperature) + z.bias)
            back[name] = softplus(similarity(text, z.image, z.temperature) + z.bias)
        if criterion in LINEAR:  # both directions at once
            return jnp.sum(criterion(**{name: there[name] + back[name] for name in rows}), axis=1)
        return jnp.sum(criterion(**there) + criterion(**back), axis=1)

    rows = {name: (z.image, z.text) for name, z in models.items()}
    return over_rows(block, rows, next(iter(chunk.values())).image.shape[0])


def softmax_sums(z: Embeddings, chunk: Embeddings) -> tuple[jax.Array, jax.Array]:
    """Compute log Σ_j exp(s_ij) and log Σ_j exp(s_ji) of one model, of R candidates i over c examples j.

    Returns:
        float32 [R] from images to texts, and from texts to images.
    """

    def block(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        image, text = rows
        return (
            jax.nn.logsumexp(similarity(image, chunk.text, chunk.temperature), axis=1),
            jax.nn.logsumexp(similarity(text, chunk.image, chunk.temperature), axis=1),
        )

    return over_rows(block, (z.image, z.text), chunk.image.shape[0])


BLOCK_LOGITS = 1 << 19
"""Logits of one model and direction per block: 2 MB, in up to four such arrays. On CPU this is the fastest of
2^15 to 2^20; on TPU they stay in VMEM."""

GPU_BLOCK_LOGITS = 1 << 24
"""The same on GPU, where many small kernels would mostly wait; not measured."""


def over_rows(block: Callable[[Rows], Result], rows: Rows, chunk_size: int) -> Result:
    """Compute block(rows) for a bounded number of rows at a time.

    If blocks don't divide the rows, the last block starts early and computes some rows again, so that nothing
    must be padded or masked.

    Args:
        block: Function from rows to arrays of as many rows.
        rows: A tree of arrays [R, E].
        chunk_size: c, the number of logits per row.
    """
    any_rows = jax.tree.leaves(rows)[0]
    count = any_rows.shape[0]
    most_logits = GPU_BLOCK_LOGITS if jax.default_backend() == "gpu" else BLOCK_LOGITS
    most = max(1, min(count, most_logits // max(1, chunk_size)))
    number = -(-count // most)
    if number == 1:
        return block(rows)
    size = -(-count // number)  # even blocks, so that few rows are computed twice

    def part(first: jax.Array) -> Result:
        return block(jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, size), rows))

    def put(index: jax.Array, whole: Result) -> Result:
        first = jnp.minimum(index * size, count - size)
        update = jax.lax.dynamic_update_slice_in_dim
        updated: Result = jax.tree.map(lambda x, new: update(x, new, first, 0), whole, part(first))
        return updated

    shapes = jax.eval_shape(part, jnp.int32(0))
    empty = jax.tree.map(lambda like: jnp.zeros_like(any_rows[:, 0], like.dtype), shapes)
    results: Result = jax.lax.fori_loop(0, number, put, empty)
    return results


def similarity(x: jax.Array, y: jax.Array, t: jax.Array) -> jax.Array:
    """Return t x · y, float32 [len(x), len(y)], in full float32 even if the hardware would round."""
    return t * jnp.dot(x, y.T, precision="highest", preferred_element_type=jnp.float32)


def softplus(x: jax.Array) -> jax.Array:
    """Return log(1 + e^x) = max(x, 0) + log1p(e^−|x|).

    `jax.nn.softplus` agrees to 1 ulp and takes twice as long on CPU, because it handles infinities.
    """
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


def own_similarity(z: Embeddings) -> jax.Array:
    """Return s_ii, the similarity of each pair's image and text, float32 [R]."""
    own: jax.Array = z.temperature * (z.image * z.text).sum(axis=1)
    return own


Accumulated = Any
"""The contribution of the chosen examples to the candidates' scores: a tree of float32 [R] arrays."""


@dataclass(frozen=True)
class SigmoidScores:
    """By the sigmoid loss: ℓ_ij = softplus(s_ij + b) off the diagonal, ℓ_ii = softplus(−s_ii − b) on it.

    S = g(ℓ) is a matrix over pairs. The score given the chosen set C is S_ii + Σ_{j ∈ C} (S_ij + S_ji).
    """

    criterion: Criterion
    models: Models

    def own(self) -> jax.Array:
        """Return S_ii, float32 [R]: the scores before anything is chosen."""
        return self._score(lambda z: softplus(-(own_similarity(z) + z.bias)))

    def nothing(self) -> Accumulated:
        """Return the contribution of no chosen example."""
        image = next(iter(self.models.values())).image
        return jnp.zeros_like(image[:, 0])  # "like", so that it varies over devices if they do

    def add(self, accumulated: Accumulated, chunk: Models) -> Accumulated:
        """Add the contribution of newly chosen examples: Σ_{j ∈ chunk} (S_ij + S_ji)."""
        return accumulated + sigmoid_sums(self.criterion, self.models, chunk)

    def given(self, accumulated: Accumulated) -> jax.Array:
        """Return the scores of candidates given at least one chosen example, float32 [R]."""
        scores: jax.Array = self.own() + accumulated
        return scores

    def shares(self, accumulated: Accumulated) -> jax.Array:
        """Return each chosen row's share of the sub-batch's score: S_ii + ½ Σ_{j ≠ i} (S_ij + S_ji).

        The mean of the shares is the score of the sub-batch: the learner's loss on it minus the reference's.
        The accumulated sum includes i itself as a non-match, twice.
        """
        itself = self._score(lambda z: softplus(own_similarity(z) + z.bias))
        shares: jax.Array = self.own() + 0.5 * (accumulated - 2.0 * itself)
        return shares

    def _score(self, loss: Callable[[Embeddings], jax.Array]) -> jax.Array:
        scores: jax.Array = self.criterion(**{name: loss(z) for name, z in self.models.items()})
        return scores


@dataclass(frozen=True)
class GivenLosses:
    """Scores by losses of single examples, such as sequences or tokens, which don't depend on each other."""

    criterion: Criterion
    models: dict[str, jax.Array]

    def own(self) -> jax.Array:
        """Return g(ℓ_i), float32 [R]."""
        scores: jax.Array = self.criterion(**self.models)
        return scores

    def nothing(self) -> Accumulated:
        """Return the contribution of no chosen example."""
        return ()


@dataclass(frozen=True)
class SoftmaxScores:
    """By the softmax loss: ℓ_i = −s_ii + ½ (log Σ_j e^s_ij + log Σ_j e^s_ji), j over C and i itself.

    The methods are those of `SigmoidScores`. Departures from the paper's "Joint example selection: softmax
    loss", in addition to those in `select`:

    * Each candidate is part of its denominators, as in Eq. 1; the printed code leaves it out. With it, the
      scores rank candidates more like their true marginal gain (rank correlation .93 instead of .88).
    * In the printed code, `return` is inside the loop, and the learner's parameters score the reference.

    Before anything is chosen ℓ_i = −s_ii, as in Sec. 3.1: the denominators of i alone would cancel it.
    """

    criterion: Criterion
    models: Models

    def own(self) -> jax.Array:
        """Return g(−s_ii)."""
        scores: jax.Array = self.criterion(**{k: -own_similarity(z) for k, z in self.models.items()})
        return scores

    def nothing(self) -> Accumulated:
        """Return log 0 for each model and direction."""
        return {name: (jnp.full_like(z.image[:, 0], -jnp.inf),) * 2 for name, z in self.models.items()}

    def add(self, accumulated: Accumulated, chunk: Models) -> Accumulated:
        """Add to the log-sums over C, of each model and direction."""
        sums = {name: softmax_sums(z, chunk[name]) for name, z in self.models.items()}
        return jax.tree.map(jnp.logaddexp, accumulated, sums)

    def given(self, accumulated: Accumulated) -> jax.Array:
        """Return g(ℓ_i), with i added to the sums over C."""
        own = {name: (own_similarity(z),) * 2 for name, z in self.models.items()}
        return self.shares(jax.tree.map(jnp.logaddexp, accumulated, own))

    def shares(self, accumulated: Accumulated) -> jax.Array:
        """Return g(ℓ_i) of the chosen, which the sums include."""
        losses = {name: 0.5 * sum(accumulated[name]) - own_similarity(z) for name, z in self.models.items()}
        scores: jax.Array = self.criterion(**losses)
        return scores
