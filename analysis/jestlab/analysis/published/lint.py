"""Find printed numbers that cannot be right, by recalculating every derived cell from other printed cells.

A printed number stands for every number that rounds to it, so a derived cell has an interval of possible
values. A printed cell outside this interval is a finding: it contradicts the cells from which it follows,
whichever of them is wrong. Nothing is corrected.

Derived cells:

flops_per_iteration   from the row's accounting: `flops.paper_iid`, `paper_jest`, and `paper_flexi` at the
                      paper's f = .8 and λ = .5, with its printed A = 0.28; 100 % for the baseline. Without
                      an accounting the cell is not derived.
flops_total           FLOPs per iteration × the row's examples / the baseline's examples
mean_delta            mean difference to the baseline, over the scores of both rows
mean                  mean over all scores of the row
{dataset}/mean_r1     mean of i2t_r1 and t2i_r1 of the row, or of the same training in another table

Other scores, and other FLOPs per iteration, are compared with the same cell of the same training (source,
method, variant, data, and examples) in other tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import flops
from .cell import (
    DELTA,
    EXAMPLES,
    MEAN,
    PER_ITERATION,
    TOTAL,
    CellKey,
    Interval,
    PublishedCell,
    exactly,
    is_score,
    order,
)

SUPER_BATCH_RATIO = 5.0
"""B/b of the paper's tables: filtering ratio .8."""

APPROXIMATION = (0.28, 0.275, 0.285)
"""A of the paper's tables, and the least and the greatest number that rounds to it."""


@dataclass(frozen=True)
class Finding:
    """Result of recalculating a cell.

    Attributes:
        keys: The key of the cell, and of the cells of other tables that contradict it.
        row: The row in words: "JEST++ L, 4B".
        printed: Printed text.
        expected: The recalculated number in the same form: "+0.9".
        possible: The least and the greatest number that could be printed, given the rounding of the cells
            from which it follows.
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
        baseline: The row of its group's baseline; None if the group has none, or several.
        twins: Rows of the same training in other tables, except those of tables with two of them.
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
        """The scores that count in means: all but a mean of two others."""
        return sorted((q for q in self.cells if is_score(q) and not self.directions(q)), key=order)

    def directions(self, quantity: str) -> list[PublishedCell]:
        """Return the cells of both retrieval directions that `coco/mean_r1` averages, or else none."""
        names = [quantity.removesuffix("mean_r1") + direction for direction in ("i2t_r1", "t2i_r1")]
        is_mean = quantity.endswith("/mean_r1") and all(name in self.cells for name in names)
        return [self.cells[name] for name in names] if is_mean else []

    def interval(self, quantity: str) -> Interval:
        """Return the values that round to a printed cell."""
        return self.cells[quantity].number.interval


def checks(cells: Iterable[PublishedCell]) -> list[Finding]:
    """Recalculate every derived cell, and compare equal cells between tables.

    Args:
        cells: Cells of any sources and tables.

    Returns:
        Findings in the order of the cells; those that are not confirmed cannot be right. Differences between
        tables are last.
    """
    rows = _rows(cells)
    places = [(row, row.cells[quantity]) for row in rows for quantity in sorted(row.cells, key=order)]
    found = []
    for row, cell in places:
        if (derived := _derive(row, cell.quantity)) is not None:
            found.append(_recalculated(row, cell, *derived))
    done = {finding.keys[0] for finding in found}
    for row, cell in places:
        if cell.key in done or not (is_score(cell.quantity) or cell.quantity == PER_ITERATION):
            continue
        done.add(cell.key)
        twins = [twin.cells[cell.quantity] for twin in row.twins if cell.quantity in twin.cells]
        interval = row.interval(cell.quantity)
        others = [o for o in twins if o.key not in done and o.number.interval.gap(interval) >= 0]
        if others:
            found.append(_different(row, cell, others))
    return found


def _rows(cells: Iterable[PublishedCell]) -> list[_Row]:
    """Group cells into rows, and find the baseline and the twins of each row."""
    rows: dict[tuple[Any, ...], _Row] = {}
    for cell in cells:
        rows.setdefault(cell.key[:3], _Row(cell)).cells[cell.quantity] = cell
    baselines, trainings = defaultdict(list), defaultdict(list)
    for row in rows.values():
        first = row.first
        baselines[first.source, first.table, first.group, first.baseline].append(row)
        if EXAMPLES in row.cells:
            key = (first.source, first.method, first.variant, first.data, row.cells[EXAMPLES].value)
            trainings[key].append(row)
    for row in rows.values():
        of_group = baselines[row.first.source, row.first.table, row.first.group, True]
        row.baseline = of_group[0] if len(of_group) == 1 else None
    for same in trainings.values():
        tables = Counter(row.first.table for row in same)
        for row in same:
            others = (other for other in same if other.first.table != row.first.table)
            row.twins = [other for other in others if tables[other.first.table] == 1]
    return list(rows.values())


# ---- what a cell follows from: its interval, and the beginning of a clause that the number ends

_Derived = tuple[Interval, str] | None


def _derive(row: _Row, quantity: str) -> _Derived:
    """Derive a cell of a row from other cells; None if it does not follow from them."""
    baseline = row.baseline
    if quantity == MEAN:
        scores = [row.interval(score) for score in row.scores]
        return (Interval.mean(scores), f"the mean of its {len(scores)} scores is") if scores else None
    if quantity not in (PER_ITERATION, TOTAL, DELTA):
        return _mean_of_directions(row, quantity)
    if baseline is row:
        return exactly(0.0 if quantity == DELTA else 1.0), "the baseline is measured by itself,"
    if baseline is None:
        return None
    return {PER_ITERATION: _per_iteration, TOTAL: _total, DELTA: _delta}[quantity](row, baseline)


def _mean_of_directions(row: _Row, quantity: str) -> _Derived:
    for twin in (row, *row.twins):
        if cells := twin.directions(quantity):
            where = "" if twin is row else f", in {twin.first.table},"
            mean = Interval.mean([cell.number.interval for cell in cells])
            return mean, f"the mean of {' and '.join(cell.printed for cell in cells)}{where} is"
    return None


_PER_ITERATION: dict[str, tuple[Interval, str]] = {
    "iid": (exactly(flops.paper_iid(1.0)), "uniform sampling, 3F, comes to"),
    "jest": (
        exactly(flops.paper_jest(1.0, SUPER_BATCH_RATIO)),
        "JEST, F(2 + B/b) at B/b = 5, comes to",
    ),
    "flexi": (
        Interval(*(flops.paper_flexi(1.0, SUPER_BATCH_RATIO, share) for share in APPROXIMATION)),
        "Flexi-JEST at B/b = 5, λ = .5 and A = 0.28 comes to",
    ),
}
"""Accounting → the cost of an iteration in F·b, and the beginning of a clause."""


def _per_iteration(row: _Row, baseline: _Row) -> _Derived:
    mine, theirs = row.first.accounting, baseline.first.accounting
    if not mine or not theirs:
        return None
    cost, why = _PER_ITERATION[mine]
    return cost.over(_PER_ITERATION[theirs][0]), why


def _total(row: _Row, baseline: _Row) -> _Derived:
    if EXAMPLES not in row.cells or EXAMPLES not in baseline.cells:
        return None
    examples, theirs = row.interval(EXAMPLES), baseline.interval(EXAMPLES)
    if theirs.low <= 0:
        return None
    if PER_ITERATION in row.cells:
        each, shown = row.interval(PER_ITERATION), row.cells[PER_ITERATION].printed
    elif (derived := _per_iteration(row, baseline)) is not None:
        each, shown = derived[0], f"{100 * derived[0].value:.4g} %"
    else:
        return None
    printed = row.cells[EXAMPLES].printed, baseline.cells[EXAMPLES].printed
    why = f"{shown} an iteration, for {printed[0]} examples instead of {printed[1]}, come to"
    return each.times(examples).over(theirs), why


def _delta(row: _Row, baseline: _Row) -> _Derived:
    shared = [score for score in row.scores if score in baseline.scores]
    if not shared:
        return None
    why = f"the scores that {baseline.name} has as well ({', '.join(shared)}) differ on average by"
    return Interval.mean([row.interval(score) - baseline.interval(score) for score in shared]), why


# ---- findings


def _recalculated(row: _Row, cell: PublishedCell, interval: Interval, why: str) -> Finding:
    """Compare a printed cell with the interval that follows from other cells."""
    number = cell.number
    expected, (low, high) = number.write(interval.value), number.write_ends(interval)
    confirmed = number.interval.gap(interval) <= 0
    verdict = "is confirmed" if confirmed else "cannot be right"
    reason = f"{verdict}: {why} {expected}" + f" ({low} to {high})" * (low != high)
    return Finding(
        (cell.key,), row.name, cell.printed, expected, (low, high), confirmed, _message(row, cell, reason)
    )


def _different(row: _Row, cell: PublishedCell, others: Sequence[PublishedCell]) -> Finding:
    """Report a cell that is printed differently in other tables."""
    printed = others[0].printed
    there = ", ".join(f"{other.printed} in {other.table}, row {other.position}" for other in others)
    message = _message(row, cell, f"here, but {there}: the same training")
    keys = (cell.key, *(other.key for other in others))
    return Finding(keys, row.name, cell.printed, printed, (printed, printed), False, message)


def _message(row: _Row, cell: PublishedCell, reason: str) -> str:
    return f"{cell.table}, row {cell.position} ({row.name}), {cell.quantity}: {cell.printed} {reason}"
