"""Columns, rows and cells of a table as people read them, before they have a format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

MISSING = "—"
"""Shown where there is no value."""

Record = Mapping[str, Any]
"""One row of the frame, by column."""


@dataclass(frozen=True)
class Column:
    """How a column is shown.

    Attributes:
        key: What it is called where it is asked for, and in `Table.parts`.
        header: Its heading.
        show: The text of a row's cell.
        rank: The figure by which the best row of a section is found and set in bold, as rounded as it is
            shown, so that what looks equal is bold together; NaN stays out. None: nothing is bold.
        align: Side to which the cells are aligned.
        group: Heading over neighbouring columns of the same group; empty for none.
        shade: How far above (to 1) or below (to −1) what it is compared with a cell is coloured.
        mark: Signs that send the reader to a note, such as "†".
        formula: How its numbers come about, in a sentence.
        inputs: Columns of `Table.parts` that a run's number was made from.
        compares: Whether the same inputs of the run that it is compared with went into it, too.
    """

    key: str
    header: str
    show: Callable[[Record], str]
    rank: Callable[[Record], float] | None = None
    align: Literal["left", "right", "center"] = "right"
    group: str = ""
    shade: Callable[[Record], float] | None = None
    mark: Callable[[Record], str] | None = None
    formula: str = ""
    inputs: tuple[str, ...] = ()
    compares: bool = False


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: As people read it.
        bold: Whether it is the best of its column.
        shade: −1…1, 0 for no colour.
        mark: Signs behind the text that a note explains.
    """

    text: str
    bold: bool = False
    shade: float = 0.0
    mark: str = ""


@dataclass(frozen=True)
class Line:
    """One row of a table, ready to be written.

    Attributes:
        key: The row's name.
        cells: One a column.
        apart: Whether it is set off and does not compete.
        ours: Whether it is shaded as the method that the table is about.
    """

    key: str
    cells: tuple[Cell, ...]
    apart: bool = False
    ours: bool = False


@dataclass(frozen=True)
class Section:
    """A section of rows that are compared with each other.

    Attributes:
        title: Heading; empty for none.
        lines: Its rows, those that stand apart first.
    """

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Printed:
    """A whole table as people read it, ready to be written in a format.

    Attributes:
        name: Short, for labels.
        caption: What the numbers are.
        columns: What is shown.
        sections: The rows.
        notes: What a reader must know besides.
        opens: Whether it is known what its cells were made from.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]
    opens: bool
