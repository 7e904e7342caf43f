"""Axes: the values that the runs of a study take, and the points that several axes span."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, model_serializer, model_validator

from jestlab.analysis.names import NAME, value_text
from jestlab.platform.errors import Mistakes, Path, SpecError, kind_of, nearest, no_string, shown
from jestlab.platform.spec.tree import flatten, is_mapping, plain

Point = dict[str, Any]
"""A run's values on its axes: dotted key → value."""

AxisLabels = dict[str, dict[str, str]]
"""Dotted key → its display name, under "name", and the display texts of its values, by `value_text`."""

KINDS = ("grid", "zip", "cases")

LABELS = "labels"
"""The key of an axis for the display names of its keys and values."""

_LONGEST_LABEL = 80


class AxisSpec(BaseModel):
    """Values for one or several runs. Exactly one of grid, zip, and cases is given.

    Attributes:
        runs: Names of the runs that take the values.
        grid: Lists of values by dotted key of the config; every combination is a point.
        zip: Lists of values by dotted key, all of the same length; the first values form a point, then the
            second values, and so on.
        cases: Overrides of the config, one mapping for each point.
        labels: Display names of its keys and values: `{selection.filtering_ratio: {name: f, 0.5: 50%}}`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: tuple[str, ...]
    grid: dict[str, tuple[Any, ...]] | None = None
    zip: dict[str, tuple[Any, ...]] | None = None
    cases: tuple[Point, ...] | None = None
    labels: AxisLabels = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        """Convert the written form: names joined by commas, and nested or dotted keys."""
        if not is_mapping(written):
            raise SpecError((), f"must be a mapping with one of {', '.join(KINDS)}, not {shown(written)}")
        axis = dict(written.items())
        kinds = [kind for kind in KINDS if axis.get(kind) is not None]
        if set(axis) <= cls.model_fields.keys() and len(kinds) != 1:
            given = " and ".join(kinds) or "none"
            raise SpecError((), f"must have exactly one of {', '.join(KINDS)}, not {given}")
        mistakes = Mistakes()
        with mistakes:
            axis["runs"] = _names(axis.get("runs"))
        for kind in kinds:
            with mistakes:
                axis[kind] = (_cases if kind == "cases" else _columns)(axis[kind], (kind,))
                if kind == "zip" and len({len(values) for values in axis[kind].values()}) > 1:
                    lengths = ", ".join(f"{key} has {len(values)}" for key, values in axis[kind].items())
                    raise SpecError((kind,), f"must have as many values for each key: {lengths}")
                if (labels := axis.pop(LABELS, None)) is not None:
                    axis[LABELS] = _labels(labels, columns_of(axis[kind]))
        mistakes.check()
        return axis

    @property
    def kind(self) -> str:
        """The given one of grid, zip, and cases."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Dotted keys that the axis sets at any of its points."""
        return frozenset(columns_of(getattr(self, self.kind)))

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
        """Return the place, below the axis, of a key's value at a point, given the point's number."""
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

    The names are a tuple in Python or joined by commas; each entry is one axis or a list of them.
    """
    if not is_mapping(written):
        return written
    return [
        {"runs": runs, **dict(axis.items())} if is_mapping(axis) else axis
        for runs, axes in written.items()
        for axis in (axes if isinstance(axes, list | tuple) else [axes])
    ]


def columns_of(values: Any) -> dict[str, list[Any]]:
    """Return the values of each key, given the grid, zip, or cases of an axis."""
    if is_mapping(values):
        return {key: list(column) for key, column in values.items()}
    columns: dict[str, list[Any]] = {}
    for case in values:
        for key, value in case.items():
            columns.setdefault(key, []).append(value)
    return columns


def _names(given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",")]
    if not isinstance(given, list | tuple) or not given or not all(isinstance(name, str) for name in given):
        raise SpecError(("runs",), f"must be names of runs, not {no_string(given)}")
    return tuple(given)


def _columns(given: Any, path: Path) -> dict[str, tuple[Any, ...]]:
    if not is_mapping(given) or not given:
        raise SpecError(path, f"must be a mapping from keys to lists of values, not {shown(given)}")
    mistakes, columns = Mistakes(), {}
    for key, values in flatten(plain(given, path)).items():
        if isinstance(values, list) and values:
            columns[key] = tuple(values)
        else:
            what = f"must be a list with at least one value, not {shown(values)} ({kind_of(values)})"
            mistakes.add([SpecError((*path, *key.split(".")), what)])
    mistakes.check()
    return columns


def _cases(given: Any, path: Path) -> tuple[Point, ...]:
    if not isinstance(given, list | tuple) or not given:
        raise SpecError(path, f"must be a list of overrides, one per point, not {shown(given)}")
    points = []
    for i, case in enumerate(given):
        if not is_mapping(case):
            raise SpecError((*path, str(i)), f"must be a mapping of overrides, not {shown(case)}")
        points.append(flatten(plain(case, (*path, str(i)))))
    return tuple(points)


# ---- display names


def display_name(given: Any, path: Path = ()) -> str:
    """Check the display name of a run, a key, or a value; numbers are converted to text."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = value_text(given)
    if not isinstance(given, str) or not given.isprintable() or given != given.strip():
        raise SpecError(path, f"must be a text on one line, not {shown(given)}")
    if len(given) > _LONGEST_LABEL:
        raise SpecError(path, f"is longer than {_LONGEST_LABEL} characters")
    return given


def _labels(given: Any, columns: Mapping[str, Iterable[Any]]) -> AxisLabels:
    """Check the labels of an axis with these values by key.

    Raises:
        SpecError: The form is wrong, or the axis has no such key or value.
    """
    if not is_mapping(given):
        example = "{selection.filtering_ratio: {name: f, 0.5: 50%}}"
        raise SpecError((LABELS,), f"must be a mapping such as {example}, not {shown(given)}")
    parsed: AxisLabels = {}
    for key, texts in given.items():
        here = (LABELS, *str(key).split("."))
        if key not in columns:
            raise SpecError(here, f"the axis has no key {str(key)!r}: {nearest(str(key), columns)}")
        if not is_mapping(texts):
            raise SpecError(here, f"must be a mapping of `{NAME}` and texts by value, not {shown(texts)}")
        known = {NAME, *map(value_text, columns[key])}
        parsed[key] = {}
        for value, text in texts.items():
            name = value_text(value)
            if name not in known:
                problem = f"the axis has no value {shown(value)} of {key}: {nearest(name, known)}"
                raise SpecError((*here, name), problem)
            parsed[key][name] = display_name(text, (*here, name))
    return parsed


def current_labels(labels: AxisLabels, columns: Mapping[str, Iterable[Any]]) -> AxisLabels:
    """Keep only the labels of values that are on the axis."""
    valid = {key: {NAME, *map(value_text, values)} for key, values in columns.items()}
    kept = {
        key: {value: text for value, text in texts.items() if value in valid.get(key, ())}
        for key, texts in labels.items()
    }
    return {key: texts for key, texts in kept.items() if texts}


# ---- points


class AxisStep(NamedTuple):
    """One axis's part of a point."""

    axis: int  # index among the study's axes
    number: int  # of the point on that axis


def count(axes: Sequence[AxisSpec], run: str) -> int:
    """Return the number of points of a run, without listing them."""
    return math.prod(axis.count for axis in axes if run in axis.runs)


def span(axes: Sequence[AxisSpec], run: str) -> list[tuple[Point, tuple[AxisStep, ...]]]:
    """List the points of a run, each with its parts.

    They are every combination of the points of its axes, the last axis varying fastest; without axes, a
    single empty point.

    Raises:
        SpecError: Two axes set the same key, or a key and one below it.
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


def place_on(axes: Sequence[AxisSpec], steps: Sequence[AxisStep], path: Path) -> Path | None:
    """Return the place of a config's value if an axis sets it, or sets a key above or below it."""
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
