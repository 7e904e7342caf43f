"""A run as another tool recorded it, whichever tool that was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from jestlab.platform.errors import UserError

State = Literal["COMPLETED", "FAILED", "CANCELLED", "RUNNING"]
"""How a run ended. RUNNING: the source says of no end; the run goes on, or was killed."""


Damaged = Callable[[UserError], None]
"""Told of a run that cannot be read; the others are read all the same."""


def refuse(error: UserError) -> None:
    """Raise what is wrong with a run."""
    raise error


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


def finished(curves: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> dict[str, Curve]:
    """Build the curves of a run, in the order of their names."""
    return {name: Curve.of(*curves[name]) for name in sorted(curves)}


def one_line(parts: Iterable[object]) -> str:
    """Join the parts of an error's text, without line breaks that the data may have brought in."""
    return " ".join(" ".join(str(part) for part in parts).split())
