"""Which printed numbers cannot be right: every derived cell, calculated again from the printed cells.

A printed number stands for all that rounds to it, so calculating with intervals gives all that could be
meant, and rounding their ends all that could be printed. A cell that is none of that is a finding: with the
cells that it follows from, it cannot be right, whichever of them is wrong. Nothing is ever corrected.

What follows from what is in `derivation`. Cells that do not follow from others are compared with the same
cell in other tables: of the same method, variant, data and examples, from the same source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jestlab.analysis.published.cell import (
    PER_ITERATION,
    CellKey,
    PublishedCell,
    is_score,
    order,
    read_number,
    scale,
    show,
)
from jestlab.analysis.published.derivation import Derived, Known, Row, derive, rows_of
from jestlab.analysis.published.files import cells_of

if TYPE_CHECKING:
    import pandas as pd


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


def findings(cells: pd.DataFrame | Sequence[PublishedCell]) -> list[Finding]:
    """Find the cells that cannot be right.

    Args:
        cells: As `published.read` gives them, or as objects; of any sources and tables.

    Returns:
        In the order of the cells, differences between tables last; empty where everything may be right.
    """
    return [finding for finding in checks(cells) if not finding.confirmed]


def checks(cells: pd.DataFrame | Sequence[PublishedCell]) -> list[Finding]:
    """Recalculate every derived cell, and compare equal cells between tables.

    Args:
        cells: As of `findings`.
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
