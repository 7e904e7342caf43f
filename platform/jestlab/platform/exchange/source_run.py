"""A run as another tool recorded it, in one form for all tools."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from google.protobuf.message import DecodeError

from jestlab.platform.errors import UserError, shown
from jestlab.platform.spec.options import Options, option
from jestlab.platform.words import on_one_line

State = Literal["COMPLETED", "FAILED", "CANCELLED", "RUNNING"]
"""How a run ended. RUNNING means that the other tool recorded no end."""

Report = Callable[[UserError], None]
"""Called with the error of each run that can't be read; the other runs are still read."""

Curves = dict[str, dict[int, float]]
"""Name of a metric → step → value, with steps in ascending order."""


class AdoptOptions(Options):
    """How runs of another tool become runs of a study; `jestlab adopt` has a flag for each option."""

    label: str = option(
        "Label of a run: text with {name}, {group}, and keys of the config and of tags in braces.", "{name}"
    )
    score: tuple[str, ...] = option(
        "Metric to use as a score: a pattern of names, 'eval/*', or DATASET/METRIC=NAME; repeatable.  "
        "[default: metrics named like a score of STUDY]",
        (),
    )
    goal: Literal["max", "min"] | None = option(
        "Whether larger or smaller scores are better, unless a spec of STUDY defines it."
    )
    examples: str | None = option(
        "Metric with the examples seen, or step*256, or step*KEY with a key of the config."
    )
    flops: str | None = option("The same for the FLOPs of training.")
    seconds: str | None = option(
        "The same for the seconds of training.  [default: the wall time of the run, at its last step]"
    )
    seed: str = option("Key of the config with the seed.", "seed")
    only: tuple[str, ...] = option("Only adopt runs whose names match this pattern; repeatable.", ())
    run: str | None = option("Tables: columns that identify a run, joined by commas.")
    step: str = option("Tables: column of steps.", "step")
    config: str | None = option("Tables: columns of the config, joined by commas.")
    source: str | None = option(
        "Tables and tensorboard: name that identifies PATH, also after a move.  [default: the name of PATH]"
    )
    dry_run: bool = option("Show what would be adopted, and write nothing.", False)


@dataclass(frozen=True)
class SourceRun:
    """A run as another tool recorded it; times are in UTC without a time zone.

    Attributes:
        origin: Identifies the run among the runs of all sources, such as `wandb:ENTITY/PROJECT/ID`.
        name: Display name in the other tool.
        config: JSON values, nested as in the other tool.
        tags: Tags; a tag with a value is "key=value".
        group: W&B group, or the name of the MLflow experiment.
        seconds: Wall time.
        left_out: Description of data that was not read → number of values.
    """

    origin: str
    name: str
    config: dict[str, Any]
    metrics: Curves
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
        return max((step for curve in self.metrics.values() for step in curve), default=0)


class Score(NamedTuple):
    """A score on a dataset at a step, and the costs of training until this step; the value may be NaN."""

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


_PARSER_ERRORS = (
    ArithmeticError, AttributeError, DecodeError, LookupError, MemoryError, OSError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
"""Exceptions that parsers raise for damaged or malicious files."""


@contextmanager
def report_errors(report: Report, place: object) -> Iterator[None]:
    """Catch an error in the block, which reads a run, and report it with the place of the run."""
    try:
        yield
    except UserError as error:
        report(error)
    except _PARSER_ERRORS as error:
        reason = str(error)[:200] or type(error).__name__
        text = f"{place}: can't be read ({reason}): copy it again, or move it away"
        report(UserError(on_one_line(text)))


class MetricLog:
    """The metrics of a run, from points in the order of writing; the last value at a step counts.

    Attributes:
        points: Name → step → value.
        left_out: Description of points and other values that aren't part of the curves → their number.
    """

    REPLACED = "points that a later one of the same step, or a restart, replaced"

    def __init__(self) -> None:
        self.points: Curves = {}
        self.left_out = Counter[str]()

    def add(self, name: str, step: int, value: float) -> None:
        """Add a point. The step has at most 64 bits; the value may be NaN or infinite."""
        points = self.points.setdefault(name, {})
        if step in points:
            self.left_out[self.REPLACED] += 1
        points[step] = value

    def drop_from(self, first: int) -> None:
        """Drop the points so far at this step and later steps, because the run restarted at this step."""
        for name, points in self.points.items():
            self.points[name] = {step: value for step, value in points.items() if step < first}
            self.left_out[self.REPLACED] += len(points) - len(self.points[name])

    def curves(self) -> Curves:
        """Return the curve of each metric that has points; names and steps are sorted."""
        return {
            name: dict(sorted(self.points[name].items())) for name in sorted(self.points) if self.points[name]
        }


def utc(seconds: float | None) -> datetime | None:
    """Convert seconds since 1970 to UTC without a time zone; None if the time is out of range."""
    try:
        return None if seconds is None else datetime(1970, 1, 1) + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None


_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def number(value: object) -> float | None:
    """Return a number in JSON, or a text such as "NaN" or "-Infinity", as a float; None for other values."""
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

    A key with dots stays unchanged if its beginning is a key, too ("model.width" next to "model"), if a part
    is empty, or if it has more than 32 parts.
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
