"""Axes: the values that the runs of a study take, and the points that several axes span."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, model_serializer

from jestlab.platform.errors import Mistakes, Path, SpecError, kind_of, nearest, no_string, shown
from jestlab.platform.spec.config_tree import flatten, is_mapping, plain
from jestlab.platform.spec.labels import LABELS, AxisLabels, parse_labels

Point = dict[str, Any]
"""A run's values on its axes: dotted key → value."""

KINDS = ("grid", "zip", "cases")


class Axis(BaseModel):
    """Values for one or several runs. Exactly one of grid, zip and cases is given.

    Attributes:
        runs: Names of the runs that take the values.
        grid: Lists of values by dotted key of the config; every combination is a point.
        zip: Lists of values by dotted key, as many for each: the first of each are a point, the second, …
        cases: Overrides of the config, one mapping for each point.
        labels: What is shown for its keys and their values; see `labels`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: tuple[str, ...]
    grid: dict[str, tuple[Any, ...]] | None = None
    zip: dict[str, tuple[Any, ...]] | None = None
    cases: tuple[Point, ...] | None = None
    labels: AxisLabels = {}

    @property
    def kind(self) -> str:
        """Which of grid, zip and cases is given."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Dotted keys that the axis sets, in any of its points."""
        by_key = self.grid if self.grid is not None else self.zip
        return frozenset(by_key if by_key is not None else (key for case in self.cases or () for key in case))

    def points(self) -> Iterator[Point]:
        """Yield the points of the axis, the last key varying fastest."""
        if self.grid is not None:
            for values in itertools.product(*self.grid.values()):
                yield dict(zip(self.grid, values, strict=True))
        elif self.zip is not None:
            for values in zip(*self.zip.values(), strict=True):
                yield dict(zip(self.zip, values, strict=True))
        else:
            yield from self.cases or ()

    @property
    def count(self) -> int:
        """Number of points, without listing them."""
        if self.grid is not None:
            return math.prod(map(len, self.grid.values()))
        return len(next(iter(self.zip.values()))) if self.zip is not None else len(self.cases or ())

    def values(self) -> Iterator[tuple[str, Any, int]]:
        """Yield every key with each of its values, and the number of its case (0 without cases)."""
        if self.cases is None:
            columns = self.grid if self.grid is not None else self.zip or {}
            yield from ((key, value, 0) for key, column in columns.items() for value in column)
        else:
            yield from ((key, value, n) for n, case in enumerate(self.cases) for key, value in case.items())

    def place(self, key: str, number: int) -> Path:
        """Return where the value of a key at a point, by number, is written, from the axis on."""
        case = () if self.cases is None else (str(number),)
        return (self.kind, *case, *key.split("."))

    @model_serializer
    def _written(self) -> dict[str, Any]:
        values = getattr(self, self.kind)
        as_lists = {k: list(v) for k, v in values.items()} if isinstance(values, dict) else list(values)
        named = {LABELS: self.labels} if self.labels else {}
        return {"runs": list(self.runs), self.kind: as_lists, **named}


def parse_axes(given: Any) -> list[dict[str, Any]]:
    """Parse axes in any of their written forms into arguments of `Axis`.

    Args:
        given: A list of `{runs: […], grid: {…}}`, or a mapping from names of runs (a tuple in Python, joined
            by commas in YAML) to one or a list of `{grid: {…}}`.
    """
    root = ("axes",)
    if is_mapping(given):
        written = [
            {"runs": runs, **_mapping(axis, (*root, str(runs)))}
            for runs, axes in given.items()
            for axis in (axes if isinstance(axes, list | tuple) else [axes])
        ]
    elif isinstance(given, list | tuple):
        written = [_mapping(axis, (*root, str(i))) for i, axis in enumerate(given)]
    else:
        raise SpecError(root, f"must be a list, or a mapping by names of runs, not {shown(given)}")
    mistakes, parsed = Mistakes(), []
    for i, axis in enumerate(written):
        with mistakes:
            parsed.append(_parse(axis, i))
    mistakes.check()
    return parsed


def _mapping(value: Any, path: Path) -> dict[str, Any]:
    if not is_mapping(value):
        raise SpecError(path, f"must be a mapping with one of {', '.join(KINDS)}, not {shown(value)}")
    return dict(value.items())


def _parse(axis: dict[str, Any], index: int) -> dict[str, Any]:
    path = ("axes", str(index))
    mistakes, known = Mistakes(), ("runs", *KINDS, LABELS)
    mistakes.add(
        SpecError((*path, str(key)), f"unknown key: {nearest(str(key), known)}")
        for key in axis
        if key not in known
    )
    mistakes.check()
    kinds = [kind for kind in KINDS if axis.get(kind) is not None]
    if len(kinds) != 1:
        raise SpecError(
            path, f"must have exactly one of {', '.join(KINDS)}, not {' and '.join(kinds) or 'none'}"
        )
    kind = kinds[0]
    given = axis[kind]
    if kind == "cases":
        values: Any = _cases(given, (*path, kind))
    else:
        values = _columns(given, (*path, kind))
        lengths = {key: len(column) for key, column in values.items()}
        if kind == "zip" and len(set(lengths.values())) > 1:
            counts = ", ".join(f"{key} has {n}" for key, n in lengths.items())
            raise SpecError((*path, kind), f"must have as many values for each key: {counts}")
    parsed = {"runs": _names(axis.get("runs"), (*path, "runs")), kind: values}
    labels = parse_labels(axis.get(LABELS), columns_of(values), (*path, LABELS))
    return parsed | ({LABELS: labels} if labels else {})


def columns_of(values: Any) -> dict[str, list[Any]]:
    """Return the values of each key of an axis, given its grid, zip or cases."""
    if is_mapping(values):
        return {key: list(column) for key, column in values.items()}
    columns: dict[str, list[Any]] = {}
    for case in values:
        for key, value in case.items():
            columns.setdefault(key, []).append(value)
    return columns


def _names(given: Any, path: Path) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",")]
    if not isinstance(given, list | tuple) or not given or not all(isinstance(name, str) for name in given):
        raise SpecError(path, f"must be names of runs, not {no_string(given)}")
    return tuple(given)


def _columns(given: Any, path: Path) -> dict[str, tuple[Any, ...]]:
    if not is_mapping(given) or not given:
        raise SpecError(path, f"must be a mapping from keys to lists of values, not {shown(given)}")
    mistakes, columns = Mistakes(), {}
    for key, values in flatten(plain(given, path)).items():
        here = (*path, *key.split("."))
        with mistakes:
            if not isinstance(values, list):
                raise SpecError(here, f"must be a list of values, not {shown(values)} ({kind_of(values)})")
            if not values:
                raise SpecError(here, "has no values: give at least one, or drop the key")
            columns[key] = tuple(values)
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


class Step(NamedTuple):
    """One axis's part of a point."""

    axis: int  # index among the study's axes
    number: int  # of the point on that axis


class Spanned(NamedTuple):
    """A point of a run and the parts that its axes contribute."""

    point: Point
    steps: tuple[Step, ...]


def count(axes: Sequence[Axis], run: str) -> int:
    """Return the number of points of a run, without listing them."""
    return math.prod(axis.count for axis in axes if run in axis.runs)


def span(axes: Sequence[Axis], run: str) -> list[Spanned]:
    """List the points of a run: every combination of its axes' points, the last axis varying fastest.

    Without axes that is a single empty point.

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
    columns = [[(Step(index, n), point) for n, point in enumerate(axes[index].points())] for index in own]
    return [
        Spanned(
            {key: value for _, point in parts for key, value in point.items()},
            tuple(step for step, _ in parts),
        )
        for parts in itertools.product(*columns)
    ]


def place_on(axes: Sequence[Axis], steps: Sequence[Step], path: Path) -> Path | None:
    """Find where the value at a path of a config is written, if an axis gives it.

    The path may also lie above or below an axis's key.
    """
    for step in steps:
        axis = axes[step.axis]
        for key in axis.keys if path else ():
            keys = tuple(key.split("."))
            if path[: len(keys)] == keys or keys[: len(path)] == path:
                return ("axes", str(step.axis), *axis.place(key, step.number), *path[len(keys) :])
    return None


def _overlap(key: str, other: str) -> bool:
    """Whether two dotted keys are the same place, or one lies within the other."""
    return (key + ".").startswith(other + ".") or (other + ".").startswith(key + ".")
