"""Seeds whose value is missing for a reason: to leave them out would favor the runs that lost them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

LOST = {"FAILED": "failed", "SKIPPED": "was skipped", "CANCELLED": "was stopped"}
"""State in which a run ended without a result → a verb for messages."""

DIVERGED = "diverged"
"""Said of a run that completed and recorded a value that isn't finite."""

UNEVALUATED = "completed without an evaluation"


def in_words(fates: Iterable[str], seeds: int) -> str:
    """Write how many seeds were lost and how: "diverged in 2 of 5, failed in 1 of 5 seeds".

    Args:
        fates: One a seed: a verb as in `LOST`, or empty where the seed has a value.
        seeds: The number that they are counted of.
    """
    counts = Counter(filter(None, fates))
    told = ", ".join(f"{fate} in {count} of {seeds}" for fate, count in counts.items())
    return f"{told} seed{'s' * (seeds != 1)}" if told else ""
