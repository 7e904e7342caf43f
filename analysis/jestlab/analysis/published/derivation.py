"""How the derived cells of a table follow from its other cells.

flops_per_iteration   from the row's accounting: `costs.paper_iid`, `paper_jest` and `paper_flexi` at the
                      paper's f = .8 and λ = .5, with its printed A = 0.28; 100 % of the baseline itself.
                      Without an accounting the printed figure is taken as it is.
flops_total           that of an iteration, times the row's examples, over the baseline's examples
mean_delta            mean, over the scores that row and baseline both have, of their differences
mean                  mean over all scores of the row
{dataset}/mean_r1     mean of i2t_r1 and t2i_r1 of the row, or else of the same training in another table
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from jestlab.analysis import costs
from jestlab.analysis.published.cell import (
    DELTA,
    EXAMPLES,
    MEAN,
    PER_ITERATION,
    TOTAL,
    Accounting,
    Interval,
    PublishedCell,
    is_score,
    order,
    read_number,
)

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
        self._baselines: dict[tuple[str, str, str], list[Row]] = {}
        for row in rows:
            if row.first.baseline:
                self._baselines.setdefault(_group(row), []).append(row)
        self._trainings: dict[tuple[object, ...], list[Row]] = {}
        for row in rows:
            if row.training is not None:
                self._trainings.setdefault(row.training, []).append(row)

    def baseline(self, row: Row) -> Row | None:
        """Find the baseline of a row; None if there is none, or more than one."""
        baselines = self._baselines.get(_group(row), [])
        return baselines[0] if len(baselines) == 1 else None

    def same(self, row: Row) -> list[Row]:
        """List the row and those of the same training in other tables."""
        others = self._trainings.get(row.training, []) if row.training is not None else []
        return [row, *(twin for twin in others if twin.first.table != row.first.table)]

    def twins(self) -> Iterator[list[Row]]:
        """Rows of the same training in several tables. Two of them in one table are left out: what tells
        those apart is not said."""
        for rows in self._trainings.values():
            tables = [row.first.table for row in rows]
            alone = [row for row in rows if tables.count(row.first.table) == 1]
            if len(alone) > 1:
                yield alone


def _group(row: Row) -> tuple[str, str, str]:
    return row.first.source, row.first.table, row.first.group


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
    rule = _RULES.get(quantity)
    return rule(row, known) if rule is not None else _mean_of_directions(row, quantity, known)


def _per_iteration(row: Row, known: Known) -> Derived | None:
    baseline = known.baseline(row)
    if baseline is row:
        return _of_itself(1, "the baseline is measured by itself,")
    if baseline is None or not row.first.accounting or not baseline.first.accounting:
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


def _total(row: Row, known: Known) -> Derived | None:
    baseline = known.baseline(row)
    if baseline is row:
        return _of_itself(1, "the baseline is measured by itself,")
    if baseline is None or EXAMPLES not in row.cells or EXAMPLES not in baseline.cells:
        return None
    examples, theirs = row.cells[EXAMPLES], baseline.cells[EXAMPLES]
    if theirs.interval.low <= 0:
        return None
    if PER_ITERATION in row.cells:
        cell = row.cells[PER_ITERATION]
        each, interval, said = cell.interval.middle, cell.interval, cell.printed
    elif (derived := _per_iteration(row, known)) is not None:
        each, interval, said = derived.value, derived.interval, f"{float(100 * derived.value):.4g} %"
    else:
        return None
    return Derived(
        each * examples.interval.middle / theirs.interval.middle,
        interval * examples.interval / theirs.interval,
        f"{said} an iteration, for {examples.printed} examples instead of {theirs.printed}, come to",
    )


def _delta(row: Row, known: Known) -> Derived | None:
    baseline = known.baseline(row)
    if baseline is row:
        return _of_itself(0, "the baseline is measured by itself,")
    if baseline is None:
        return None
    shared = [score for score in row.scores if score in baseline.scores]
    if not shared:
        return None
    differences = [row.cells[score].interval - baseline.cells[score].interval for score in shared]
    which = f"the {len(shared)} scores" if len(shared) > 1 else "the one score"
    why = f"{which} that {baseline.name} has as well ({', '.join(shared)}) differ on average by"
    return _mean_of(differences, why)


def _mean(row: Row, _: Known) -> Derived | None:
    intervals = [row.cells[score].interval for score in row.scores]
    return _mean_of(intervals, f"the mean of its {len(intervals)} scores is") if intervals else None


_RULES: dict[str, Callable[[Row, Known], Derived | None]] = {
    PER_ITERATION: _per_iteration,
    TOTAL: _total,
    DELTA: _delta,
    MEAN: _mean,
}


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
    low = sum((interval.low for interval in intervals), Fraction()) / len(intervals)
    high = sum((interval.high for interval in intervals), Fraction()) / len(intervals)
    return Derived((low + high) / 2, Interval(low, high), why)


def _of_itself(value: int, why: str) -> Derived:
    return Derived(Fraction(value), Interval.exactly(value), why)
