"""A run as another tool recorded it, in one form for all tools."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from jestlab.platform.errors import UserError, shown
from jestlab.platform.words import on_one_line

T = TypeVar("T")

State = Literal["COMPLETED", "FAILED", "CANCELLED", "RUNNING"]
"""How a run ended. RUNNING: its tool recorded no end."""

Report = Callable[[UserError], None]
"""Receives the error of each run that can't be read; the other runs are still read."""

Steps = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Curve = tuple[Steps, Values]
"""The distinct steps of a metric in ascending order, and the value at each step."""


@dataclass(frozen=True)
class SourceRun:
    """A run as another tool recorded it; times are in UTC without a time zone.

    Attributes:
        origin: Identifies the run among the runs of all sources, such as `wandb:ENTITY/PROJECT/ID`.
        name: Display name in its tool.
        config: JSON values, nested like the source.
        tags: Tags; a tag with a value is "key=value".
        group: W&B group, or the name of the MLflow experiment.
        seconds: Wall time.
        left_out: Description of data that was not read → number of values.
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

    @property
    def last_step(self) -> int:
        """The last step of its metrics; 0 if it has none."""
        return max((int(steps[-1]) for steps, _ in self.metrics.values()), default=0)


class Score(NamedTuple):
    """A score on a dataset at a step, which may be NaN, with the costs of training until then, if known."""

    dataset: str
    metric: str
    step: int
    value: float
    examples_seen: int | None = None
    flops_total: float | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """Name of the evaluation: DATASET/METRIC."""
        return f"{self.dataset}/{self.metric}"


_DAMAGE = (
    ArithmeticError, AttributeError, DecodeError, LookupError, MemoryError, OSError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
"""What damaged or malicious files raise in parsers."""


def raise_error(error: UserError) -> None:
    """Raise the error of a run: the `Report` of callers that read one run."""
    raise error


def read_or_report(report: Report, place: object, read: Callable[[], T]) -> T | None:
    """Return what `read` returns. If it raises, report the error with its place and return None."""
    try:
        return read()
    except UserError as error:
        report(error)
    except _DAMAGE as error:
        reason = str(error)[:200] or type(error).__name__
        text = f"{place}: can't be read ({reason}): copy it again, or move it away"
        report(UserError(on_one_line(text)))
    return None


class MetricLog:
    """The metrics of a run: one table of step, name, and value, in the order of writing.

    Attributes:
        left_out: Description of points that were dropped → their number.
    """

    REPLACED = "points that a restart replaced"

    def __init__(self) -> None:
        self.left_out = Counter[str]()
        self._points: defaultdict[str, tuple[array[Any], ...]] = defaultdict(
            lambda: (array("q"), array("d"), array("d"))
        )
        self._count = 0

    def __contains__(self, name: str) -> bool:
        return name in self._points

    def add(self, name: str, step: int, value: float, time: float | None = None) -> None:
        """Append a point.

        Args:
            name: The metric.
            step: Fits in 64 bits.
            value: May be NaN or infinite.
            time: When it was written, if the source isn't read in the order of writing.
        """
        self._count += 1
        steps, values, times = self._points[name]
        steps.append(step)
        values.append(value)
        times.append(self._count if time is None else time)

    def drop_from(self, step: int) -> None:
        """Drop all points at a step and later steps, because the run restarted there."""
        for columns in self._points.values():
            keep = np.asarray(columns[0]) < step
            self.left_out[self.REPLACED] += int(np.count_nonzero(~keep))
            for column in columns:
                column[:] = array(column.typecode, np.asarray(column)[keep].tobytes())

    def curves(self) -> dict[str, Curve]:
        """Return the curve of each metric, sorted by name.

        A run restarted where a metric goes back to a step that it already has. All points that were written
        between the two points at that step, of any metric, are dropped. The last value at a step counts.
        """
        log = {name: [*map(np.asarray, self._points[name])] for name in sorted(self._points)}
        restarts = [pair for steps, _, times in log.values() for pair in _restarts(steps, times)]
        replaced: list[tuple[float, float]] = []  # disjoint intervals of time, half open
        for end, start in sorted(restarts):
            index = bisect_right(replaced, (start, np.inf))
            # Metrics that are logged less often go back later: their earlier points are replaced already.
            if index == 0 or start >= replaced[index - 1][1]:
                replaced[index:] = [(start, end)]
        bounds = np.ravel(np.asarray(replaced, np.float64))
        curves = {}
        for name, (steps, values, times) in log.items():
            kept = np.searchsorted(bounds, times, side="right") % 2 == 0
            self.left_out[self.REPLACED] += int(np.count_nonzero(~kept))
            if kept.any():
                curves[name] = curve(steps[kept], values[kept])
        return curves


def _restarts(steps: Steps, times: Values) -> Iterator[tuple[float, float]]:
    """Yield the time of each restart of a metric, and the time of the earlier point at its step."""
    by_step = np.argsort(steps, kind="stable")
    same = np.flatnonzero(np.diff(steps[by_step]) == 0)
    previous = np.full(len(steps), -1)
    previous[by_step[same + 1]] = by_step[same]
    back = np.flatnonzero((np.diff(steps, prepend=steps[:1]) < 0) & (previous >= 0))
    yield from zip(times[back].tolist(), times[previous[back]].tolist(), strict=True)


def curve(steps: Sequence[int] | Steps, values: Sequence[float] | Values) -> Curve:
    """Return the curve of points in the order of writing: the last value at each step counts."""
    written = np.asarray(steps, np.int64)[::-1]
    unique, index = np.unique(written, return_index=True)
    return unique, np.asarray(values, np.float64)[::-1][index]


def utc(seconds: float | None) -> datetime | None:
    """Convert seconds since 1970 to UTC without a time zone; None if the time is out of range."""
    try:
        return None if seconds is None else datetime(1970, 1, 1) + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None


_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def number(value: object) -> float | None:
    """Return a JSON value as a float, also if it is "NaN" or "Infinity"; None if it isn't a number."""
    if isinstance(value, str):
        return _NUMBERS.get(value)
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def whole_number(value: Any) -> int:
    """Return a whole number of at most 64 bits, written as 50, 50.0, or "50".

    Raises:
        ValueError: The value isn't such a number.
    """
    if type(value) is int and abs(value) < 2**63:
        return value
    with suppress(ArithmeticError):
        exact = Decimal(str(value))
        if abs(exact) < 2**63 and exact == int(exact):
            return int(exact)
    raise ValueError(f"expected a whole number, got {shown(value)}")


def put(config: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value at a nested path, replacing values that are in the way."""
    for part in path[:-1]:
        if not isinstance(config.get(part), dict):
            config[part] = {}
        config = config[part]
    config[path[-1]] = value


_MOST_LEVELS = 32


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nest values by the dots in their keys.

    A key stays flat if another key is its beginning ("model" and "model.width"), if a part is empty, or if it
    has more than 32 parts.
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        parts = key.split(".")
        beginnings = {".".join(parts[:length]) for length in range(1, len(parts))}
        if not all(parts) or len(parts) > _MOST_LEVELS or beginnings & values.keys():
            result[key] = value
        else:
            put(result, parts, value)
    return result
