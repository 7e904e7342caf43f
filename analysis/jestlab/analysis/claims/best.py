"""Choose the best of several labels within each seed, such as the best learning rate by a validation metric.

What is compared is the procedure "tune with one seed, then report". A choice over all seeds would depend on
all of them: their differences would not be independent, as the tests of claims assume.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def best_of(values: Mapping[str, float], labels: Sequence[str], sign: float) -> str | None:
    """Choose the best label of one seed.

    Args:
        values: Label → value of the metric that chooses; infinite or NaN for a run that diverged. Labels
            whose run failed or has no value are missing.
        labels: The candidates; the first of several equal ones is chosen.
        sign: 1 if higher values are better, −1 if lower ones are.

    Returns:
        The label; the first one if all runs diverged. None if none has a finite value and some are missing.
    """
    finite = [label for label in labels if math.isfinite(values.get(label, math.nan))]
    if not finite and not values.keys() >= set(labels):
        return None
    return max(finite, key=lambda label: sign * values[label]) if finite else labels[0]
