"""Goodput: the useful share of the time that machines were held, and the causes of the rest.

Pure arithmetic on rows of `v_goodput`. Times are whole microseconds multiplied by the number of chips,
so that parts add up exactly. Training and evaluation are useful unless a later attempt repeats them.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .units import duration

CAUSES = {
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
"""Cause → its name. The last three are work that was lost, by the final state of the attempt."""

USEFUL = ("training", "evaluation")

_LOST = {"PREEMPTED": "preempted", "FAILED": "failed", "CANCELLED": "cancelled"}
_MICRO = 1_000_000


class AttemptTime(NamedTuple):
    """One attempt at a run: a row of `v_goodput`, with the same names and units. None means unknown.

    Without `training_seconds`, the attempt didn't measure how its time was spent.
    """

    fingerprint: str
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


QUERY = f"""
    SELECT {", ".join(AttemptTime._fields)}
    FROM v_goodput WHERE experiment = :experiment"""
"""SQL query for the attempts of an experiment, one row for each label of their runs."""


@dataclass(frozen=True)
class Goodput:
    """How the held time of some attempts was spent.

    Attributes:
        parts: Cause → chip-microseconds.
        unknown: Chip-microseconds of attempts that didn't measure how their time was spent.
        waited: Microseconds from the claims of attempts to the starts of their workers; not in held time.
        attempts: Number of attempts whose workers started.
        unknown_attempts: Number of attempts in `unknown`.
    """

    parts: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    waited: int = 0
    attempts: int = 0
    unknown_attempts: int = 0

    @property
    def held(self) -> int:
        """Chip-microseconds held."""
        return self.parts.total() + self.unknown

    @property
    def ratio(self) -> float | None:
        """Useful time over held time, without unknown time; None if all time is unknown."""
        known = self.parts.total()
        return sum(self.parts[cause] for cause in USEFUL) / known if known else None

    def as_data(self) -> dict[str, Any]:
        """Return plain data, in chip-seconds; a machine without chips counts as one chip."""
        return {
            "goodput": self.ratio,
            "held_chip_seconds": self.held / _MICRO,
            "chip_seconds": {cause: self.parts[cause] / _MICRO for cause in CAUSES},
            "unknown_chip_seconds": self.unknown / _MICRO,
            "queue_seconds": self.waited / _MICRO,
            "attempts": self.attempts,
            "unknown_attempts": self.unknown_attempts,
        }


def by_run(attempts: Iterable[AttemptTime]) -> dict[str, Goodput]:
    """Return fingerprint → goodput. An attempt at a run with several labels counts once."""
    unique = {(attempt.fingerprint, attempt.number): attempt for attempt in attempts}
    runs = itertools.groupby(sorted(unique), key=lambda key: key[0])
    return {fingerprint: of_run([unique[key] for key in keys]) for fingerprint, keys in runs}


def total(goodputs: Iterable[Goodput]) -> Goodput:
    """Add up the goodput of several runs."""
    summed = list(goodputs)
    parts = sum((each.parts for each in summed), Counter[str]())
    names = ("unknown", "waited", "attempts", "unknown_attempts")
    return Goodput(parts, **{name: sum(getattr(each, name) for each in summed) for name in names})


def of_run(attempts: Sequence[AttemptTime]) -> Goodput:
    """Return how all attempts at one run, ordered by number, spent their time."""
    parts = Counter[str]()
    resumed = None  # the smallest step from which a later attempt resumed
    for attempt in reversed(attempts):
        if attempt.training_seconds is not None:
            chips = max(attempt.chips, 1)
            parts.update({cause: time * chips for cause, time in divide(attempt, resumed).items()})
        if attempt.state == "COMPLETED":  # later attempts were requested, and repeat no lost work
            resumed = attempt.resumed_step
        elif attempt.resumed_step is not None:
            resumed = attempt.resumed_step if resumed is None else min(resumed, attempt.resumed_step)
    started = [attempt for attempt in attempts if attempt.held_seconds is not None]
    unknown = [attempt for attempt in started if attempt.training_seconds is None]
    return Goodput(
        parts,
        unknown=sum(_micro(attempt.held_seconds) * max(attempt.chips, 1) for attempt in unknown),
        waited=sum(_micro(attempt.queue_seconds) for attempt in attempts),
        attempts=len(started),
        unknown_attempts=len(unknown),
    )


def divide(attempt: AttemptTime, resumed: int | None) -> dict[str, int]:
    """Divide the held time of an attempt among causes.

    Args:
        attempt: An attempt that measured how its time was spent.
        resumed: The smallest step from which a later attempt resumed; None if unknown.

    Returns:
        Cause → microseconds, none negative; their sum is `held_seconds`.
    """
    held = _micro(attempt.held_seconds)
    parts = {cause: _micro(getattr(attempt, f"{cause}_seconds", None)) for cause in CAUSES}
    saved_at, measured = _micro(attempt.saved_seconds), sum(parts.values())
    if measured > held:  # clocks disagree
        parts = {cause: amount * held // measured for cause, amount in parts.items()}
        saved_at = saved_at * held // measured
    rest, lost = held - sum(parts.values()), _LOST.get(attempt.state)
    if lost is None or attempt.winddown_seconds is not None:
        parts["winddown"] += rest
        rest = 0
    if lost is None:
        return parts
    began, kept = attempt.resumed_step, attempt.saved_step if resumed is None else resumed
    if kept is None or began is None or kept <= began:
        return {**dict.fromkeys(CAUSES, 0), lost: held}
    useful = sum(parts[cause] for cause in USEFUL)
    # Interpolate the useful time until the kept step: between known steps, all steps take the same time.
    at, spent = began, 0
    saved = None if attempt.saved_seconds is None else attempt.saved_step
    for step, until in ((saved, min(saved_at, useful)), (attempt.reached_step, useful)):
        if step is None or step <= at:
            continue
        if kept < step:
            spent += (until - spent) * (kept - at) // (step - at)
            break
        at, spent = step, until
    redone = useful - spent
    if useful:
        training = parts["training"] * redone // useful
        parts["training"] -= training
        parts["evaluation"] -= redone - training
    parts[lost] = redone + rest
    return parts


def _micro(seconds: float | None) -> int:
    """Convert to whole microseconds; None, infinite, and negative times become 0."""
    return 0 if seconds is None or not math.isfinite(seconds) else max(0, round(seconds * _MICRO))


def percent(share: float) -> str:
    """Format a share as a whole percentage; only exact shares of 0 and 1 become 0% and 100%."""
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 else f"{share:.0%}"


def summary(goodput: Goodput) -> str:
    """Summarize in one line: "goodput 87%: start-up 6%; waited 3 s in queues"; empty without attempts."""
    if not goodput.attempts:
        return ""
    text = "goodput unknown: the attempts did not measure it"
    if goodput.ratio is not None:
        parts, known = goodput.parts, goodput.parts.total()
        shares = {name: parts[cause] / known for cause, name in CAUSES.items() if cause not in USEFUL}
        largest = sorted(shares, key=lambda name: -shares[name])
        wasted = ", ".join(f"{name} {percent(shares[name])}" for name in largest if shares[name] >= 0.005)
        text = f"goodput {percent(goodput.ratio)}{wasted and f': {wasted}'}"
        if goodput.unknown_attempts:
            text += f"; unknown of {goodput.unknown_attempts} of {goodput.attempts} attempts"
    hours = goodput.waited / (3600 * _MICRO)
    return text + (f"; waited {duration(hours)} in queues" if hours >= 1 / 3600 else "")
