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
        self._points: defaultdict[str, list[array[Any]]]
        self._points = defaultdict(lambda: [array("q"), array("d"), array("d")])

    def __contains__(self, name: str) -> bool:
        """Whether a metric has points."""
        return name in self._points and len(self._points[name][0]) > 0

    def add(self, name: str, step: int, value: float, time: float = 0.0) -> None:
        """Add a point that was written at a time, which tells it from other metrics' points."""
        steps, values, times = self._points[name]
        steps.append(step)
        values.append(value)
        times.append(time)

    def restart(self, first: int, after: Points | None = None) -> None:
        """Drop the points from a step on, since the run went on from there, and add those written after."""
        for columns in self._points.values():
            kept = [index for index, step in enumerate(columns[0]) if step < first]
            self.left_out[_REPLACED] += len(columns[0]) - len(kept)
            columns[:] = [array(column.typecode, [column[i] for i in kept]) for column in columns]
        if after is None:
            return
        self.left_out += after.left_out
        for name, later in after._points.items():
            for column, more in zip(self._points[name], later, strict=True):
                column.extend(more)

    def curves(self) -> dict[str, Curve]:
        """Build the curves, in the order of their names.

        A step that is written again is a restart: its point replaces those written before it at its step and
        at later ones, which are of an attempt that died. Steps may otherwise be in any order. A restart is of
        the run: the longest metric that went back tells it for those that were always written at its steps.
        """
        series = {name: [*map(np.asarray, each)] for name, each in sorted(self._points.items()) if each[0]}
        went_back = [one for one in series.values() if np.any(one[0] > _written_again(one[0])[1:])]
        clock = max(went_back, key=lambda one: len(one[0]), default=None)
        found = {}
        for name, one in series.items():
            steps, values, _ = one
            is_kept = np.append(steps[:-1] < _written_again(steps)[1:-1], True)
            if clock is not None and clock is not one:
                is_kept &= ~_replaced(one, clock)
            self.left_out[_REPLACED] += len(np.unique(steps)) - int(np.count_nonzero(is_kept))
            if is_kept.any():
                found[name] = Curve.of(steps[is_kept], values[is_kept])
        return found


def _written_again(steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the lowest step that is written again at each point or later; at the end none: (N + 1,)."""
    again = np.append(steps, np.iinfo(np.int64).max)
    again[np.unique(steps, return_index=True)[1]] = again[-1]
    return np.minimum.accumulate(again[::-1])[::-1]


def _replaced(one: Sequence[npt.NDArray[Any]], clock: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
    """Return which points of a metric were replaced by the restarts of another one, the clock.

    Those are points whose step, or an earlier one, the clock wrote again later. A metric whose steps aren't
    near those of the clock at the same times counts something else, such as epochs: no point was replaced.

    Args:
        one: Steps, values, and times of the metric.
        clock: The same of the clock.
    """
    steps, at = one[0], clock[0].astype(np.float64)
    written, stride = np.maximum.accumulate(clock[2]), np.diff(at).max()
    # The points of the clock before and after each point; points of one time are in no order.
    first, last = (written.searchsorted(one[2], side) for side in ("left", "right"))
    low, high = np.sort([at[np.maximum(first - 1, 0)], at[np.maximum(last - 1, 0)]], axis=0)
    if np.any((steps < low - stride) | (steps > high + stride)):
        return np.zeros(len(steps), bool)
    again: npt.NDArray[np.bool_] = steps >= _written_again(clock[0])[last]
    return again


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
