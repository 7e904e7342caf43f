"""Choose the next seeds of a study that adds seeds until its claims are decided.

A round adds seeds to open claims, half of the way to their earliest possible decision, so that futile claims
are noticed early. No claim passes the number of seeds at which some claim can be decided first, so clear
claims are decided before unclear ones take more seeds. A run that several claims use counts once.

The next round depends only on the results in the store. A launch that was killed, or a second launch,
continues with the same runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .judged import Judged, Label

if TYPE_CHECKING:
    from ..results import Snapshot

_SECOND = 1 / 3600  # hours; so that runs of unknown duration have a cost

_HOURS = """
    SELECT v_costs.fingerprint, v_costs.label, v_runs.state, v_costs.actual_hours
    FROM v_costs JOIN v_runs ON v_runs.experiment = v_costs.experiment AND v_runs.label = v_costs.label
        AND v_runs.seed = v_costs.seed
    WHERE v_costs.experiment = :experiment AND v_costs.actual_hours IS NOT NULL"""


@dataclass(frozen=True)
class Hours:
    """The duration of an experiment's runs.

    Attributes:
        spent: Hours of all attempts. Two concurrent hours count twice.
        by_label: Label → mean hours of its completed runs; in a union, labels are "study/label".
    """

    spent: float = 0.0
    by_label: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls, store: Snapshot, experiment: str) -> Hours:
        """Read the durations of an experiment."""
        rows = store.select(_HOURS, experiment=experiment)
        means = rows[rows["state"] == "COMPLETED"].groupby("label")["actual_hours"].mean()
        return cls(float(rows.drop_duplicates("fingerprint")["actual_hours"].sum()), dict(means))

    def of(self, label: Label) -> float:
        """Return the hours of a run; 0 if unknown."""
        study, name = label
        return self.by_label.get(f"{study}/{name}", self.by_label.get(name, 0.0))

    def of_seed(self, each: Judged) -> float:
        """Return the hours of one more seed of a claim."""
        return sum(map(self.of, each.places))


@dataclass(frozen=True)
class Round:
    """The runs of the next round.

    Attributes:
        seeds: Label → number of seeds after the round, for the labels of the chosen claims; empty at the end.
        claims: The chosen claims, the most likely decision per hour first.
        left_out: Open claims that exceed the budget.
    """

    seeds: Mapping[Label, int]
    claims: tuple[Judged, ...]
    left_out: tuple[Judged, ...]


def budget(judged: Sequence[Judged]) -> float:
    """Return the limit on the hours of a study, or of a union; infinite without one."""
    rules = [each.judging.until for each in judged]
    return min((rule.budget.hours for rule in rules if rule and rule.budget), default=math.inf)


def next_round(judged: Sequence[Judged], hours: Hours) -> Round:
    """Choose the next round of a study, or of a union, by its verdicts and hours so far."""
    left = budget(judged) - hours.spent
    candidates = [each for each in judged if each.is_open and each.labels and each.seeds < _earliest(each)]
    left_out: list[Judged] = []
    while candidates:
        most = min(map(_earliest, candidates))
        fitting = [each for each in candidates if each.seeds < most]
        candidates = [each for each in candidates if each.seeds >= most]
        seeds: dict[Label, int] = {}
        chosen: list[Judged] = []
        for each in sorted(fitting, key=lambda each: _promise(each, most, hours), reverse=True):
            have = {label: max(seeds.get(label, 0), each.seeds) for label in each.places}
            for count in (_target(each, most), each.seeds + 1):  # one seed if the whole step is too expensive
                added = sum(hours.of(label) * max(0, count - had) for label, had in have.items())
                if added <= left:
                    left -= added
                    chosen.append(each)
                    seeds |= {label: max(had, count) for label, had in have.items()}
                    break
            else:
                left_out.append(each)
        if chosen:
            return Round(seeds, tuple(chosen), tuple(left_out))
    return Round({}, (), tuple(left_out))


def _target(each: Judged, most: int) -> int:
    """Return the number of seeds at the next look: half of the way to the earliest decision."""
    half = each.seeds + max(1, (_earliest(each) - each.seeds) // 2)
    return min(half if each.seeds >= _at_least(each) else _at_least(each), most)


def _promise(each: Judged, most: int, hours: Hours) -> float:
    """Return the probability of a decision per seed that it takes, and per hour of the next seeds."""
    ahead = each.evidence.forecast
    per_seed = ahead.decided / max(1.0, ahead.expected - each.seeds) if each.seeds else 1.0
    return per_seed / (hours.of_seed(each) * (_target(each, most) - each.seeds) + _SECOND)


def _at_least(each: Judged) -> int:
    return each.judging.until.at_least if each.judging.until else 1


def _earliest(each: Judged) -> int:
    """Return the minimum number of seeds for a decision."""
    return max(_at_least(each), each.evidence.forecast.earliest)
