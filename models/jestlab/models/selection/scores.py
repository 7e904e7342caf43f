"""Scores of every pair of a super-batch, by the three criteria of the paper (Sec. 3.1).

    hard-learner   s^hard  =  ℓ(· | θ)
    easy-reference s^easy  = −ℓ(· | θ*)
    learnability   s^learn =  ℓ(· | θ) − ℓ(· | θ*)

θ is the learner and θ* the reference; ℓ is the pairwise sigmoid loss.
"""

from __future__ import annotations

import jax

from ..losses import pairwise_sigmoid_loss
from ..two_towers import Embeddings


def score_matrix(criterion: str, learner: Embeddings | None, reference: Embeddings | None) -> jax.Array:
    """Score every image with every text.

    The paper's pseudo-code has no hard-learner path and names two config fields that it never sets
    (`cfg.scoring`, `cfg.learnability`); here the criterion is one argument.

    Args:
        criterion: "learnability", "easy_reference" or "hard_learner".
        learner: Embeddings of the B pairs by the learner; not needed by "easy_reference".
        reference: The same by the reference; not needed by "hard_learner".

    Returns:
        float32 [B, B] without gain; the diagonal holds the scores of the pairs themselves.

    Raises:
        ValueError: An unknown criterion, or the embeddings that it needs are missing.
    """
    if criterion == "learnability" and learner is not None and reference is not None:
        return pairwise_sigmoid_loss(learner) - pairwise_sigmoid_loss(reference)
    if criterion == "easy_reference" and reference is not None:
        return -pairwise_sigmoid_loss(reference)
    if criterion == "hard_learner" and learner is not None:
        return pairwise_sigmoid_loss(learner)
    raise ValueError(f"criterion {criterion!r} is unknown or lacks the embeddings that it scores with")
