"""Rules that pick a sub-batch: in rounds (uniform, independent, joint, greedy), and by Gibbs sampling.

Letters: B super-batch, R = B / P of them on this device, b sub-batch, N chunks, c chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..two_towers import Embeddings
from .candidates import Candidates
from .conditional import ConditionalScores, Models
from .sampling import Draw, draw, gumbel

RULES = ("uniform", "independent", "joint", "greedy", "gibbs")

Noise = Callable[[jax.Array, int], jax.Array]
"""Key and B → float32 [B]."""


class Selected(NamedTuple):
    """A sub-batch, and what is known of how it came about; the same on every device but for what says so."""

    indices: jax.Array
    """int32 [b], distinct global indices into the super-batch: chunk after chunk as they were drawn, each
    ascending. An order within a chunk would mean nothing, and hang on the last bit of near ties."""
    own: jax.Array
    """float32 [R], this device's candidates' scores where nothing is chosen yet."""
    effective: jax.Array
    """float32 [draws], among how many candidates each draw was effectively a choice."""
    score: jax.Array
    """float32 [draws], the score of the batch (its learnability) after each draw: this device's share, to be
    summed. Empty unless traced."""


def chunk_sizes(batch_size: int, chunks: int) -> list[int]:
    """Sizes of the N chunks: they sum to b, and the first b mod N are larger by one."""
    quotient, remainder = divmod(batch_size, chunks)
    return [quotient + 1] * remainder + [quotient] * (chunks - remainder)


def in_rounds(
    key: jax.Array,
    candidates: Candidates,
    scores: ConditionalScores,
    models: Models,
    *,
    batch_size: int,
    chunks: int,
    gain: float,
    noise: Noise = gumbel,
    trace: bool = False,
) -> Selected:
    """Chunk by chunk, each drawn by scores given the chunks before it (Algorithm 1; see `dense`).

    Args:
        key: PRNG key.
        candidates: Where the super-batch lies.
        scores: By a loss and criterion.
        models: Each model's embeddings of this device's rows.
        batch_size: b.
        chunks: N.
        gain: Factor on the scores.
        noise: Of a round.
        trace: Whether to follow the batch's score, for another chunk's work.
    """
    own = scores.own(models)
    everyone = candidates.count

    def one_round(size: int, counted: bool) -> Callable[[Any, Any], tuple[Any, tuple[Draw, jax.Array]]]:
        def body(carry: Any, this_round: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[Draw, jax.Array]]:
            (conditional, accumulated, chosen), (round_key, total) = carry, this_round
            drawn = draw(
                candidates, conditional, chosen, candidates.here(noise(round_key, everyone)), gain, size
            )
            drawn = drawn._replace(indices=jnp.sort(drawn.indices))
            chosen = chosen | candidates.marked(drawn.indices)
            if counted:
                accumulated = scores.add(accumulated, models, _chunk(candidates, models, drawn.indices))
                conditional = scores.given(accumulated, models)
            share = _share(scores, accumulated, models, chosen) / total if trace else own[:0]
            return (conditional, accumulated, chosen), (drawn, share)

        return body

    sizes = chunk_sizes(batch_size, chunks)
    rounds = (jax.random.split(key, chunks), jnp.cumsum(jnp.array(sizes, jnp.float32)))
    carry = (own, scores.nothing(models), jnp.zeros_like(own, bool))
    parts, first = [], 0
    for size in sorted(set(sizes[:-1]), reverse=True):  # one loop for the larger chunks, one for the others
        count = sizes[:-1].count(size)
        these = jax.tree.map(lambda x, a=first, n=count: x[a : a + n], rounds)
        carry, results = jax.lax.scan(one_round(size, counted=True), carry, these)
        parts.append(results)
        first += count
    # Nothing is drawn by the scores after the last chunk.
    _, result = one_round(sizes[-1], counted=trace)(carry, jax.tree.map(lambda x: x[-1], rounds))
    parts.append(jax.tree.map(lambda x: x[None], result))
    indices, effective, score = (
        jnp.concatenate([x.reshape(-1) for x in of_parts])
        for of_parts in zip(*((drawn.indices, drawn.effective, share) for drawn, share in parts), strict=True)
    )
    return Selected(indices, own, effective, score)


def by_gibbs(
    key: jax.Array,
    candidates: Candidates,
    scores: ConditionalScores,
    models: Models,
    *,
    batch_size: int,
    sweeps: int,
    gain: float,
    trace: bool = False,
) -> Selected:
    """Brute force: from a uniform draw on, resample one random place of the sub-batch after another.

    Each is drawn from all candidates outside the sub-batch, by scores given all its other members, summed
    anew: a draw costs as much as all of `in_rounds` together. For diagnosis.

    By the sigmoid loss a conditional score is all that a candidate changes in Σ_ij S_ij, so that this samples
    sub-batches in proportion to exp(gain × Σ_ij S_ij), the gain taking the place of the text's 1/b. By the
    softmax loss it is not: what a candidate changes in the others' denominators is left out, as it is in
    joint selection.

    Args:
        key: PRNG key.
        candidates: Where the super-batch lies.
        scores: By a loss and criterion.
        models: Each model's embeddings of this device's rows.
        batch_size: b.
        sweeps: b draws each.
        gain: Factor on the scores.
        trace: Whether to follow the batch's score.
    """
    own = scores.own(models)
    everyone, b = candidates.count, batch_size

    def resample(indices: jax.Array, draw_key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        place_key, noise_key = jax.random.split(draw_key)
        place = jax.random.randint(place_key, (), 0, b)
        others = jnp.where(jnp.arange(b - 1) < place, indices[:-1], indices[1:])
        accumulated, conditional, chosen = scores.nothing(models), own, candidates.marked(others)
        if b > 1:
            accumulated = scores.add(accumulated, models, _chunk(candidates, models, others))
            conditional = scores.given(accumulated, models)
        noise = candidates.here(gumbel(noise_key, everyone))
        drawn = draw(candidates, conditional, chosen, noise, gain, 1)
        share = own[:0]
        if trace:
            accumulated = scores.add(accumulated, models, _chunk(candidates, models, drawn.indices))
            share = _share(scores, accumulated, models, chosen | candidates.marked(drawn.indices)) / b
        return indices.at[place].set(drawn.indices[0]), (drawn.effective, share)

    start_key, sampling_key = jax.random.split(key)
    start = draw(
        candidates, own, jnp.zeros_like(own, bool), candidates.here(gumbel(start_key, everyone)), 0.0, b
    )
    keys = jax.random.split(sampling_key, sweeps * b)
    indices, (effective, score) = jax.lax.scan(resample, start.indices, keys)
    return Selected(indices, own, effective, score.reshape(-1))


def _chunk(candidates: Candidates, models: Models, indices: jax.Array) -> list[Embeddings]:
    """Each model's embeddings of the examples at global indices, on every device."""
    pairs = candidates.rows([(z.image, z.text) for z in models], indices)
    return [z._replace(image=image, text=text) for z, (image, text) in zip(models, pairs, strict=True)]


def _share(scores: ConditionalScores, accumulated: Any, models: Models, chosen: jax.Array) -> jax.Array:
    """float32 []: what this device's chosen rows contribute to the batch's summed score."""
    return jnp.sum(scores.shares(accumulated, models), where=chosen)
