"""Concept-aware batches, CABS (Ghosh et al., 2026, arXiv:2511.20643): rules that look at concepts alone.

Every candidate i has a set of concepts C_i, from metadata (`selection.concepts`), and neither the learner nor
a reference scores anything.

* Diversity maximisation, CABS-DM, takes one candidate after another, each time the one of largest gain

      h(i) = 1/|C_i| Σ_{c ∈ C_i, n_c < t} ( (t − n_c) / t + 1 / F_c ),

  where n_c counts the chosen that have concept c, t is the number of each concept that is aimed at, and F_c
  is how many candidates have it.
* Frequency maximisation, CABS-FM, takes those with the most concepts, h(i) = |C_i|.

As in the authors' code (github.com/bethgelab/cabs), F_c counts the super-batch. Departures from it:

* A concept that is full adds 0 to the gain, as the paper prints it; the code subtracts ½, and leaves out all
  candidates with a concept that ten of the chosen have.
* Equal gains are decided at random, the code decides by place. Gains that differ by less than 2^-16 are
  taken for equal, so that rounding decides nothing.
* One choice is made from the whole super-batch; the code divides it over devices, each for itself.

Letters: B super-batch, b sub-batch, K concepts of an example at most.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

_STEPS = 1 << 16  # of gain, in 1


def concept_diversity(
    key: jax.Array, concepts: jax.Array, *, batch_size: int, target: int | None = None
) -> jax.Array:
    """Choose greedily, so that all concepts come up about as often (CABS-DM).

    Args:
        key: PRNG key, which decides among equals.
        concepts: int32 [B, K], the numbers of each candidate's concepts, without repetition, then −1.
        batch_size: b.
        target: t; None: b over the number of concepts among the candidates, rounded down, at least 1.

    Returns:
        int32 [b], in the order in which they were chosen. Candidates without concepts come last.
    """
    B, K = concepts.shape
    has = concepts >= 0
    # The concepts that are here, by their own numbers from 0; that of −1 is never looked at.
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
    """Choose the candidates with the most concepts, equal ones at random (CABS-FM).

    Args:
        key: PRNG key.
        concepts: int32 [B, K], the numbers of each candidate's concepts, then −1.
        batch_size: b.

    Returns:
        int32 [b], ascending.
    """
    count = jnp.sum(concepts >= 0, axis=1)
    order = jnp.lexsort((jax.random.permutation(key, len(concepts)), -count))
    return jnp.sort(order[:batch_size]).astype(jnp.int32)
