"""A run as another tool recorded it, whichever tool that was."""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from jestlab.platform.errors import shown

State = Literal["COMPLETED", "FAILED", "CANCELLED", "RUNNING"]
"""How a run ended. RUNNING: the source says of no end; the run goes on, or was killed."""


@dataclass(frozen=True)
class Curve:
    """A metric over a run's steps.

    Attributes:
        steps: Ascending, each once: int64 (N,).
        values: The value at each step, which may be NaN or infinite: float64 (N,).
    """

    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]

    @classmethod
    def of(cls, steps: Sequence[int], values: Sequence[float]) -> Curve:
        """Build a curve of points in the order in which they were written; a step's last value stands."""
        written = np.asarray(steps, np.int64)[::-1]
        unique, index = np.unique(written, return_index=True)
        return cls(unique, np.asarray(values, np.float64)[::-1][index])


@dataclass(frozen=True)
class FoundRun:
    """A run as another tool recorded it.

    Attributes:
        origin: Names the run among all runs of all sources, and is the same at every reading.
        name: What its people called it.
        config: JSON values by key, nested where the source is nested.
        metrics: Name → curve. Parts of a nested name are joined by dots.
        state: How it ended.
        began: When it began, in UTC without a time zone; None if the source does not say.
        ended: When it ended, likewise.
        tags: Its tags; those that have a value are written "key=value".
        notes: Free text about it.
        group: W&B group, or name of the MLflow experiment.
        host: Name of the machine.
        device: Name of the accelerator.
        git_commit: Commit of its code.
        seconds: Wall time that it took.
        left_out: What of it was not taken, in words → the number of values.
    """

    origin: str
    name: str
    config: dict[str, Any]
    metrics: dict[str, Curve]
    state: State
    began: datetime | None = None
    ended: datetime | None = None
    tags: tuple[str, ...] = ()
    notes: str = ""
    group: str | None = None
    host: str | None = None
    device: str | None = None
    git_commit: str | None = None
    seconds: float | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)


class Points:
    """The points of a run's metrics, in the order in which they were written.

    Attributes:
        left_out: What was not taken, in words → the number of points.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self.left_out = Counter[str]()
        self._points: defaultdict[str, tuple[array[int], array[float]]]
        self._points = defaultdict(lambda: (array("q"), array("d")))

    def __contains__(self, name: str) -> bool:
        """Whether a metric has points."""
        return name in self._points

    def add(self, name: str, step: int, value: float) -> None:
        """Add a point."""
        steps, values = self._points[name]
        steps.append(step)
        values.append(value)

    def restart(self, first: int, after: Points | None = None) -> None:
        """Drop the points from a step on, since the run went on from there, and add those written after."""
        for name, (steps, values) in self._points.items():
            kept = [index for index, step in enumerate(steps) if step < first]
            self.left_out[_REPLACED] += len(steps) - len(kept)
            self._points[name] = array("q", [steps[i] for i in kept]), array("d", [values[i] for i in kept])
        for name, (steps, values) in after._points.items() if after is not None else ():
            self._points[name][0].extend(steps)
            self._points[name][1].extend(values)

    def curves(self) -> dict[str, Curve]:
        """Build the curves, in the order of their names.

        A step that is written again is a restart: its point replaces those written before it at its step and
        at later ones, which are of an attempt that died. Steps may otherwise be in any order.
        """
        found = {}
        for name in sorted(self._points):
            steps, values = map(np.asarray, self._points[name])
            is_restart = np.ones(len(steps), bool)
            is_restart[np.unique(steps, return_index=True)[1]] = False
            restarts = np.where(is_restart, steps, np.iinfo(np.int64).max)
            later = np.minimum.accumulate(restarts[::-1])[::-1]
            kept = np.flatnonzero(np.append(steps[:-1] < later[1:], True))
            self.left_out[_REPLACED] += len(np.unique(steps)) - len(kept)
            in_order = kept[np.argsort(steps[kept])]
            found[name] = Curve(steps[in_order], values[in_order])
        return found


_REPLACED = "points that a restart replaced"


def utc(seconds: float) -> datetime | None:
    """Convert seconds since 1970 to a time in UTC without a time zone; None if there is no such time."""
    try:
        return datetime(1970, 1, 1) + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None


_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def number(value: object) -> float | None:
    """Return a JSON value as a point of a curve; None if it is not a number.

    A truth value counts as 1 or 0. "NaN", "Infinity" and "-Infinity" may be strings, because JSON has no such
    numbers.
    """
    if isinstance(value, str):
        return _WORDS.get(value)
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


_WHOLE = re.compile(r"([+-]?[0-9]{1,19})(?:\.0*)?")


def whole(value: Any) -> int:
    """Return a whole number that a store can hold, however a tool wrote it: 50, 50.0 or "50".

    Raises:
        ValueError: It is not such a number.
    """
    if isinstance(value, str) and (matched := _WHOLE.fullmatch(value.strip())):
        value = int(matched[1])
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not -(2**63) <= value < 2**63
        or value != int(value)
    ):
        raise ValueError(f"expected a whole number, got {shown(value)}")
    return int(value)


def put(config: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value at a nested place. What is in its way, a value where a mapping is needed, is replaced."""
    for part in path[:-1]:
        below = config.get(part)
        if not isinstance(below, dict):
            below = config[part] = {}
        config = below
    config[path[-1]] = value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nest values by the dots in their keys.

    A key stays as it is if another key is the beginning of it ("model" beside "model.width"), or if it has an
    empty part ("a..b").
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        parts = key.split(".")
        beginnings = (".".join(parts[:length]) for length in range(1, len(parts)))
        if not all(parts) or len(parts) > _DEEPEST or any(one in values for one in beginnings):
            result[key] = value
        else:
            put(result, parts, value)
    return result


_DEEPEST = 32
"""Levels that dots in a key may make: a key of many dots would nest deeper than JSON can be written."""
