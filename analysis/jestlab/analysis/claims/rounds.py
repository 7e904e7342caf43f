"""Choose the next seeds of a study that adds seeds until its claims are decided.

A round adds seeds to open claims, up to their earliest possible decision. Claims that will probably not be
decided get half of these seeds, so that futile claims are noticed early. No claim gets more seeds than the
earliest possible decision of any claim takes, so clear claims are decided before unclear ones take more
seeds. A run that several claims use is counted once.

The next round depends only on the results in the store. A launch that was killed, or a second launch,
continues with the same runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..results import Snapshot
from .judged import Judged, Label

_SECOND = 1 / 3600  # in hours; added to every cost, since runs of unknown duration would cost nothing

_HOURS = """
    SELECT v_costs.fingerprint, v_costs.label, v_runs.state, v_costs.actual_hours
    FROM v_costs JOIN v_runs ON v_runs.experiment = v_costs.experiment AND v_runs.label = v_costs.label
        AND v_runs.seed = v_costs.seed
    WHERE v_costs.experiment = :experiment AND v_costs.actual_hours IS NOT NULL"""


@dataclass(frozen=True)
class Hours:
    """The duration of an experiment's runs.

    Attributes:
        spent: Sum of the hours of all attempts, including attempts that ran at the same time.
        by_label: Label → mean hours of its completed runs; in a union, labels are "study/label".
    """

    spent: float = 0.0
    by_label: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls, store: Snapshot, experiment: str) -> "Hours":
        """Read the durations of an experiment."""
        rows = store.select(_HOURS, experiment=experiment)
        means = rows[rows["state"] == "COMPLETED"].groupby("label")["actual_hours"].mean()
        return cls(float(rows.drop_duplicates("fingerprint")["actual_hours"].sum()), dict(means))

    def of_label(self, label: Label) -> float:
        """Return the hours of a run; 0 if unknown."""
        study, name = label
        return self.by_label.get(f"{study}/{name}", self.by_label.get(name, 0.0))

    def of_seed(self, claim: Judged) -> float:
        """Return the hours of one more seed of a claim."""
        return sum(map(self.of_label, claim.places))


@dataclass(frozen=True)
class Round:
    """The runs of the next round.

    Attributes:
        seeds: Label → number of seeds after the round, for runs of the chosen claims; empty for no round.
        claims: The chosen claims; those with the most likely decision per hour first.
        left_out: Open claims whose next seeds exceed the budget.
    """

    seeds: Mapping[Label, int]
    claims: tuple[Judged, ...]
    left_out: tuple[Judged, ...]


def budget(judged: Sequence[Judged]) -> float:
    """Return the limit on the hours of a study or a union; infinite if it has none."""
    rules = [each.judging.until for each in judged]
    return min((rule.budget.hours for rule in rules if rule and rule.budget), default=math.inf)


def next_round(judged: Sequence[Judged], hours: Hours) -> Round:
    """Choose the next round of a study or a union by its verdicts and hours so far."""
    hours_left = budget(judged) - hours.spent
    candidates = [each for each in judged if each.is_open and each.places and each.seeds < _earliest(each)]
    left_out: list[Judged] = []
    while candidates:
        most_seeds = min(map(_earliest, candidates))
        fitting = [each for each in candidates if each.seeds < most_seeds]
        candidates = [each for each in candidates if each.seeds >= most_seeds]
        seeds: dict[Label, int] = {}
        chosen: list[Judged] = []
        for each in sorted(fitting, key=lambda each: _promise(each, most_seeds, hours), reverse=True):
            counts = {label: max(seeds.get(label, 0), each.seeds) for label in each.places}
            # If all seeds of the round are too expensive, add one.
            for count in (_target(each, most_seeds), each.seeds + 1):
                added = sum(hours.of_label(label) * max(0, count - now) for label, now in counts.items())
                if added <= hours_left:
                    hours_left -= added
                    chosen.append(each)
                    seeds |= {label: max(now, count) for label, now in counts.items()}
                    break
            else:
                left_out.append(each)
        if chosen:
            return Round(seeds, tuple(chosen), tuple(left_out))
    return Round({}, (), tuple(left_out))


def _target(claim: Judged, most_seeds: int) -> int:
    """Return the number of seeds after the round: up to the earliest possible decision, or half as many."""
    if claim.seeds < _at_least(claim):
        return min(_at_least(claim), most_seeds)
    more = _earliest(claim) - claim.seeds
    is_likely = claim.evidence.forecast.decided > 0.5
    return min(claim.seeds + (more if is_likely else max(1, more // 2)), most_seeds)


def _promise(claim: Judged, most_seeds: int, hours: Hours) -> float:
    """Return the probability of a decision, per seed until then and per hour of the next seeds."""
    forecast = claim.evidence.forecast
    per_seed = forecast.decided / max(1.0, forecast.expected - claim.seeds) if claim.seeds else 1.0
    return per_seed / (hours.of_seed(claim) * (_target(claim, most_seeds) - claim.seeds) + _SECOND)


def _at_least(claim: Judged) -> int:
    return claim.judging.until.at_least if claim.judging.until else 1


def _earliest(claim: Judged) -> int:
    """Return the minimum number of seeds for a decision."""
    return max(_at_least(claim), claim.evidence.forecast.earliest)
