"""The paper's formulas as it prints them: one example under IID, JEST and Flexi-JEST, by F alone.

`Step.cost("paper")` is the same for a step of known sizes, part by part.
"""

from __future__ import annotations


def paper_iid(F: float) -> float:
    """C_IID = 3F: one example under uniform sampling."""
    return 3 * F


def paper_jest(F: float, ratio: float, cached: bool = True) -> float:
    """C_JEST = 3F + F·B/b − F = F(2 + B/b): the scoring pass over the sub-batch is reused for its gradient.

    Args:
        F: FLOPs of a forward pass; the reference's is the same.
        ratio: B/b.
        cached: Whether the reference's embeddings are cached; otherwise its passes add F·B/b.

    Returns:
        FLOPs for each example seen. Over C_IID at f = .8: 7/3 cached, 4 not cached.

    Raises:
        ValueError: The super-batch is smaller than its sub-batch.
    """
    _check_ratio(ratio)
    return F * (2 + (1 if cached else 2) * ratio)


def paper_flexi(F: float, ratio: float, A: float, approximate_share: float = 0.5) -> float:
    """C_Flexi = 3F((1 − λ) + λA) + A·F·B/b: scored by the approximate model, so that no pass can be reused.

    Args:
        F: FLOPs of the full model's forward pass.
        ratio: B/b.
        A: Cost of the approximate model as a share of the full one's: .25 by the number of patches at twice
            the patch size, .28 in the paper's tables.
        approximate_share: λ.

    Returns:
        FLOPs for each example seen. Over C_IID at f = .8, λ = .5: 1.0417 at A = .25, 1.1067 at A = .28.

    Raises:
        ValueError: The super-batch is smaller than its sub-batch.
    """
    _check_ratio(ratio)
    return 3 * F * ((1 - approximate_share) + approximate_share * A) + A * F * ratio


def _check_ratio(ratio: float) -> None:
    if ratio < 1:
        raise ValueError(f"B/b is {ratio:g}: a super-batch is no smaller than its sub-batch")
