"""Rules that draw a sub-batch from scores: independent, and joint (the paper's Algorithm 1).

Where this departs from the printed Algorithm 1, and why:

* The print's first `choice(logits_ii, n)` draws values at random; here indices are drawn in proportion to
  exp(score), as the text says.
* The print samples each chunk with replacement from unnormalised, overflowing `exp(logits)`. Here a chunk is
  drawn without replacement by Gumbel top-k, which is exactly successive draws in proportion to exp(score)
  (Plackett–Luce) and needs no exponential.
* Chosen examples are excluded by −inf, not by subtracting 1e8, which would swallow the scores' digits.
* `int(B (1 − f) / N)` loses examples to floating error (2047 instead of 2048 at f = .8). Here b is given;
  the first b mod N chunks hold one example more than the others.
* The text puts 1/b inside the exponent, the code multiplies the sum by `softmax_score_gain` = 100. Here the
  gain is an explicit factor on the sum.
* The text's conditional is one-directional; like the code, both directions count (image→text, text→image).

Letters: B super-batch, b sub-batch, N chunks, S scores [B, B].
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

Carry = tuple[jax.Array, jax.Array]  # conditional scores float32 [B], chosen bool [B]


def select(
    key: jax.Array, scores: jax.Array, *, rule: str, batch_size: int, chunks: int = 16, gain: float = 100.0
) -> jax.Array:
    """Draw a sub-batch.

    Args:
        key: PRNG key.
        scores: float32 [B, B], from `score_matrix`.
        rule: "independent" or "joint".
        batch_size: b, at most B.
        chunks: N, at most b; "joint" alone uses it.
        gain: Factor on the scores before sampling: the inverse of a sampling temperature.

    Returns:
        int32 [b], distinct indices into the super-batch, in the order in which they were drawn.

    Raises:
        ValueError: b > B, N > b, or an unknown rule.
    """
    super_batch = scores.shape[0]
    if not 0 < batch_size <= super_batch:
        raise ValueError(f"cannot draw a sub-batch of {batch_size} from a super-batch of {super_batch}")
    if rule == "independent":
        return _jointly(key, scores, batch_size, 1, gain)
    if rule == "joint":
        if not 0 < chunks <= batch_size:
            raise ValueError(f"cannot draw a sub-batch of {batch_size} in {chunks} chunks")
        return _jointly(key, scores, batch_size, chunks, gain)
    raise ValueError(f"unknown selection rule {rule!r}: known are independent, joint")


def chunk_sizes(batch_size: int, chunks: int) -> list[int]:
    """Sizes of the N chunks: they sum to b, and the first b mod N are larger by one."""
    quotient, remainder = divmod(batch_size, chunks)
    return [quotient + 1] * remainder + [quotient] * (chunks - remainder)


def _jointly(key: jax.Array, scores: jax.Array, batch_size: int, chunks: int, gain: float) -> jax.Array:
    """Chunk by chunk, each example scored given those already chosen; with one chunk, independent selection.

    conditional_i = S_ii + Σ_{j chosen} (S_ij + S_ji)
    """
    sizes = chunk_sizes(batch_size, chunks)

    def round_of(size: int) -> Callable[[Carry, jax.Array], tuple[Carry, jax.Array]]:
        def draw_chunk(carry: Carry, round_key: jax.Array) -> tuple[Carry, jax.Array]:
            conditional, chosen = carry
            new = _gumbel_top_k(round_key, conditional, chosen, size, gain)
            conditional = conditional + scores[new].sum(axis=0) + scores[:, new].sum(axis=1)
            return (conditional, chosen.at[new].set(True)), new

        return draw_chunk

    own = jnp.diagonal(scores)
    carry = (own, jnp.zeros_like(own, bool))  # "like", so that it varies over devices if the scores do
    keys = jax.random.split(key, chunks)
    drawn, first = [], 0
    for size in sorted(set(sizes), reverse=True):  # one scan for the larger chunks, one for the others
        rounds = keys[first : first + sizes.count(size)]
        carry, indices = jax.lax.scan(round_of(size), carry, rounds)
        drawn.append(indices.reshape(-1))
        first += len(rounds)
    return jnp.concatenate(drawn)


def _gumbel_top_k(key: jax.Array, scores: jax.Array, excluded: jax.Array, k: int, gain: float) -> jax.Array:
    """k indices without replacement, in proportion to exp(gain × score), among those not excluded.

    Scores are centred over the candidates before the gain, so that no digits are lost to a common offset.

    Args:
        key: PRNG key.
        scores: float32 [B].
        excluded: bool [B].
        k: How many.
        gain: Factor on the scores.

    Returns:
        int32 [k].
    """
    centre = jnp.mean(scores, where=~excluded)
    noise = jax.random.gumbel(key, scores.shape, scores.dtype, mode="high")
    perturbed = jnp.where(excluded, -jnp.inf, gain * (scores - centre) + noise)
    return jax.lax.top_k(perturbed, k)[1].astype(jnp.int32)
