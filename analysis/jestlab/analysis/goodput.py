"""Goodput: the share of held machine time that was useful, and where the rest went.

Pure arithmetic on rows of `v_goodput`. All times are whole microseconds, times the chips that the attempt
held, so that the parts of a whole add up to it exactly. Useful is what the run asked for, training and
evaluation, as far as it did not have to be done again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .units import duration

Cause = Literal[
    "training",
    "evaluation",
    "startup",
    "compilation",
    "checkpoint",
    "winddown",
    "preempted",
    "failed",
    "cancelled",
]
"""What the time of an attempt went to."""

CAUSES: dict[Cause, str] = {
    "training": "training",
    "evaluation": "evaluation",
    "startup": "start-up",
    "compilation": "compilation",
    "checkpoint": "checkpoints",
    "winddown": "wind-down",
    "preempted": "preempted work",
    "failed": "failed work",
    "cancelled": "cancelled work",
}
"""Cause → its name. The first two are useful; the last three were lost, by how the attempt ended."""

USEFUL: tuple[Cause, ...] = ("training", "evaluation")
LOST: tuple[Cause, ...] = ("preempted", "failed", "cancelled")

_MEASURED: tuple[Cause, ...] = ("startup", "compilation", "training", "evaluation", "checkpoint", "winddown")
_ENDED_EARLY: dict[str, Cause] = {"PREEMPTED": "preempted", "FAILED": "failed", "CANCELLED": "cancelled"}
_COMPLETED = "COMPLETED"
_MICRO = 1_000_000


@dataclass(frozen=True)
class AttemptTime:
    """One attempt at a run: a row of `v_goodput`, whose columns have these names and meanings.

    A figure that is None is unknown; without `training_seconds` nothing is known of where the time went.
    """

    fingerprint: str
    label: str
    seed: int
    number: int
    state: str
    chips: int
    queue_seconds: float | None
    held_seconds: float | None
    startup_seconds: float | None = None
    compilation_seconds: float | None = None
    training_seconds: float | None = None
    evaluation_seconds: float | None = None
    checkpoint_seconds: float | None = None
    winddown_seconds: float | None = None
    resumed_step: int | None = None
    reached_step: int | None = None
    saved_step: int | None = None
    saved_seconds: float | None = None

    @classmethod
    def of(cls, row: Mapping[Any, Any]) -> AttemptTime:
        """Make one from a row; NaN counts as unknown, as pandas writes it."""
        found: dict[str, Any] = {each.name: row[each.name] for each in fields(cls)}
        unknown = [name for name, value in found.items() if isinstance(value, float) and math.isnan(value)]
        return cls(**(found | dict.fromkeys(unknown)))


QUERY = (
    f"SELECT {', '.join(each.name for each in fields(AttemptTime))} "
    "FROM v_goodput WHERE experiment = :experiment"
)
"""SQL that reads the rows of an experiment."""


@dataclass(frozen=True)
class Goodput:
    """Where the held time of some attempts went.

    Attributes:
        parts: Cause → chip-microseconds, of all causes, in the order of `CAUSES`.
        unknown: Chip-microseconds of attempts that did not measure where their time went.
        waited: Microseconds between the claims of attempts and the starts of their workers; not held.
        attempts: Number of attempts whose workers began.
        unknown_attempts: Those that are unknown.
    """

    parts: Mapping[Cause, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    unknown: int = 0
    waited: int = 0
    attempts: int = 0
    unknown_attempts: int = 0

    @property
    def known(self) -> int:
        """Chip-microseconds held of which it is known where they went."""
        return sum(self.parts.values())

    @property
    def held(self) -> int:
        """Chip-microseconds held."""
        return self.known + self.unknown

    @property
    def ratio(self) -> float | None:
        """Useful over held time, where it is known where that went; None if it nowhere is."""
        return sum(self.parts[cause] for cause in USEFUL) / self.known if self.known else None

    def share(self, cause: Cause) -> float:
        """Return the share of a cause in the time of which it is known where it went."""
        return self.parts[cause] / self.known if self.known else 0.0

    def seconds(self, cause: Cause) -> float:
        """Return the chip-seconds of a cause."""
        return self.parts[cause] / _MICRO

    def __add__(self, other: Goodput) -> Goodput:
        return Goodput(
            {cause: self.parts[cause] + other.parts[cause] for cause in CAUSES},
            self.unknown + other.unknown,
            self.waited + other.waited,
            self.attempts + other.attempts,
            self.unknown_attempts + other.unknown_attempts,
        )

    def as_data(self) -> dict[str, Any]:
        """Describe it for a program, in chip-seconds; a machine without chips counts as one."""
        return {
            "goodput": self.ratio,
            "held_chip_seconds": self.held / _MICRO,
            "chip_seconds": {cause: self.seconds(cause) for cause in CAUSES},
            "unknown_chip_seconds": self.unknown / _MICRO,
            "queue_seconds": self.waited / _MICRO,
            "attempts": self.attempts,
            "unknown_attempts": self.unknown_attempts,
        }


def by_run(attempts: Iterable[AttemptTime]) -> dict[str, Goodput]:
    """Return where the time of each run went: fingerprint → its goodput.

    A run that stands in an experiment under several names may be given several times; it counts once.
    """
    runs: dict[str, dict[int, AttemptTime]] = {}
    for attempt in attempts:
        runs.setdefault(attempt.fingerprint, {})[attempt.number] = attempt
    return {
        fingerprint: of_run([its_attempts[number] for number in sorted(its_attempts)])
        for fingerprint, its_attempts in runs.items()
    }


def total(goodputs: Iterable[Goodput]) -> Goodput:
    """Add up several."""
    return sum(goodputs, Goodput())


def of_run(attempts: Sequence[AttemptTime]) -> Goodput:
    """Return where the time of one run's attempts went.

    Args:
        attempts: All of them, in the order of their numbers.
    """
    whole, resumed = Goodput(), None  # the least step from which a later attempt went on
    for attempt in reversed(attempts):
        whole += _of_attempt(attempt, resumed)
        if attempt.state == _COMPLETED:  # what came after it was asked for, and redid nothing that was lost
            resumed = attempt.resumed_step
        elif attempt.resumed_step is not None:
            resumed = attempt.resumed_step if resumed is None else min(resumed, attempt.resumed_step)
    return whole


def _of_attempt(attempt: AttemptTime, resumed: int | None) -> Goodput:
    chips = max(attempt.chips, 1)
    waited = _micro(attempt.queue_seconds)
    if attempt.held_seconds is None:
        return Goodput(waited=waited)
    held = _micro(attempt.held_seconds)
    if attempt.training_seconds is None:
        return Goodput(unknown=held * chips, waited=waited, attempts=1, unknown_attempts=1)
    parts = divide(attempt, resumed)
    return Goodput({cause: parts[cause] * chips for cause in CAUSES}, waited=waited, attempts=1)


def divide(attempt: AttemptTime, resumed: int | None) -> dict[Cause, int]:
    """Divide the time in which an attempt held its machines among causes.

    Args:
        attempt: The attempt; it measured where its time went.
        resumed: The least step from which a later attempt went on; None if there is none that said so.

    Returns:
        Cause → microseconds, none negative; together `held_seconds`.
    """
    held = _micro(attempt.held_seconds)
    parts, saved_at = _measured(attempt, held)
    lost = _ENDED_EARLY.get(attempt.state)
    rest = held - sum(parts.values())
    if lost is None or attempt.winddown_seconds is not None:
        parts["winddown"] += rest
        rest = 0
    if lost is None:
        return parts
    kept = attempt.saved_step if resumed is None else resumed
    if kept is None or attempt.resumed_step is None or kept <= attempt.resumed_step:
        return {**dict.fromkeys(CAUSES, 0), lost: held}  # nothing of it remained
    useful = sum(parts[cause] for cause in USEFUL)
    redone = useful - _useful_until(kept, attempt, saved_at, useful)
    if useful:
        of_training = parts["training"] * redone // useful
        parts["training"] -= of_training
        parts["evaluation"] -= redone - of_training
    parts[lost] = redone + rest  # nothing was heard of it in the rest
    return parts


def _measured(attempt: AttemptTime, held: int) -> tuple[dict[Cause, int], int | None]:
    """Return what the worker measured, and its useful time until its last checkpoint.

    What it measured is shortened to the time that it held its machines, should clocks have said otherwise.
    """
    given = {cause: _micro(getattr(attempt, f"{cause}_seconds")) for cause in _MEASURED}
    whole = sum(given.values())
    saved_at = None if attempt.saved_seconds is None else _micro(attempt.saved_seconds)
    if whole > held:
        given = {cause: amount * held // whole for cause, amount in given.items()}
        saved_at = None if saved_at is None else saved_at * held // whole
    return {cause: given.get(cause, 0) for cause in CAUSES}, saved_at


def _useful_until(step: int, attempt: AttemptTime, saved_at: int | None, useful: int) -> int:
    """Return the useful microseconds of an attempt until a step: between what is known, steps are alike."""
    began, saved, reached = attempt.resumed_step or 0, attempt.saved_step, attempt.reached_step
    points = [(began, 0)]
    if saved is not None and saved_at is not None and saved > began:
        points.append((saved, min(saved_at, useful)))
    if reached is not None and reached > points[-1][0]:
        points.append((reached, useful))
    for (first, before), (last, after) in itertools.pairwise(points):
        if step < last:
            return before + (after - before) * max(0, step - first) // (last - first)
    return points[-1][1]


def _micro(seconds: float | None) -> int:
    """Whole microseconds; what no clock can have measured is nothing."""
    return 0 if seconds is None or not math.isfinite(seconds) else max(0, round(seconds * _MICRO))


def percent(share: float) -> str:
    """Write a share as whole percent, so that neither all nor nothing is claimed falsely."""
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def wasted(goodput: Goodput) -> list[str]:
    """Say where time went that was not useful, the largest first: ["start-up 6%", "compilation 4%"]."""
    shares = {cause: goodput.share(cause) for cause in CAUSES if cause not in USEFUL}
    return [
        f"{CAUSES[cause]} {percent(share)}"
        for cause, share in sorted(shares.items(), key=lambda item: -item[1])
        if share >= 0.005
    ]


def summary(goodput: Goodput) -> str:
    """Say in one line where time went: "goodput 87%: start-up 6%, compilation 4%; waited 12 min in queues".

    Returns:
        The line; empty if no worker has begun.
    """
    if not goodput.attempts:
        return ""
    if goodput.ratio is None:
        told = "goodput unknown: the attempts did not measure it"
    else:
        causes = ", ".join(wasted(goodput))
        told = f"goodput {percent(goodput.ratio)}{causes and f': {causes}'}"
        if goodput.unknown_attempts:
            told += f"; unknown of {goodput.unknown_attempts} of {goodput.attempts} attempts"
    waited = goodput.waited / (3600 * _MICRO)
    return told + (f"; waited {duration(waited)} in queues" if waited >= 1 / 3600 else "")
