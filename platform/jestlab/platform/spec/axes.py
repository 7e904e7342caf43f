"""Axes, which list values of config keys, and points, which combine one choice from each axis of a run."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_serializer, model_validator

from jestlab.analysis.names import NAME, value_text
from jestlab.platform.errors import Mistakes, Path, SpecError, kind_of, nearest, no_string, shown
from jestlab.platform.spec.tree import flatten, is_mapping, plain

Point = dict[str, Any]
"""A run's values on its axes: dotted key → value."""

AxisLabels = dict[str, dict[str, str]]
"""Dotted key → display texts: that of the key under "name", and that of each value under its `value_text`."""

KINDS = ("grid", "zip", "cases")

LABELS = "labels"
"""The key of an axis for the display names of its keys and values."""

_LONGEST_LABEL = 80


def _names(given: Any) -> Any:
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",")]
    if not isinstance(given, list | tuple) or not given or not all(isinstance(name, str) for name in given):
        raise SpecError((), f"must be names of runs, not {no_string(given)}")
    return tuple(given)


def _columns(given: Any) -> Any:
    if not is_mapping(given) or not given:
        raise SpecError((), f"must be a mapping from keys to lists of values, not {shown(given)}")
    columns, mistakes = flatten(plain(given)), Mistakes()
    for key, values in columns.items():
        if not isinstance(values, list) or not values:
            what = f"must be a list with at least one value, not {shown(values)} ({kind_of(values)})"
            mistakes.add([SpecError(key.split("."), what)])
    mistakes.check()
    return columns


def _cases(given: Any) -> Any:
    if not isinstance(given, list | tuple) or not given:
        raise SpecError((), f"must be a list of overrides, one per point, not {shown(given)}")
    for i, case in enumerate(given):
        if not is_mapping(case):
            raise SpecError((str(i),), f"must be a mapping of overrides, not {shown(case)}")
    return [flatten(case) for case in plain(given)]


def display_name(given: Any, path: Path = ()) -> str:
    """Check the display name of a run, a key, or a value; numbers are converted to text."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = value_text(given)
    if not isinstance(given, str) or not given.isprintable() or given != given.strip():
        raise SpecError(path, f"must be a text on one line, not {shown(given)}")
    if len(given) > _LONGEST_LABEL:
        raise SpecError(path, f"is longer than {_LONGEST_LABEL} characters")
    return given


def _labels(given: Any) -> AxisLabels:
    if not is_mapping(given):
        example = "{selection.filtering_ratio: {name: f, 0.5: 50%}}"
        raise SpecError((), f"must be a mapping such as {example}, not {shown(given)}")
    labels: AxisLabels = {}
    for key, texts in given.items():
        here = str(key).split(".")
        if not is_mapping(texts):
            raise SpecError(here, f"must be a mapping of `{NAME}` and texts by value, not {shown(texts)}")
        named = {value_text(value): text for value, text in texts.items()}
        labels[str(key)] = {name: display_name(text, (*here, name)) for name, text in named.items()}
    return labels


_Columns = Annotated[dict[str, tuple[Any, ...]], BeforeValidator(_columns)]


class AxisSpec(BaseModel):
    """Config values that vary in one or several runs. Give exactly one of grid, zip, and cases.

    Attributes:
        runs: Names of the runs that are executed with each of the values.
        grid: Lists of values by dotted key of the config; every combination is a point.
        zip: Lists of values by dotted key, all of the same length; the first values form a point, then the
            second values, and so on.
        cases: Overrides of the config, one mapping for each point.
        labels: Display names of keys and values, as in `{selection.filtering_ratio: {name: f, 0.5: 50%}}`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: Annotated[tuple[str, ...], BeforeValidator(_names)]
    grid: _Columns | None = None
    zip: _Columns | None = None
    cases: Annotated[tuple[Point, ...], BeforeValidator(_cases)] | None = None
    labels: Annotated[AxisLabels, BeforeValidator(_labels)] = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        if not is_mapping(written):
            raise SpecError((), f"must be a mapping with one of {', '.join(KINDS)}, not {shown(written)}")
        known = cls.model_fields
        return {key: value for key, value in written.items() if value is not None or key not in known}

    @model_validator(mode="after")
    def _check(self) -> "AxisSpec":
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            given = " and ".join(kinds) or "none"
            raise SpecError((), f"must have exactly one of {', '.join(KINDS)}, not {given}")
        if self.zip is not None and len({len(values) for values in self.zip.values()}) > 1:
            lengths = ", ".join(f"{key} has {len(values)}" for key, values in self.zip.items())
            raise SpecError(("zip",), f"must have as many values for each key: {lengths}")
        for key, texts in self.labels.items():
            here, known = (LABELS, *key.split(".")), self.named_values.get(key)
            if known is None:
                raise SpecError(here, f"the axis has no key {key!r}: {nearest(key, self.keys)}")
            for value in texts.keys() - known:
                problem = f"the axis has no value {value} of {key}: {nearest(value, known)}"
                raise SpecError((*here, value), problem)
        return self

    @property
    def kind(self) -> str:
        """The given one of grid, zip, and cases."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @cached_property
    def named_values(self) -> dict[str, set[str]]:
        """Dotted key → the names that `labels` may have below it: the key's values, as texts, and "name"."""
        columns: dict[str, set[str]] = {}
        pairs = [pair for case in self.cases or () for pair in case.items()]
        for key, values in (self.grid or self.zip or {}).items():
            pairs += ((key, value) for value in values)
        for key, value in pairs:
            columns.setdefault(key, {NAME}).add(value_text(value))
        return columns

    @property
    def keys(self) -> AbstractSet[str]:
        """Dotted keys that the axis sets at any of its points."""
        return self.named_values.keys()

    def points(self) -> Iterator[Point]:
        """Yield the points of the axis, the last key varying fastest."""
        if self.cases is not None:
            yield from self.cases
            return
        columns: Mapping[str, Sequence[Any]] = getattr(self, self.kind)
        values = columns.values()
        for row in itertools.product(*values) if self.grid is not None else zip(*values, strict=True):
            yield dict(zip(columns, row, strict=True))

    @property
    def count(self) -> int:
        """Number of points, without listing them."""
        if self.grid is not None:
            return math.prod(map(len, self.grid.values()))
        return len(next(iter(self.zip.values()))) if self.zip is not None else len(self.cases or ())

    def place(self, key: str, number: int) -> Path:
        """Return the path, within the axis, of the value of a key at the point with a number."""
        case = () if self.cases is None else (str(number),)
        return (self.kind, *case, *key.split("."))

    @model_serializer
    def _written(self) -> dict[str, Any]:
        values = getattr(self, self.kind)
        as_lists = {k: list(v) for k, v in values.items()} if isinstance(values, dict) else list(values)
        named = {LABELS: self.labels} if self.labels else {}
        return {"runs": list(self.runs), self.kind: as_lists, **named}


def listed_axes(written: Any) -> Any:
    """Convert a mapping from names of runs to axes into a list of axes; return a list unchanged.

    Several names are a tuple (in Python) or joined by commas. Each value is one axis or a list of axes.
    """
    if not is_mapping(written):
        return written
    return [
        {"runs": runs, **dict(axis.items())} if is_mapping(axis) else axis
        for runs, axes in written.items()
        for axis in (axes if isinstance(axes, list | tuple) else [axes])
    ]


# ---- points


class AxisStep(NamedTuple):
    """A point of one axis, which is part of a point of a run."""

    axis: int  # index among the study's axes
    number: int  # index of the point on that axis


def count(axes: Sequence[AxisSpec], run: str) -> int:
    """Return the number of points of a run, without listing them."""
    return math.prod(axis.count for axis in axes if run in axis.runs)


def span(axes: Sequence[AxisSpec], run: str) -> list[tuple[Point, tuple[AxisStep, ...]]]:
    """List the points of a run: all combinations of the points of its axes, the last axis varying fastest.

    A run without axes has a single empty point.

    Returns:
        Each point, and the point on each axis that it consists of.

    Raises:
        SpecError: Two axes set the same key, or a key and another key within it.
    """
    own = [index for index, axis in enumerate(axes) if run in axis.runs]
    owners: dict[str, int] = {}
    for index in own:
        for key in axes[index].keys:
            for other, first in owners.items():
                if first != index and _overlap(key, other):
                    raise SpecError(("axes", str(index)), f"{run!r} already has {other!r} from axes.{first}")
        owners |= dict.fromkeys(axes[index].keys, index)
    columns = [[(AxisStep(index, n), point) for n, point in enumerate(axes[index].points())] for index in own]
    return [
        (
            {key: value for _, point in parts for key, value in point.items()},
            tuple(step for step, _ in parts),
        )
        for parts in itertools.product(*columns)
    ]


def axis_path(axes: Sequence[AxisSpec], steps: Sequence[AxisStep], path: Path) -> Path | None:
    """Return the path in the spec of a config value that an axis sets, also as part of a key above or below.

    None if no axis sets it.
    """
    for step in steps:
        axis = axes[step.axis]
        for key in axis.keys if path else ():
            keys = tuple(key.split("."))
            if path[: len(keys)] == keys or keys[: len(path)] == path:
                return ("axes", str(step.axis), *axis.place(key, step.number), *path[len(keys) :])
    return None


def _overlap(key: str, other: str) -> bool:
    """Whether two dotted keys are the same place, or one is within the other."""
    return (key + ".").startswith(other + ".") or (other + ".").startswith(key + ".")
