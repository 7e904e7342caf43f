"""Choose the best of several labels within each seed, such as the best learning rate by a validation metric.

What is compared is the procedure "tune with one seed, then report". A choice over all seeds would depend on
all of them: their differences would not be independent, as the tests of claims assume.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..metrics import lacks_goal
from .claim import BOTH, is_score
from .measures import Measures, Term


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


@dataclass(frozen=True)
class Compared:
    """One side of a claim, with the labels of its runs.

    Attributes:
        plus: Labels whose values are averaged; with `by`, those from which one is chosen in each seed.
        minus: Labels whose mean is subtracted.
        by: The metric that chooses; empty for no choice.
    """

    measure: str
    plus: Sequence[str]
    minus: Sequence[str]
    by: str = ""

    @property
    def needed(self) -> list[list[Term]]:
        """Lists of terms. A seed needs a value of at least one term of each list."""
        averaged = self.minus if self.by else (*self.plus, *self.minus)
        chosen = [[(name, label) for label in self.plus] for name in (self.measure, self.by) if self.by]
        return [*([(self.measure, label)] for label in averaged), *chosen]

    def refused(self, measures: Measures) -> str:
        """Explain why the metric can't choose; empty if it can."""
        if not self.by:
            return ""
        if measures.metric(self.by).goal is None:
            return lacks_goal([self.by])
        averaged = measures.frames.averaged if measures.frames and is_score(self.measure) else []
        return f"{self.by} is part of the score. {BOTH}" if self.by in averaged else ""

    def in_seed(
        self, seed: int, values: Mapping[tuple[str, str, int], float], measures: Measures
    ) -> Compared:
        """Return the side of one seed, with the chosen label only; without labels if none can be chosen.

        Args:
            values: (measure, label, seed) → value of a completed run.
        """
        if not self.by:
            return self
        places = {label: (self.by, label, seed) for label in self.plus}
        known = {label: values[place] for label, place in places.items() if place in values}
        best = best_of(known, self.plus, measures.metric(self.by).sign)
        return replace(self, plus=[] if best is None else [best])
