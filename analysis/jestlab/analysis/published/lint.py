"""Find printed numbers that cannot be right, by recalculating every derived cell from other printed cells.

Many numbers round to a printed one, so a derived cell has an interval of possible values. A printed cell
outside this interval is a finding: it contradicts the cells from which it follows. Nothing is corrected.

flops_per_iteration follows from the row's accounting (the formulas of the paper in `flops`, at its f = .8,
λ = .5, and A = 0.28), flops_total from it and the examples of row and baseline,
mean_delta, mean, and mean_r1 from scores. Other scores, and other FLOPs per iteration, are compared with the
same cell of the same training (source, method, variant, data, and examples) in other tables.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from .cell import (
    DELTA,
    EXAMPLES,
    MEAN,
    PER_ITERATION,
    SLACK,
    TOTAL,
    CellKey,
    PublishedCell,
    is_score,
    order,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


Interval: TypeAlias = "npt.NDArray[np.float64]"
"""The least number that rounds to a printed one, the printed one, and the greatest such number. To subtract
an interval, or to divide by it, reverse it first."""


@dataclass(frozen=True)
class Finding:
    """Result of recalculating a cell.

    Attributes:
        keys: The keys of the cell and of the cells in other tables that contradict it.
        row: The row in words: "JEST++ L, 4B".
        printed: Printed text.
        expected: The recalculated number in the same form: "+0.9".
        possible: The least and the greatest number that could be printed, given that the cells from which it
            follows are rounded.
        confirmed: Whether the printed number is possible.
        message: One line with the place, the numbers, and the reason.
    """

    keys: tuple[CellKey, ...]
    row: str
    printed: str
    expected: str
    possible: tuple[str, str]
    confirmed: bool
    message: str


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
    def name(self) -> str:
        """The row in words: "JEST++ L, 4B"."""
        budget = f", {self.cells[EXAMPLES].printed}" if EXAMPLES in self.cells else ""
        return f"{self.first.method} {self.first.variant}".strip() + budget

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
        _recalculated(row, cell, *derived)
        for row, cell in places
        if (derived := _derive(row, cell.quantity)) is not None
    ]
    done = {finding.keys[0] for finding in findings}
    for row, cell in places:
        if cell.key in done or not (is_score(cell.quantity) or cell.quantity == PER_ITERATION):
            continue
        done.add(cell.key)
        twins = [twin.cells[cell.quantity] for twin in row.twins if cell.quantity in twin.cells]
        others = [
            twin for twin in twins if twin.key not in done and _gap(_interval(twin), _interval(cell)) >= 0
        ]
        if others:
            printed = others[0].printed
            there = ", ".join(f"{other.printed} in {other.table}, row {other.position}" for other in others)
            keys = (cell.key, *(other.key for other in others))
            message = _message(row, cell, f"here, but {there}: the same training")
            findings.append(Finding(keys, row.name, cell.printed, printed, (printed,) * 2, False, message))
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

_PER_ITERATION: dict[str, tuple[tuple[float, ...], str]] = {
    "iid": ((3.0,) * 3, "uniform sampling, 3F, comes to"),
    "jest": ((7.0,) * 3, "JEST, F(2 + B/b) at B/b = 5, comes to"),
    "flexi": (
        tuple(3 * (0.5 + 0.5 * A) + 5 * A for A in (0.275, 0.28, 0.285)),
        "Flexi-JEST at B/b = 5, λ = .5 and A = 0.28 comes to",
    ),
}
"""Accounting → interval of the cost of an iteration in F·b, and a clause to end with a number."""


def _derive(row: _Row, quantity: str) -> tuple[Interval, str] | None:
    """Return the interval of a derived cell, and a clause to end with a number; None for other cells."""
    if quantity == MEAN and (scores := row.scores):
        return _interval(*(row.cells[score] for score in scores)), f"the mean of its {len(scores)} scores is"
    for twin in (row, *row.twins):
        if cells := twin.directions(quantity):
            where = "" if twin is row else f", in {twin.first.table},"
            return _interval(*cells), f"the mean of {' and '.join(cell.printed for cell in cells)}{where} is"
    import numpy as np

    baseline = row.baseline
    if baseline is None or quantity not in (PER_ITERATION, TOTAL, DELTA):
        return None
    if baseline is row:
        return np.full(3, float(quantity != DELTA)), "the baseline is measured by itself,"
    if quantity == DELTA:
        if not (shared := [score for score in row.scores if score in baseline.scores]):
            return None
        mine, theirs = (_interval(*(side.cells[score] for score in shared)) for side in (row, baseline))
        why = f"the scores that {baseline.name} has as well ({', '.join(shared)}) differ on average by"
        return mine - theirs[::-1], why
    if quantity == PER_ITERATION:
        if not row.first.accounting or not baseline.first.accounting:
            return None
        cost, why = _PER_ITERATION[row.first.accounting]
        return np.array(cost) / _PER_ITERATION[baseline.first.accounting][0][::-1], why
    if not {PER_ITERATION, EXAMPLES} <= row.cells.keys() or EXAMPLES not in baseline.cells:
        return None
    share, examples, usual = row.cells[PER_ITERATION], row.cells[EXAMPLES], baseline.cells[EXAMPLES]
    if usual.number.interval[0] <= 0:
        return None
    why = f"{share.printed} an iteration, for {examples.printed} examples instead of {usual.printed}, come to"
    return _interval(share) * _interval(examples) / _interval(usual)[::-1], why


def _interval(*cells: PublishedCell) -> Interval:
    """Return the interval of the mean of some cells."""
    import numpy as np

    mean: Interval = np.mean([cell.number.interval for cell in cells], axis=0)
    return mean


def _gap(one: Interval, other: Interval) -> float:
    """Return the distance between two intervals: 0 if they share one number, negative if they overlap.

    For example, 80.4 and 80.5 share only 80.45. Distances within floating-point error count as 0.
    """
    gap = float(max(one[0], other[0]) - min(one[2], other[2]))
    return 0.0 if abs(gap) <= SLACK * max(one[2] - one[0], other[2] - other[0]) else gap


# ---- findings


def _recalculated(row: _Row, cell: PublishedCell, interval: Interval, why: str) -> Finding:
    """Compare a printed cell with the interval that follows from other cells."""
    number = cell.number
    expected = number.write(interval[1])
    # Halves may be rounded either way.
    low = number.write(math.ceil(interval[0] / number.step - 0.5 - SLACK) * number.step)
    high = number.write(math.floor(interval[2] / number.step + 0.5 + SLACK) * number.step)
    confirmed = _gap(_interval(cell), interval) <= 0
    verdict = "is confirmed" if confirmed else "cannot be right"
    reason = f"{verdict}: {why} {expected}" + f" ({low} to {high})" * (low != high)
    message = _message(row, cell, reason)
    return Finding((cell.key,), row.name, cell.printed, expected, (low, high), confirmed, message)


def _message(row: _Row, cell: PublishedCell, reason: str) -> str:
    return f"{cell.table}, row {cell.position} ({row.name}), {cell.quantity}: {cell.printed} {reason}"
