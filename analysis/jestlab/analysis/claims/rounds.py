"""Which seeds a study that goes on until its claims are decided runs next.

A study is run in rounds. Each takes open claims some seeds further, half of the way to where they can be
decided at the earliest, so that a hopeless one is seen before. None goes beyond the number of seeds with
which some claim can be decided at the earliest: what is clear is decided before what is not takes more. A
run that several claims compare counts once.

What is next follows from the results in the store alone, so that a launch that was killed, or a second one
beside the first, goes on with the same runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .hours import Hours
from .sign_test import Forecast
from .verdicts import Judged

Label = tuple[str, str]
"""A study and the label of one of its runs."""


_SECOND = 1 / 3600


@dataclass(frozen=True)
class Round:
    """What to run next.

    Attributes:
        seeds: How many seeds each label has after it, of those that open claims need; empty at the end.
        claims: The claims for whose sake it is run, the most likely decision per hour first.
        left_out: Claims that are open, and for which the budget does not suffice.
    """

    seeds: Mapping[Label, int]
    claims: tuple[Judged, ...] = ()
    left_out: tuple[Judged, ...] = ()

    @property
    def is_last(self) -> bool:
        """Whether nothing is left to run."""
        return not self.seeds


def next_round(judged: Sequence[Judged], hours: Hours | None = None) -> Round:
    """Choose the next round of a study, or of a union, whose budget is one.

    Args:
        judged: Its claims with their verdicts so far.
        hours: What its runs have taken.
    """
    hours = hours or Hours()
    limits = [until.hours for each in judged if (until := each.judging.until) and until.hours is not None]
    left = min(limits) - hours.spent if limits else math.inf
    open_ = [each for each in judged if each.is_open and each.labels and each.seeds < _earliest(each)]
    left_out: list[Judged] = []
    while open_:
        soonest = min(_earliest(each) for each in open_)
        nearest = [each for each in open_ if each.seeds < soonest]
        found = _affordable(nearest, soonest, hours, left)
        left_out += found.left_out
        if found.chosen:
            return Round(found.seeds, tuple(found.chosen), tuple(left_out))
        open_ = [each for each in open_ if each.seeds >= soonest]  # what is nearest is too dear
    return Round({}, (), tuple(left_out))


class _Affordable(NamedTuple):
    seeds: dict[Label, int]
    chosen: list[Judged]
    left_out: list[Judged]


def _affordable(judged: Sequence[Judged], most: int, hours: Hours, left: float) -> _Affordable:
    """Choose what the hours that are left suffice for.

    Args:
        judged: Claims.
        most: The most seeds to which any of them goes.
        hours: What runs have taken.
        left: Hours that are left.
    """
    found = _Affordable({}, [], [])
    candidates = list(judged)

    def cost(each: Judged, target: int) -> float:
        return sum(hours.of_label(*label) * more for label, more in _more(each, target, found.seeds))

    while candidates:
        targets = [min(_target(each), most) for each in candidates]
        costs = [cost(each, target) for each, target in zip(candidates, targets, strict=True)]
        # The most likely decision for each hour that it adds; what costs nothing more comes first.
        best = max(range(len(candidates)), key=lambda i: _promise(candidates[i]) / (costs[i] + _SECOND))
        each = candidates.pop(best)
        # Where the whole way is too dear, one seed more: what not even that fits for says so (`spent`).
        target = targets[best] if costs[best] <= left else each.seeds + 1
        if (added := cost(each, target)) > left:
            found.left_out.append(each)
            continue
        left -= added
        found.chosen.append(each)
        found.seeds.update((label, target) for label, _ in _more(each, target, found.seeds))
    return found


@dataclass(frozen=True)
class Ahead:
    """What is expected of a study that goes on.

    Attributes:
        claims: Number of claims that are open.
        decided: How many of them are expected to be decided.
        runs: How many more runs that will take.
        hours: How long those take, two at once counting twice; NaN where nothing has run yet.
    """

    claims: int
    decided: float
    runs: float
    hours: float


def ahead(judged: Sequence[Judged], hours: Hours) -> Ahead:
    """Predict what is left of a study, from the seeds so far; its budget is not regarded.

    Args:
        judged: Its claims with their verdicts so far.
        hours: What its runs have taken.
    """
    more: dict[Label, float] = {}
    decided = 0.0
    claims = [each for each in judged if each.is_open]
    for each in claims:
        expected = each.evidence.forecast
        if isinstance(expected, Forecast):
            decided += expected.decided
            for label in each.labels:
                place = each.experiment, label
                more[place] = max(more.get(place, 0.0), expected.expected - each.seeds)
    taken = sum(hours.of_label(*place) * count for place, count in more.items())
    return Ahead(len(claims), decided, sum(more.values()), taken if hours.of else math.nan)


def _more(each: Judged, target: int, seeds: Mapping[Label, int]) -> list[tuple[Label, int]]:
    """How many seeds each run of a claim lacks for a look at so many, where it lacks any."""
    labels = [(each.experiment, label) for label in each.labels]
    have = [(label, max(seeds.get(label, 0), each.seeds)) for label in labels]
    return [(label, target - count) for label, count in have if count < target]


def _earliest(each: Judged) -> int:
    """With how many seeds a claim can be decided at the earliest; `at_least` if that is not known."""
    until = each.judging.until
    assert until is not None, "it is open"
    expected = each.evidence.forecast
    return max(until.at_least, expected.earliest) if isinstance(expected, Forecast) else until.at_least


def _target(each: Judged) -> int:
    """With how many seeds a claim is looked at next."""
    until = each.judging.until
    assert until is not None, "it is open"
    if each.seeds < until.at_least:
        return until.at_least
    return each.seeds + max(1, (_earliest(each) - each.seeds) // 2)


def _promise(each: Judged) -> float:
    """How likely the claim will be decided, for each seed that it will probably take."""
    ahead = each.evidence.forecast
    if not isinstance(ahead, Forecast) or each.seeds == 0:
        return 1.0  # nothing is known of it yet
    return ahead.decided / max(1.0, ahead.expected - each.seeds)
