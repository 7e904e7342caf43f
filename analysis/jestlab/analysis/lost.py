"""Runs that ended without a value. Leaving out their seeds silently would favor labels that lost runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

LOST = {"FAILED": "failed", "SKIPPED": "was skipped", "CANCELLED": "was stopped"}
"""State in which a run ended without a result → a verb for messages."""

DIVERGED = "diverged"
"""Describes a completed run with a recorded value that isn't finite."""

UNEVALUATED = "completed without an evaluation"


def in_words(fates: Iterable[str], seeds: int) -> str:
    """Write how many seeds were lost and how: "diverged in 2 of 5, failed in 1 of 5 seeds".

    Args:
        fates: One for each seed: a verb as in `LOST`, or empty if the seed has a value.
        seeds: Total number of seeds.
    """
    counts = Counter(filter(None, fates))
    text = ", ".join(f"{fate} in {count} of {seeds}" for fate, count in counts.items())
    return f"{text} seed{'s' * (seeds != 1)}" if text else ""
