"""Choose the best of several labels within each seed, such as the best learning rate by a validation metric.

A claim then compares the procedure "tune with one seed, then report". A choice over all seeds would depend on
all of them: their differences would not be independent, as the tests of claims assume.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..frames import LOST
from ..metrics import lacks_goal
from .claim import BOTH, is_score
from .measures import Measures, Place


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


def stand_ins(
    measures: Measures,
    states: Mapping[Place, str],
    labels: Sequence[str],
    by: str,
    ended: Collection[str] = ("COMPLETED", *LOST),
) -> Iterator[tuple[int, str, bool]]:
    """Yield each seed that all labels have, a label, and whether it is the best.

    If it is not the best, it is a label whose run has not ended, or was lost.

    Args:
        states: Label and seed → state of the run.
        by: The metric that chooses.
        ended: States in which a run has ended.
    """
    every_seed = sorted({seed for _, seed in states})
    seeds = [seed for seed in every_seed if all((label, seed) in states for label in labels)]
    values = measures.values([(by, label, seed) for label in labels for seed in seeds])
    for seed in seeds:
        completed = [label for label in labels if states[label, seed] == "COMPLETED"]
        known = {each: values[by, each, seed] for each in completed if (by, each, seed) in values}
        running = [label for label in labels if states[label, seed] not in ended]
        lost = [label for label in labels if label not in completed]
        best = None if running else best_of(known, labels, measures.metric(by).sign)
        yield seed, best or [*running, *lost, *labels][0], best is not None


def refusal(by: str, reported: Collection[str], measures: Measures) -> str:
    """Explain why a metric can't choose if these measures are reported; empty if it can."""
    if measures.metric(by).goal is None:
        return lacks_goal([by])
    averaged = measures.frames.averaged if measures.frames and any(map(is_score, reported)) else []
    return f"{by} is part of the score, which is reported. {BOTH}" if by in averaged else ""
