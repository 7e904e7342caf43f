"""Which printed numbers cannot be right: every derived cell, calculated again from the printed cells.

A printed number stands for all that rounds to it, so calculating with intervals gives all that could be
meant, and rounding their ends all that could be printed. A cell that is none of that is a finding: with the
cells that it follows from, it cannot be right, whichever of them is wrong. Nothing is ever corrected.

What follows from what:

flops_per_iteration   from the row's accounting: `costs.paper_iid`, `paper_jest` and `paper_flexi` at the
                      paper's f = .8 and λ = .5, with its printed A = 0.28; 100 % of the baseline itself.
                      Without an accounting the printed figure is taken as it is.
flops_total           that of an iteration, times the row's examples, over the baseline's examples
mean_delta            mean, over the scores that row and baseline both have, of their differences
mean                  mean over all scores of the row
{dataset}/mean_r1     mean of i2t_r1 and t2i_r1 of the row, or else of the same training in another table

Cells that do not follow from others are compared with the same cell in other tables: of the same method,
variant, data and examples, from the same source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from jestlab.analysis import costs
from jestlab.analysis.published.cell import (
    DELTA,
    EXAMPLES,
    MEAN,
    PER_ITERATION,
    TOTAL,
    Accounting,
    CellKey,
    Interval,
    PublishedCell,
    is_score,
    order,
    read_number,
    scale,
    show,
)
from jestlab.analysis.published.files import cells_of

if TYPE_CHECKING:
    import pandas as pd

SUPER_BATCH_RATIO = 5.0
"""B/b of the paper's tables: filtering ratio .8."""

APPROXIMATION = "0.28"
"""A of the paper's tables, as it is printed."""


@dataclass(frozen=True)
class Row:
    """A row of a published table.

    Attributes:
        first: One of its cells, for what they all say.
        cells: Quantity → cell.
    """

    first: PublishedCell
    cells: dict[str, PublishedCell]

    @cached_property
    def scores(self) -> list[str]:
        """Scores that enter means: all but those that are means themselves."""
        return sorted((q for q in self.cells if is_score(q) and not self._is_mean(q)), key=order)

    def _is_mean(self, quantity: str) -> bool:
        directions = _directions(quantity)
        return directions is not None and directions <= self.cells.keys()

    @property
    def name(self) -> str:
        """In words: "JEST++ L, 4B"."""
        variant = f" {self.first.variant}" if self.first.variant else ""
        budget = f", {self.cells[EXAMPLES].printed}" if EXAMPLES in self.cells else ""
        return f"{self.first.method}{variant}{budget}"

    @property
    def group(self) -> tuple[str, str, str]:
        """Key that rows share which are compared with one baseline."""
        return self.first.source, self.first.table, self.first.group

    @property
    def training(self) -> tuple[str, str, str, str, float] | None:
        """Key that rows of the same training share; None if it is unknown."""
        if EXAMPLES not in self.cells:
            return None
        first = self.first
        return first.source, first.method, first.variant, first.data, self.cells[EXAMPLES].value


def rows_of(cells: Iterable[PublishedCell]) -> list[Row]:
    """Group cells into rows, in their order."""
    rows: dict[tuple[str, str, int], Row] = {}
    for cell in cells:
        row = rows.setdefault((cell.source, cell.table, cell.position), Row(cell, {}))
        row.cells[cell.quantity] = cell
    return list(rows.values())


class Known:
    """Index of rows by group and by training."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._baselines: dict[tuple[str, ...], list[Row]] = defaultdict(list)
        self._trainings: dict[tuple[object, ...], list[Row]] = defaultdict(list)
        for row in rows:
            if row.first.baseline:
                self._baselines[row.group].append(row)
            if row.training is not None:
                self._trainings[row.training].append(row)

    def baseline(self, row: Row) -> Row | None:
        """Find the baseline of a row; None if there is none, or more than one."""
        baselines = self._baselines[row.group]
        return baselines[0] if len(baselines) == 1 else None

    def same(self, row: Row) -> list[Row]:
        """List the row and those of the same training in other tables."""
        others = self._trainings[row.training] if row.training is not None else []
        return [row, *(twin for twin in others if twin.first.table != row.first.table)]

    def twins(self) -> Iterator[list[Row]]:
        """Rows of the same training in several tables. Two of them in one table are left out: what tells
        those apart is not said."""
        for rows in self._trainings.values():
            tables = [row.first.table for row in rows]
            alone = [row for row in rows if tables.count(row.first.table) == 1]
            if len(alone) > 1:
                yield alone


@dataclass(frozen=True)
class Derived:
    """The value that a cell should have, derived from other cells.

    Attributes:
        value: From the printed numbers as they are.
        interval: From all that they stand for.
        why: What it follows from: the beginning of a clause that the number ends.
    """

    value: Fraction
    interval: Interval
    why: str


def derive(row: Row, quantity: str, known: Known) -> Derived | None:
    """Derive a cell of a row from other cells; None if it does not follow from them."""
    if quantity == MEAN:
        intervals = [row.cells[score].interval for score in row.scores]
        return _mean_of(intervals, f"the mean of its {len(intervals)} scores is") if intervals else None
    if quantity not in _AGAINST:
        return _mean_of_directions(row, quantity, known)
    baseline = known.baseline(row)
    if baseline is row:
        by_itself = Interval.exactly(0 if quantity == DELTA else 1)
        return Derived(by_itself.middle, by_itself, "the baseline is measured by itself,")
    return None if baseline is None else _AGAINST[quantity](row, baseline)


def _per_iteration(row: Row, baseline: Row) -> Derived | None:
    if not row.first.accounting or not baseline.first.accounting:
        return None
    value, interval = _relative_cost(row.first.accounting)
    theirs, their_interval = _relative_cost(baseline.first.accounting)
    return Derived(value / theirs, interval / their_interval, f"{_FORMULAS[row.first.accounting]} comes to")


_FORMULAS = {
    "iid": "uniform sampling, 3F,",
    "jest": "JEST, F(2 + B/b) at B/b = 5,",
    "flexi": "Flexi-JEST at B/b = 5, λ = .5 and A = 0.28",
}


def _relative_cost(accounting: Accounting) -> tuple[Fraction, Interval]:
    """Compute the FLOPs of an iteration over uniform sampling's: with the printed A, and its interval."""
    iid = costs.paper_iid(1.0)
    if accounting == "flexi":
        printed = read_number(APPROXIMATION)
        shares = (printed.value, printed.interval.low, printed.interval.high)
        of_each = (costs.paper_flexi(1.0, SUPER_BATCH_RATIO, float(share)) for share in shares)
        value, low, high = (Fraction(cost / iid) for cost in of_each)
        return value, Interval(low, high)
    exact = Fraction((costs.paper_jest(1.0, SUPER_BATCH_RATIO) if accounting == "jest" else iid) / iid)
    return exact, Interval.exactly(exact)


def _total(row: Row, baseline: Row) -> Derived | None:
    if EXAMPLES not in row.cells or EXAMPLES not in baseline.cells:
        return None
    examples, theirs = row.cells[EXAMPLES], baseline.cells[EXAMPLES]
    if theirs.interval.low <= 0:
        return None
    if PER_ITERATION in row.cells:
        cell = row.cells[PER_ITERATION]
        each, interval, said = cell.interval.middle, cell.interval, cell.printed
    elif (derived := _per_iteration(row, baseline)) is not None:
        each, interval, said = derived.value, derived.interval, f"{float(100 * derived.value):.4g} %"
    else:
        return None
    return Derived(
        each * examples.interval.middle / theirs.interval.middle,
        interval * examples.interval / theirs.interval,
        f"{said} an iteration, for {examples.printed} examples instead of {theirs.printed}, come to",
    )


def _delta(row: Row, baseline: Row) -> Derived | None:
    shared = [score for score in row.scores if score in baseline.scores]
    if not shared:
        return None
    differences = [row.cells[score].interval - baseline.cells[score].interval for score in shared]
    which = f"the {len(shared)} scores" if len(shared) > 1 else "the one score"
    why = f"{which} that {baseline.name} has as well ({', '.join(shared)}) differ on average by"
    return _mean_of(differences, why)


_AGAINST: dict[str, Callable[[Row, Row], Derived | None]] = {
    PER_ITERATION: _per_iteration,
    TOTAL: _total,
    DELTA: _delta,
}
"""What is measured against a baseline → how it follows from the cells of a row and its baseline."""


def _mean_of_directions(row: Row, quantity: str, known: Known) -> Derived | None:
    directions = _directions(quantity)
    for twin in known.same(row) if directions is not None else ():
        if directions is not None and directions <= twin.cells.keys():
            cells = [twin.cells[direction] for direction in sorted(directions)]
            printed = " and ".join(cell.printed for cell in cells)
            where = "" if twin is row else f", in {twin.first.table},"
            return _mean_of([cell.interval for cell in cells], f"the mean of {printed}{where} is")
    return None


def _directions(quantity: str) -> set[str] | None:
    """Return the two scores that `coco/mean_r1` averages; None for other quantities."""
    dataset, _, metric = quantity.rpartition("/")
    return {f"{dataset}/i2t_r1", f"{dataset}/t2i_r1"} if metric == "mean_r1" else None


def _mean_of(intervals: Sequence[Interval], why: str) -> Derived:
    mean = sum(intervals[1:], intervals[0]) / Interval.exactly(len(intervals))
    return Derived(mean.middle, mean, why)


@dataclass(frozen=True)
class Finding:
    """Result of recalculating a cell.

    Attributes:
        source: Of the cell.
        table: Of the cell.
        position: Its row, from 1.
        row: The row in words: "JEST++ L, 4B".
        column: Its quantity.
        printed: What is printed.
        expected: What would be printed, in the same form: "+0.9".
        possible: The least and the greatest that could be printed, whatever the cells that it follows from
            were rounded from.
        value: What the printed numbers give as they are; like the cell's value a share, or a count.
        interval: The least and the greatest that they can give.
        confirmed: Whether the printed number is among what could be.
        message: One line: where, what, and why.
        others: Cells that say another thing of the same.
    """

    source: str
    table: str
    position: int
    row: str
    column: str
    printed: str
    expected: str
    possible: tuple[str, str]
    value: float
    interval: tuple[float, float]
    confirmed: bool
    message: str
    others: tuple[CellKey, ...] = ()

    @property
    def keys(self) -> tuple[CellKey, ...]:
        """Keys of all cells that the finding concerns."""
        return (CellKey(self.source, self.table, self.position, self.column), *self.others)


def checks(cells: pd.DataFrame | Sequence[PublishedCell]) -> list[Finding]:
    """Recalculate every derived cell, and compare equal cells between tables.

    Args:
        cells: As `published.read` gives them, or as objects; of any sources and tables.

    Returns:
        In the order of the cells, differences between tables last. Those that are not confirmed cannot be
        right.
    """
    rows = rows_of(cells if isinstance(cells, Sequence) else cells_of(cells))
    known = Known(rows)
    found = [
        finding
        for row in rows
        for quantity in sorted(row.cells, key=order)
        if (finding := _check(row, quantity, known)) is not None
    ]
    calculated = {finding.keys[0] for finding in found}
    return found + list(_differences(known, calculated))


def _check(row: Row, quantity: str, known: Known) -> Finding | None:
    derived = derive(row, quantity, known)
    if derived is None:
        return None
    cell = row.cells[quantity]
    confirmed = cell.interval.meets(derived.interval)
    finding = _finding(row, cell, derived, confirmed)
    low, high = finding.possible
    span = "" if low == high else f" ({low} to {high})"
    verdict = "is confirmed" if confirmed else "cannot be right"
    return replace(finding, message=f"{finding.message} {verdict}: {derived.why} {finding.expected}{span}")


def _finding(row: Row, cell: PublishedCell, derived: Derived, confirmed: bool) -> Finding:
    """Make a finding whose message names the place and the text, without the reason."""
    printed_as = scale(cell.unit)
    step = read_number(cell.printed).step * printed_as
    low, high = (show(end / printed_as, cell.printed) for end in derived.interval.printable(step))
    return Finding(
        source=cell.source,
        table=cell.table,
        position=cell.position,
        row=row.name,
        column=cell.quantity,
        printed=cell.printed,
        expected=show(derived.value / printed_as, cell.printed),
        possible=(low, high),
        value=float(derived.value),
        interval=(float(derived.interval.low), float(derived.interval.high)),
        confirmed=confirmed,
        message=f"{cell.table}, row {cell.position} ({row.name}), {cell.quantity}: {cell.printed}",
    )


def _differences(known: Known, calculated: set[CellKey]) -> Iterator[Finding]:
    """Find cells that are printed differently elsewhere, apart from those recalculated already."""
    for rows in known.twins():
        quantities = {q for row in rows for q in row.cells if is_score(q) or q == PER_ITERATION}
        for quantity in sorted(quantities, key=order):
            places = [(row, row.cells[quantity]) for row in rows if quantity in row.cells]
            places = [(row, cell) for row, cell in places if cell.key not in calculated]
            for number, (row, cell) in enumerate(places, start=1):
                others = [other for _, other in places[number:] if not other.interval.overlaps(cell.interval)]
                if others:
                    yield _difference(row, cell, others)
                    break


def _difference(row: Row, cell: PublishedCell, others: Sequence[PublishedCell]) -> Finding:
    other = others[0]
    finding = _finding(row, cell, Derived(other.interval.middle, other.interval, ""), confirmed=False)
    elsewhere = ", ".join(f"{o.printed} in {o.table}, row {o.position}" for o in others)
    return replace(
        finding,
        expected=other.printed,
        possible=(other.printed, other.printed),
        message=f"{finding.message} here, but {elsewhere}: the same training",
        others=tuple(o.key for o in others),
    )
