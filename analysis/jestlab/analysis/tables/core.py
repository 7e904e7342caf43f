"""A table of results: raw numbers, and the columns that say how they are shown.

The frame holds raw numbers and goes out as it is in CSV and JSON. The columns say how a row of it is shown to
people; Markdown, LaTeX and HTML share those texts (`Cell`) and differ in emphasis (`formats`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..provenance.soundness import MIXED, Soundness
from ..spreadsheets import to_csv
from ..units import MISSING as MISSING
from ..units import nearest
from . import formats, latex

if TYPE_CHECKING:
    import pandas as pd

Record = Mapping[str, Any]
"""One row of the frame, by column."""


ESSENTIAL = 100
"""Importance of columns without which a table says nothing, such as the names of its rows."""


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
        importance: What is kept longer where a table is too wide for a page or a terminal: the column of the
            least importance goes first, of several the last; `ESSENTIAL` ones stay.
        family: What columns of its kind are called together: "scores", "differences", "costs", "factors".
        data: Columns of the frame that hold its raw numbers, the one that rows are sorted by first.
        rounded: Makes the column with another number of digits; None where numbers have none to choose.
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
    importance: int = 50
    family: str = ""
    data: tuple[str, ...] = ()
    rounded: Callable[[int], Column] | None = None

    @property
    def made(self) -> bool:
        """Whether its numbers were made by runs; their count is not."""
        return bool(self.formula) and self.key != "seeds"


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: As people read it.
        bold: Whether it is the best of its column.
        shade: −1…1, 0 for no colour.
        mark: Signs behind the text that a note explains.
        struck: Whether it is struck through, since it rests on results that are wrong.
    """

    text: str
    bold: bool = False
    shade: float = 0.0
    mark: str = ""
    struck: bool = False


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


Format = Literal["md", "latex", "csv", "html", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of results, ready to be printed.

    Attributes:
        name: Short, for file names and labels.
        caption: What the numbers are.
        frame: Raw numbers, one row a line of the table: column `row` names it. Its bool column `apart` marks
            rows that do not compete: they are shown first in their section, set off, and are never the best.
            Optional: text column `section`, the rows' heading; bool column `ours`, rows to be shaded.
        columns: What is shown of it.
        notes: What a reader must know besides: conventions; runs that are missing, and why.
        parts: What the numbers of own runs were made from: a row a run, with `row`, experiment, label, seed,
            fingerprint, and by the columns' keys what the run contributes. None where no run is in it.
        published: What was printed elsewhere: a row a cell, with `row` and `column` beside the columns of
            `v_published`. None where nothing is.
        baselines: Row → the row that it is compared with.
        struck: Row → why the results that it rests on are wrong.
        mixed: Rows whose numbers mix code, versions or data.
        shown: Row → the name that is shown for it, where that differs.
        label: LaTeX's label; empty for one made of the name.
        width: How wide it may be in LaTeX; see `latex.parse_width`.
        chosen: Whether its columns were named by somebody: then none is left out.
        raw: Columns of the frame that CSV and JSON hold; None for all.
        explains: Note → keys of the columns that it is about, where it is about some alone.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    parts: pd.DataFrame | None = None
    published: pd.DataFrame | None = None
    baselines: Mapping[str, str] = field(default_factory=dict)
    struck: Mapping[str, str] = field(default_factory=dict)
    mixed: frozenset[str] = frozenset()
    shown: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    width: str = "auto"
    chosen: bool = False
    raw: Collection[str] | None = None
    explains: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def opens(self) -> bool:
        """Whether the origin of its cells is known."""
        return self.parts is not None or self.published is not None

    @property
    def experiments(self) -> list[str]:
        """Names of the experiments that its cells come from."""
        return [] if self.parts is None else [str(name) for name in self.parts["experiment"].unique()]

    def notes_on(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """Return the notes that a reader of some columns needs."""
        keys = {column.key for column in columns}
        about = {note: set(named) for note, named in self.explains.items()}
        return tuple(note for note in self.notes if note not in about or about[note] & keys)

    def marked(self, sound: Soundness) -> Table:
        """Mark rows whose numbers mix, strike through those that are retracted, and say why in notes."""
        if self.parts is None:
            return self
        runs: dict[str, list[str]] = {}
        for row, run in zip(self.parts["row"], self.parts["fingerprint"], strict=True):
            runs.setdefault(row, []).append(run)
        struck, mixed, notes = sound.marks(runs)
        return replace(self, struck=struck, mixed=mixed, notes=(*self.notes, *notes))

    def render(self, format: Format) -> str:
        """Write the table in a format; the text ends with a newline."""
        writers: dict[Format, Callable[[], str]] = {
            "md": self.markdown,
            "latex": self.latex,
            "csv": self.csv,
            "html": self.html,
            "json": self.json,
        }
        return writers[format]()

    def __str__(self) -> str:
        """Write it as Markdown, which also reads in a terminal."""
        return self.markdown()

    def __repr__(self) -> str:
        """Write it as Markdown, as `print` does."""
        return self.markdown()

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto" tabindex="0">{self.html()}</div>'

    def markdown(self) -> str:
        """Write a GitHub table whose columns also line up in a terminal, with rows set apart in italics."""
        return formats.markdown(self)

    def latex(self) -> str:
        """Write a float for a paper that fits a column or page: booktabs' rules, the best in bold."""
        return latex.latex(self)

    def html(self, opens: bool = False, most: int | None = None) -> str:
        """Write a table that stands on its own, with its style.

        Args:
            opens: Whether it stands in a page, which has a style, and says caption and notes, itself. There
                each cell that was made from something is a button with its row and column in `data-row` and
                `data-column`: the page shows from what.
            most: How many rows to write; None for all.
        """
        return formats.html(self, opens, most)

    def csv(self) -> str:
        """Write the raw numbers, one line for each row; missing ones as empty cells."""
        return to_csv(self._raw())

    def json(self) -> str:
        """Write the raw numbers with name, caption and notes; missing ones as null."""
        rows = [{key: plain(value) for key, value in row.items()} for row in records(self._raw())]
        content: dict[str, Any] = {"name": self.name, "caption": self.caption, "notes": list(self.notes)}
        content |= {"retracted": dict(self.struck)} if self.struck else {}
        content |= {"mixed": sorted(self.mixed)} if self.mixed else {}
        content["rows"] = rows
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def _raw(self) -> pd.DataFrame:
        """The frame as programs read it: with the names that are shown, where rows have such."""
        raw = self.frame.drop(columns="row")
        raw = raw if self.raw is None else raw[[name for name in raw.columns if name in self.raw]]
        if any(row in self.shown for row in self.frame["row"]):
            raw.insert(1, "shown", [self.shown.get(row, row) for row in self.frame["row"]])
        return raw

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The rows as they are shown, by section."""
        by_title: dict[str, list[Record]] = {}
        for row in records(self.frame):
            by_title.setdefault(str(row.get("section", "")), []).append(row)
        return tuple(Section(title, self._lines(rows)) for title, rows in by_title.items())

    @property
    def lines(self) -> list[Line]:
        """The rows as they are shown, of all sections."""
        return [line for section in self.sections for line in section.lines]

    def row_named(self, name: str) -> str:
        """Find the row that a user means by its name, or the one that is shown for it, in any case, or by a
        unique beginning.

        Raises:
            ValueError: No row, or several, have such a name.
        """
        rows = [str(row) for row in self.frame["row"]]
        known = {self.shown[row]: row for row in rows if row in self.shown} | {row: row for row in rows}
        return _named(name, known, f"table {self.name!r}", "row")

    def column_named(self, name: str) -> Column:
        """Find the column that a user means by its key or heading; see `row_named`."""
        by_name: dict[str, str] = {}
        for column in self.columns:
            for alias in (column.key, column.header, f"{column.group} {column.header}".strip()):
                by_name.setdefault(alias, column.key)
        key = _named(name, by_name, f"table {self.name!r}", "column")
        return next(column for column in self.columns if column.key == key)

    def cell(self, row: str, column: Column) -> Cell:
        """Return the cell of a row and column.

        Args:
            row: A row's own name.
            column: One of the columns.
        """
        at = self.columns.index(column)
        return next(line.cells[at] for line in self.lines if line.key == row)

    def _lines(self, rows: list[Record]) -> tuple[Line, ...]:
        """The rows of one section, the best of each column in bold, those that stand apart first."""
        best = [
            _best(column, [row for row in rows if row["row"] not in self.struck]) for column in self.columns
        ]

        def cell(row: Record, column: Column, top: float | None) -> Cell:
            name, text = str(row["row"]), column.show(row)
            behind = {name, self.baselines.get(name, name)} if column.compares else {name}
            rests = column.made and text not in ("", MISSING)
            struck = rests and not behind.isdisjoint(self.struck)
            competes = top is not None and not row["apart"] and not struck
            return Cell(
                text,
                bold=competes and column.rank is not None and column.rank(row) == top,
                shade=0.0 if column.shade is None else column.shade(row),
                mark=("" if column.mark is None else column.mark(row))
                + (MIXED if rests and not behind.isdisjoint(self.mixed) else ""),
                struck=struck,
            )

        lines = [
            Line(
                str(row["row"]),
                tuple(cell(row, column, top) for column, top in zip(self.columns, best, strict=True)),
                apart=bool(row["apart"]),
                ours=bool(row.get("ours", False)),
            )
            for row in rows
        ]
        return tuple(sorted(lines, key=lambda line: not line.apart))


def records(frame: pd.DataFrame) -> list[Record]:
    """Return the rows of a frame."""
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


def _best(column: Column, rows: Sequence[Record]) -> float | None:
    """Find the best figure of a column; None if fewer than two rows compete."""
    if column.rank is None:
        return None
    ranks = [rank for row in rows if not row["apart"] and (rank := column.rank(row)) == rank]
    return max(ranks) if len(ranks) > 1 and max(ranks) > -math.inf else None


def plain(value: Any) -> Any:
    """Convert a value of a frame for JSON: NumPy scalars to Python's, NaN and infinities to None."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and value - value != 0 else value


def _named(name: str, known: Mapping[str, str], whose: str, what: str) -> str:
    """Find the value of the only key that a user may mean by `name`."""
    if name in known:
        return known[name]
    folded = name.casefold()
    for matches in (
        {value for key, value in known.items() if key.casefold() == folded},
        {value for key, value in known.items() if key.casefold().startswith(folded)},
    ):
        if len(matches) == 1:
            return matches.pop()
        if matches:
            shown = ", ".join(repr(match) for match in sorted(matches)[:8])
            raise ValueError(f"{whose} has several {what}s named {name!r}: choose one of {shown}")
    raise ValueError(f"{whose} has no {what} {name!r}: {nearest(name, known)}")
