"""Find inconsistent cells of published tables, by recalculating every derived cell from other printed cells.

Many numbers round to a printed one, so a derived cell has an interval of possible values. A printed cell
outside this interval is a finding: it contradicts the cells from which it follows. Nothing is corrected.

flops_per_iteration follows from the row's accounting (the formulas of the paper in `flops`, at its f = .8,
λ = .5, and A = 0.28), flops_total from it and the examples of row and baseline,
mean_delta, mean, and mean_r1 from scores. Other scores, and other FLOPs per iteration, are compared with the
same cell of the same training (source, method, variant, data, and examples) in other tables.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.analysis.published.cell import (
    DELTA,
    EXAMPLES,
    MEAN,
    PER_ITERATION,
    TOTAL,
    CellKey,
    PublishedCell,
    is_score,
    order,
    read_printed,
)

NUMBER = re.compile(r"([+\-−–]?)([0-9,]+)(?:\.([0-9]+))?([KMBT]?)")
SLACK = 1e-9  # fraction of a step: numbers that differ by less count as equal

Interval = npt.NDArray[np.float64]
"""The least number that rounds to a printed one, the printed one, and the greatest such number. To subtract
an interval, or to divide by it, reverse it first."""


class Finding(NamedTuple):
    """Result of recalculating a cell.

    Attributes:
        keys: The keys of the cell and of the cells in other tables that contradict it.
        expected: The recalculated number in the same form: "+0.9".
        confirmed: Whether the printed number is possible.
    """

    keys: tuple[CellKey, ...]
    expected: str
    confirmed: bool


@dataclass(eq=False)
class _Row:
    """A row of a published table.

    Attributes:
        first: One of its cells, for the columns that are equal in all of them.
        cells: Quantity → cell.
        baseline: The baseline of the row's group, if the group has one.
        twins: Rows in other tables that show the same training.
    """

    first: PublishedCell
    cells: dict[str, PublishedCell] = field(default_factory=dict)
    baseline: _Row | None = None
    twins: list[_Row] = field(default_factory=list)

    @property
    def scores(self) -> list[str]:
        """The scores that means average: all except the mean of both retrieval directions."""
        return sorted((q for q in self.cells if is_score(q) and not self.directions(q)), key=order)

    def directions(self, quantity: str) -> list[PublishedCell]:
        """Return the cells of both retrieval directions if the quantity (coco/mean_r1) is their mean."""
        names = [quantity.removesuffix("mean_r1") + direction for direction in ("i2t_r1", "t2i_r1")]
        is_mean = quantity.endswith("/mean_r1") and all(name in self.cells for name in names)
        return [self.cells[name] for name in names] if is_mean else []


def checks(cells: Iterable[PublishedCell]) -> list[Finding]:
    """Recalculate every derived cell, and compare equal cells between tables.

    Args:
        cells: Cells of any sources and tables.

    Returns:
        Findings in the order of the cells, followed by differences between tables. A printed number that is
        not confirmed cannot be right.
    """
    rows = _rows(cells)
    places = [(row, row.cells[quantity]) for row in rows for quantity in sorted(row.cells, key=order)]
    findings = [
        Finding((cell.key,), written_like(cell, expected[1]), _gap(interval(cell), expected) <= 0)
        for row, cell in places
        if (expected := _derive(row, cell.quantity)) is not None
    ]
    done = {finding.keys[0] for finding in findings}
    for row, cell in places:
        if cell.key in done or not (is_score(cell.quantity) or cell.quantity == PER_ITERATION):
            continue
        done.add(cell.key)
        twins = [twin.cells[cell.quantity] for twin in row.twins if cell.quantity in twin.cells]
        others = [
            twin for twin in twins if twin.key not in done and _gap(interval(twin), interval(cell)) >= 0
        ]
        if others:
            keys = (cell.key, *(other.key for other in others))
            findings.append(Finding(keys, others[0].printed, False))
    return findings


def _rows(cells: Iterable[PublishedCell]) -> list[_Row]:
    """Group cells into rows, and find the baseline and the twins of each row."""
    rows: dict[tuple[Any, ...], _Row] = {}
    for cell in cells:
        rows.setdefault(cell.key[:3], _Row(cell)).cells[cell.quantity] = cell
    groups = {row: (row.first.source, row.first.table, row.first.group) for row in rows.values()}
    baselines = {group: row for row, group in groups.items() if row.first.baseline}
    trainings = defaultdict(list)
    for row, group in groups.items():
        row.baseline = baselines.get(group)
        if EXAMPLES in row.cells:
            key = (row.first.source, row.first.method, row.first.variant, row.first.data)
            trainings[key, row.cells[EXAMPLES].value].append(row)
    for same in trainings.values():
        for row in same:
            row.twins = [other for other in same if other.first.table != row.first.table]
    return list(rows.values())


# ---- derived cells

_PER_ITERATION: dict[str, tuple[float, ...]] = {
    "iid": (3.0,) * 3,  # uniform sampling: 3F
    "jest": (7.0,) * 3,  # F(2 + B/b) at B/b = 5
    "flexi": tuple(3 * (0.5 + 0.5 * A) + 5 * A for A in (0.275, 0.28, 0.285)),  # at B/b = 5 and λ = .5
}
"""Accounting → interval of the cost of an iteration in F·b."""


def _derive(row: _Row, quantity: str) -> Interval | None:
    """Return the interval of a derived cell; None for other cells."""
    if quantity == MEAN and (scores := row.scores):
        return interval(*(row.cells[score] for score in scores))
    for twin in (row, *row.twins):
        if cells := twin.directions(quantity):
            return interval(*cells)
    baseline = row.baseline
    if baseline is None or quantity not in (PER_ITERATION, TOTAL, DELTA):
        return None
    if baseline is row:
        return np.full(3, float(quantity != DELTA))
    if quantity == DELTA:
        if not (shared := [score for score in row.scores if score in baseline.scores]):
            return None
        mine, theirs = (interval(*(side.cells[score] for score in shared)) for side in (row, baseline))
        return mine - theirs[::-1]
    if quantity == PER_ITERATION:
        if not row.first.accounting or not baseline.first.accounting:
            return None
        cost = np.array(_PER_ITERATION[row.first.accounting])
        return cost / _PER_ITERATION[baseline.first.accounting][::-1]
    if not {PER_ITERATION, EXAMPLES} <= row.cells.keys() or EXAMPLES not in baseline.cells:
        return None
    usual = interval(baseline.cells[EXAMPLES])
    if usual[0] <= 0:
        return None
    return interval(row.cells[PER_ITERATION]) * interval(row.cells[EXAMPLES]) / usual[::-1]


def interval(*cells: PublishedCell) -> Interval:
    """Return the interval of the mean of some cells."""
    numbers = [read_printed(cell.printed, cell.unit) for cell in cells]
    ends = [(value - step / 2, value, value + step / 2) for value, step in numbers]
    mean: Interval = np.mean(ends, axis=0)
    return mean


def _gap(one: Interval, other: Interval) -> float:
    """Return the distance between two intervals: 0 if they share one number, negative if they overlap.

    For example, 80.4 and 80.5 share only 80.45. Distances within floating-point error count as 0.
    """
    gap = float(max(one[0], other[0]) - min(one[2], other[2]))
    return 0.0 if abs(gap) <= SLACK * max(one[2] - one[0], other[2] - other[0]) else gap


def written_like(cell: PublishedCell, value: float) -> str:
    """Write a value in the form of a cell. Halves are rounded away from zero, as in most tables."""
    match = NUMBER.fullmatch(cell.printed)
    assert match is not None, cell.printed
    sign, _, decimals, letter = match.groups("")
    steps = math.floor(abs(value) / read_printed(cell.printed, cell.unit)[1] + 0.5 + SLACK)
    sign = "" if not steps else "−" if value < 0 else "+" * (sign != "")
    return f"{sign}{steps / 10 ** len(decimals):.{len(decimals)}f}{letter}"
