"""The rule of RHO-LOSS: train on the b examples of highest score (Mindermann et al., 2022, arXiv:2206.07137).

The score there is the reducible holdout loss, ℓ(θ) − ℓ(θ_il): the learner's loss minus the irreducible one,
that of a model which was trained on holdout data. It is this package's criterion "learnability" with such a
model as the reference: train it on what the learner does not read, and set `selection.rule: highest`.

JEST's independent selection differs in drawing by the scores instead of taking the highest. There is no
classification here: the loss of an example is that of its pair alone, as in the JEST paper, Sec. 3.1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jestlab.models.selection import SuperBatch


def highest(key: jax.Array, batch: SuperBatch, *, batch_size: int, gain: float) -> jax.Array:
    """Choose the b candidates of highest score, equal ones by their place; nothing is drawn.

    Args:
        key: Not used.
        batch: The scored super-batch.
        batch_size: b.
        gain: Not used: no positive factor changes an order.

    Returns:
        int32 [b], ascending.
    """
    drawn = batch.draw(batch.unconditioned(), None, batch_size, 1.0)
    return jnp.sort(drawn.indices)
