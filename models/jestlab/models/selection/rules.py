"""Rules that pick a sub-batch: in rounds (uniform, independent, joint, greedy), and by Gibbs sampling.

Letters: B super-batch, R = B / P of them on this device, b sub-batch, N chunks, c chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..two_towers import Embeddings
from .blocks import Models
from .candidates import Candidates
from .conditional import ConditionalScores
from .sampling import Draw, draw, gumbel

RULES = ("uniform", "independent", "joint", "greedy", "gibbs")

Noise = Callable[[jax.Array, int], jax.Array]
"""Key and B → float32 [B]."""

Trace = jax.Array | None
"""bool []: whether to follow the batch's score; None: never, which need not even be asked."""


class Selected(NamedTuple):
    """A sub-batch, and what is known of how it came about; the same on every device but for what says so."""

    indices: jax.Array
    """int32 [b], distinct global indices into the super-batch: chunk after chunk as they were drawn, each
    ascending (an order within a chunk would mean nothing, and hang on the last bit of near ties); of Gibbs
    sampling place by place."""
    own: jax.Array
    """float32 [R], this device's candidates' scores where nothing is chosen yet."""
    effective: jax.Array
    """float32 [draws], among how many candidates each draw's first was effectively a choice, 1 / Σ p²."""
    score: jax.Array
    """float32 [draws], the score of the batch (its learnability) after each draw: this device's share, to be
    summed. Empty where it is never traced, and the last one wrong where it is not this time."""


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
    gain: float | jax.Array,
    noise: Noise | None = gumbel,
    trace: Trace = None,
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
        noise: Of a round; None: the highest scores.
        trace: Whether to follow the batch's score to the end, for another chunk's work.
    """
    own = scores.own(models)
    everyone = candidates.count

    def draw_chunk(carry: Any, round_key: jax.Array, size: int) -> tuple[jax.Array, Draw]:
        conditional, _, chosen = carry
        noises = None if noise is None else candidates.here(noise(round_key, everyone))
        drawn = draw(candidates, conditional, chosen, noises, gain, size)
        drawn = drawn._replace(indices=jnp.sort(drawn.indices))
        return chosen | candidates.marked(drawn.indices), drawn

    def followed(accumulated: Any, chosen: jax.Array, total: jax.Array) -> jax.Array:
        return own[:0] if trace is None else _share(scores, accumulated, models, chosen) / total

    def one_round(size: int) -> Callable[[Any, Any], tuple[Any, tuple[Draw, jax.Array]]]:
        def body(carry: Any, this_round: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[Draw, jax.Array]]:
            round_key, total = this_round
            chosen, drawn = draw_chunk(carry, round_key, size)
            chunk, _ = _chunk(candidates, models, drawn.indices)
            accumulated = scores.add(carry[1], models, chunk)
            carry = (scores.given(accumulated, models), accumulated, chosen)
            return carry, (drawn, followed(accumulated, chosen, total))

        return body

    sizes = chunk_sizes(batch_size, chunks)
    rounds = (jax.random.split(key, chunks), jnp.cumsum(jnp.array(sizes, jnp.float32)))
    carry = (own, scores.nothing(models), jnp.zeros_like(own, bool))
    parts, first = [], 0
    for size in sorted(set(sizes[:-1]), reverse=True):  # one loop for the larger chunks, one for the others
        count = sizes[:-1].count(size)
        these = jax.tree.map(lambda x, a=first, n=count: x[a : a + n], rounds)
        carry, results = jax.lax.scan(one_round(size), carry, these)
        parts.append(results)
        first += count
    # Nothing is drawn by the scores after the last chunk: it is counted for the trace alone.
    last_key, total = jax.tree.map(lambda x: x[-1], rounds)
    chosen, drawn = draw_chunk(carry, last_key, sizes[-1])
    accumulated = carry[1]
    if trace is not None:
        chunk, indices = _chunk(candidates, models, drawn.indices)
        drawn = drawn._replace(indices=indices)  # so that nothing is sent while that message is on its way
        accumulated = jax.lax.cond(trace, lambda: scores.add(accumulated, models, chunk), lambda: accumulated)
    result = drawn, followed(accumulated, chosen, total)
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
    gain: float | jax.Array,
    trace: Trace = None,
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
            accumulated = scores.add(accumulated, models, _chunk(candidates, models, others)[0])
            conditional = scores.given(accumulated, models)
        noise = candidates.here(gumbel(noise_key, everyone))
        drawn = draw(candidates, conditional, chosen, noise, gain, 1)
        share = own[:0]
        if trace is not None:
            accumulated = scores.add(accumulated, models, _chunk(candidates, models, drawn.indices)[0])
            share = _share(scores, accumulated, models, chosen | candidates.marked(drawn.indices)) / b
        return indices.at[place].set(drawn.indices[0]), (drawn.effective, share)

    start_key, sampling_key = jax.random.split(key)
    start = draw(
        candidates, own, jnp.zeros_like(own, bool), candidates.here(gumbel(start_key, everyone)), 0.0, b
    )
    keys = jax.random.split(sampling_key, sweeps * b)
    indices, (effective, score) = jax.lax.scan(resample, start.indices, keys)
    return Selected(indices, own, effective, score.reshape(-1))


def _chunk(candidates: Candidates, models: Models, indices: jax.Array) -> tuple[list[Embeddings], jax.Array]:
    """Each model's embeddings of the examples at global indices, on every device; and the indices again."""
    pairs, again = candidates.rows([(z.image, z.text) for z in models], indices)
    chunk = [z._replace(image=image, text=text) for z, (image, text) in zip(models, pairs, strict=True)]
    return chunk, again


def _share(scores: ConditionalScores, accumulated: Any, models: Models, chosen: jax.Array) -> jax.Array:
    """float32 []: what this device's chosen rows contribute to the batch's summed score."""
    return jnp.sum(scores.shares(accumulated, models), where=chosen)
