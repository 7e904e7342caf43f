"""What is summed up over the runs of an experiment, by what changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from jestlab.analysis import units
from jestlab.platform.launch.status import RunStatus
from jestlab.platform.store.records import RunState


@dataclass(frozen=True)
class Totals:
    """What is summed up over runs; as few of many change at a time, by what changes.

    Attributes:
        counts: How many runs are in each state.
        planned: Their planned FLOPs.
        spent: FLOPs so far, of those whose FLOPs are planned.
        hours: Chip-hours so far.
    """

    counts: Counter[RunState] = field(default_factory=Counter)
    planned: float = 0.0
    spent: float = 0.0
    hours: float = 0.0

    def changed(self, gone: Iterable[RunStatus], come: Iterable[RunStatus]) -> Totals:
        """Return the totals once some lines are replaced by others."""
        counts = self.counts.copy()
        sums = [self.planned, self.spent, self.hours]
        for sign, lines in ((-1, gone), (1, come)):
            for line in lines:
                if line.repeats:
                    continue
                counts[line.run.state] += sign
                if line.cost.total_flops:
                    sums[0] += sign * line.cost.total_flops
                    sums[1] += sign * (line.cost.actual_flops or 0.0)
                sums[2] += sign * (line.cost.actual_hours or 0.0)
        return Totals(counts, *sums)

    def states(self) -> dict[str, int]:
        """Return how many runs are in each state, without states of none."""
        return {state.value: self.counts[state] for state in RunState if self.counts[state]}

    def __str__(self) -> str:
        """Write what has been spent, of what was planned, in one line; empty where nothing is known."""
        parts = []
        if self.planned:
            share = f"{self.spent / self.planned:.0%}"
            parts.append(f"{units.flops(self.spent)} of {units.flops(self.planned)}, {share}")
        if self.hours:
            parts.append(f"{units.hours(self.hours)} h")
        return "; ".join(parts)
