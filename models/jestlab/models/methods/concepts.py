"""Concept-aware batches, CABS (Ghosh et al., 2026, arXiv:2511.20643): selection by concepts, not scores.

Candidate i has a set of concepts C_i from metadata (`selection.concepts`).

* Diversity maximization, CABS-DM, repeatedly takes the candidate with the largest gain

      h(i) = 1/|C_i| Σ_{c ∈ C_i, n_c < t} ( (t − n_c) / t + 1 / F_c ),

  where n_c is the number of chosen candidates with concept c, t is the target number per concept, and F_c is
  the number of candidates with c in the super-batch, as in the authors' code (github.com/bethgelab/cabs).
* Frequency maximization, CABS-FM, takes the candidates with the most concepts, h(i) = |C_i|.

Departures from the authors' code:

* A concept that has reached t adds 0 to the gain, as in the paper; the code subtracts ½, and excludes all
  candidates with a concept that ten of the chosen candidates have.
* Equal gains are decided at random instead of by position. Gains are compared in steps of 2^-16, so that
  rounding errors decide nothing.
* One choice is made from the whole super-batch instead of one choice per device.

Letters: B super-batch, b sub-batch, K maximum number of concepts per example.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

_STEPS = 1 << 16  # steps between gains 0 and 1


def concept_diversity(
    key: jax.Array, concepts: jax.Array, *, batch_size: int, target: int | None = None
) -> jax.Array:
    """Choose greedily, so that all concepts occur about equally often (CABS-DM).

    Args:
        key: PRNG key, which decides between equal gains.
        concepts: int32 [B, K], the distinct concept numbers of each candidate, padded with −1.
        batch_size: b.
        target: t; None: b over the number of concepts among the candidates, rounded down, at least 1.

    Returns:
        int32 [b], in the order of choice. Candidates without concepts come last.
    """
    B, K = concepts.shape
    has = concepts >= 0
    # The concepts of the candidates, numbered from 0. The number of −1 is never used.
    present, numbers = jnp.unique(concepts, size=B * K + 1, fill_value=-1, return_inverse=True)
    numbers = numbers.reshape(B, K)
    frequency = jnp.zeros(B * K + 1, jnp.int32).at[numbers].add(has.astype(jnp.int32))
    known = jnp.sum((frequency > 0) & (present >= 0))
    t = jnp.maximum(batch_size // jnp.maximum(known, 1), 1) if target is None else jnp.int32(target)
    rarity = 1.0 / jnp.maximum(frequency[numbers], 1)
    count = jnp.sum(has, axis=1)
    tie = jax.random.permutation(key, B)

    def choose(i: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        chosen, taken, reached = state
        n = reached[numbers]
        gains = jnp.where(has & (n < t), (t - n) / t + rarity, 0.0)
        gain = jnp.round(_STEPS * jnp.sum(gains, axis=1) / jnp.maximum(count, 1)).astype(jnp.int32)
        gain = jnp.where(taken, -2, jnp.where(count > 0, gain, -1))
        best = jnp.argmax(jnp.where(gain == jnp.max(gain), tie, -1))
        return (
            chosen.at[i].set(best.astype(jnp.int32)),
            taken.at[best].set(True),
            reached.at[numbers[best]].add(has[best].astype(jnp.int32)),
        )

    start = (jnp.zeros(batch_size, jnp.int32), jnp.zeros(B, bool), jnp.zeros(B * K + 1, jnp.int32))
    chosen: jax.Array = jax.lax.fori_loop(0, batch_size, choose, start)[0]
    return chosen


def concept_frequency(key: jax.Array, concepts: jax.Array, *, batch_size: int) -> jax.Array:
    """Choose the b candidates with the most concepts, int32 [b], ascending; ties are random (CABS-FM).

    The arguments are those of `concept_diversity`.
    """
    count = jnp.sum(concepts >= 0, axis=1)
    order = jnp.lexsort((jax.random.permutation(key, len(concepts)), -count))
    return jnp.sort(order[:batch_size]).astype(jnp.int32)
