"""The rule of RHO-LOSS: train on the b examples of highest score (Mindermann et al., 2022, arXiv:2206.07137).

The score is the reducible holdout loss: the learner's loss minus that of a model trained on holdout data.
That is the criterion "learnability" with this model as the reference: train it on data that the learner does
not read, and set `selection.rule: highest`. JEST's independent selection samples by the scores instead. As in
the JEST paper, Sec. 3.1, and unlike in classification, the loss of an example is that of its pair alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jestlab.models.selection import SuperBatch


def highest(key: jax.Array, batch: SuperBatch, *, batch_size: int, gain: float) -> jax.Array:
    """Choose the b candidates of the scored super-batch with the highest scores, int32 [b], ascending.

    Position decides ties. `key` and `gain` are not used: the choice is not random, and a positive gain does
    not change the order of scores.
    """
    drawn = batch.draw(batch.unconditioned(), None, batch_size, 1.0)
    return jnp.sort(drawn.indices)
