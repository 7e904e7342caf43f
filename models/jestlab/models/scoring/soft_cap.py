"""Soft-capped sampling, SCS: how often each example of a filtered data set comes up.

Filter Like You Test (Shechter & Carmon, 2025, arXiv:2503.08805): good examples may come up again,
and the more often one did, the less likely it is to. Batches are drawn without replacement in proportion to
exp(score); after each, the scores of its examples are lowered by a penalty α, until enough are drawn.

As in the authors' notebook (github.com/formll/FLYT). Their scores are logits that a scoring model has
learned; here they are any column, times a gain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def soft_cap_counts(
    scores: npt.NDArray[np.float32],
    *,
    size: int,
    penalty: float,
    batch_size: int,
    gain: float,
    seed: int,
) -> npt.NDArray[np.float32]:
    """Draw a data set, and count how often each example is in it.

    Args:
        scores: float32 [n]; −inf for one that is never drawn.
        size: How many draws there are in all.
        penalty: α.
        batch_size: Draws between penalties; fewer if there are fewer examples to draw.
        gain: Factor on the scores.
        seed: Of the draws.

    Returns:
        float32 [n], whole numbers whose sum is `size`.

    Raises:
        ValueError: There is nothing to draw.
    """
    logits = gain * scores.astype(np.float64)
    able = int(np.isfinite(logits).sum())
    if not able:
        raise ValueError("soft-capped sampling of no example: all scores are −inf")
    counts, rng = np.zeros(len(scores), np.int64), np.random.default_rng(seed)
    left = size
    while left:
        k = min(batch_size, able, left)
        # Gumbel top-k: k successive draws without replacement in proportion to exp(logits).
        perturbed = logits + rng.gumbel(size=len(logits))
        batch = np.argpartition(-perturbed, k - 1)[:k]
        counts[batch] += 1
        logits[batch] -= penalty
        left -= k
    return counts.astype(np.float32)
