"""A table of results: a frame of raw numbers, and columns that write them as text.

CSV and JSON have the raw numbers. Text, Markdown, LaTeX, and HTML have the cells (`Table.sections`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from ..errors import RequestError
from ..files import Format, to_csv
from ..intervals import direction, paired
from ..provenance.warnings import MIXED, Origins
from ..shape import Width
from ..units import MISSING as MISSING
from ..units import nearest, some
from . import formats, latex

Record = Mapping[str, Any]
"""One row of the frame, by column."""

ONE_SEED = "†"
"""Mark of numbers from one seed."""

BEST = "the best, if its paired interval against the runner-up excludes 0"
"""Which cells are bold."""

ESSENTIAL = 100
"""Importance of columns that are always shown."""


@dataclass(frozen=True)
class Column:
    """How a column is shown.

    Attributes:
        key: The name in options and in `Table.parts`.
        header: The heading.
        show: Returns the text of a row's cell.
        rank: Returns the number that ranks a row, rounded as `show` rounds it, or NaN for no rank. The best
            cell of a section is bold: see `Table.best`. If None, rows aren't ranked by this column.
        group: Heading over neighboring columns of the same group; empty for none.
        mark: Returns signs that refer to a note; None for no signs.
        seeds: Column of the frame with the number of seeds behind a cell; one seed is marked.
        formula: How the numbers of the column are computed, in a sentence.
        inputs: Columns of `Table.parts` from which a run's number is computed.
        compares: Whether the number also depends on the same inputs of the baseline.
        importance: If a table is too wide, the least important column is dropped first, and among equally
            important ones the last. `ESSENTIAL` columns stay; those of importance 0 are shown only if named.
        family: The kind of column, by which options can name it: "scores", "costs", or "factors".
        notes: Notes of the table that are about this column, each with its subject before a colon.
    """

    key: str
    header: str
    show: Callable[[Record], str]
    rank: Callable[[Record], float] | None = None
    align: Literal["left", "right"] = "right"
    group: str = ""
    mark: Callable[[Record], str] | None = None
    seeds: str = ""
    formula: str = ""
    inputs: tuple[str, ...] = ()
    compares: bool = False
    importance: int = 50
    family: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_optional(self) -> bool:
        """Whether the column may be dropped if the table is too wide."""
        return self.importance < ESSENTIAL

    @property
    def title(self) -> str:
        """The heading of the group, if any, and that of the column."""
        return f"{self.group} {self.header}".strip()


@dataclass(frozen=True)
class Cell:
    """The text of a cell, struck through if it is wrong, and the signs after it, which notes explain."""

    text: str
    bold: bool = False
    mark: str = ""
    struck: bool = False


@dataclass(frozen=True)
class Line:
    """The cells of the row with the name `key`; it may be set apart from competing rows."""

    key: str
    cells: tuple[Cell, ...]
    apart: bool = False


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of results.

    Attributes:
        name: Short name, for file names and labels.
        frame: Raw numbers, one line for each row. Column `row` has the row's unique name. The bool column
            `apart` marks rows that do not compete. The text column `section` is optional: the heading of the
            row's section, if there are several.
        columns: The columns that are shown.
        own_notes: Notes that aren't about a column: conventions, and which runs are missing and why.
        parts: The runs behind the numbers, one line for each row and run: `row`, experiment, label, seed,
            fingerprint, and the numbers of the run by the columns' keys. None without runs.
        published: Published cells: `row`, `column`, and the columns of `v_published`. None without any.
        baselines: Row → the row that it is compared with.
        struck: Row → why the results behind it are wrong.
        mixed: Rows whose numbers were made with different code, data, or packages.
        shown: Row → its displayed name, if that differs from the row's own.
        label: Label in LaTeX; by default made from the name.
        hidden: Columns that are not shown. CSV and JSON leave out their numbers, unless importance is 0.
        whole: The table with all rows, if this one is limited: the best of all rows are bold.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    columns: tuple[Column, ...]
    own_notes: tuple[str, ...] = ()
    parts: pd.DataFrame | None = None
    published: pd.DataFrame | None = None
    baselines: Mapping[str, str] = field(default_factory=dict)
    struck: Mapping[str, str] = field(default_factory=dict)
    mixed: frozenset[str] = frozenset()
    shown: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    width: Width = "auto"
    hidden: tuple[Column, ...] = ()
    whole: Table | None = None

    @property
    def opens(self) -> bool:
        """Whether the provenance of the cells is known, so that a page can show it when they are clicked."""
        return self.parts is not None or self.published is not None

    @property
    def experiments(self) -> list[str]:
        """Names of the experiments that the cells come from."""
        return [] if self.parts is None else [str(name) for name in self.parts["experiment"].unique()]

    @property
    def rows(self) -> list[str]:
        """Names of the rows."""
        return [str(row) for row in self.frame["row"]]

    def marked(self, origins: Origins) -> Table:
        """Mark rows made with different code or data, strike through retracted ones, and add notes."""
        if self.parts is None:
            return self
        runs = self.parts.groupby("row", sort=False)["fingerprint"].agg(list)
        struck, mixed, notes = origins.marks(dict(zip(map(str, runs.index), runs, strict=True)))
        counts = sorted({column.seeds for column in self.columns}.intersection(self.frame.columns))
        if self.frame[counts].eq(1).any(axis=None):
            notes = (f"{ONE_SEED} one seed only: its spread is unknown", *notes)
        return replace(self, struck=struck, mixed=mixed, own_notes=(*self.own_notes, *notes))

    def row_named(self, name: str) -> str:
        """Find a row by its name or displayed name, ignoring case, or by a unique prefix of one.

        Raises:
            ValueError: No row, or more than one, has such a name.
        """
        known = {self.shown[row]: row for row in self.rows if row in self.shown}
        return self._named(name, known | {row: row for row in self.rows}, "row")

    def column_named(self, name: str) -> Column:
        """Find a column by its key or heading, in the same way as `row_named`."""
        by_key = {column.key: column for column in (*self.columns, *self.hidden)}
        known = {column.title: key for key, column in by_key.items()}
        known |= {column.header: key for key, column in reversed(by_key.items())}  # the first of several
        return by_key[self._named(name, known | {key: key for key in by_key}, "column")]

    def _named(self, name: str, known: Mapping[str, str], kind: str) -> str:
        folded = {key.casefold(): value for key, value in known.items()}
        if exact := known.get(name) or folded.get(name.casefold()):
            return exact
        matches = {value for key, value in folded.items() if key.startswith(name.casefold())}
        if len(matches) == 1:
            return matches.pop()
        problem = f"no {kind} {name!r}: {nearest(name, known)}"
        if matches:
            problem = f"several {kind}s named {name!r}: choose one of {some(sorted(matches))}"
        raise RequestError(f"table {self.name!r} has {problem}")

    def cell(self, row: str, column: Column) -> Cell:
        """Return the cell of a row and a column, given the row's name."""
        (cell,) = next(line.cells for line in replace(self, columns=(column,)).lines if line.key == row)
        return cell

    def limited(self, most: int) -> Table:
        """Keep at most `most` rows: those with the best score, and the rows that they are compared with.

        In a table without scores, these are the first rows and the last one, which has totals.
        """
        if len(self.frame) <= most:
            return self
        rows = records(self.frame)
        order = [*rows[-1:], *rows]
        columns = (*self.columns, *self.hidden)
        if rank := next((column.rank for column in columns if column.key == "score"), None):
            first = {*self.baselines.values(), *(row["row"] for row in rows if row["apart"])}
            ranks = {row["row"]: rank(row) for row in rows}
            ranks |= {name: -math.inf for name, value in ranks.items() if math.isnan(value)}
            order = sorted(rows, key=lambda row: (row["row"] not in first, -ranks[row["row"]]))
        kept = [row["row"] for row in order[:most]]
        parts = None if self.parts is None else self.parts[self.parts["row"].isin(kept)]
        frame = self.frame[self.frame["row"].isin(kept)]
        return replace(self, frame=frame, parts=parts, whole=self.whole or self)

    # ---- cells

    @property
    def lines(self) -> list[Line]:
        """The rows of all sections."""
        return [line for _, lines in self.sections for line in lines]

    @cached_property
    def sections(self) -> list[tuple[str, list[Line]]]:
        """(title, lines) of each section; lines set apart come first. A single section has an empty title."""
        by_title: dict[str, list[Record]] = {}
        for row in records((self.whole or self).frame):
            by_title.setdefault(str(row.get("section", "")), []).append(row)
        several, shown = len(by_title) > 1, {*self.rows}
        sections = [(title * several, self._lines(rows, shown)) for title, rows in by_title.items()]
        return [section for section in sections if section[1]]

    def _lines(self, rows: list[Record], shown: set[str]) -> list[Line]:
        competing = [row for row in rows if not row["apart"] and row["row"] not in self.struck]
        rows = [row for row in rows if row["row"] in shown]
        cells = [self._cells(column, rows, competing) for column in self.columns]
        lines = [
            Line(str(row["row"]), tuple(row_cells), bool(row["apart"]))
            for row, *row_cells in zip(rows, *cells, strict=True)
        ]
        return sorted(lines, key=lambda line: not line.apart)

    def _cells(self, column: Column, rows: list[Record], competing: list[Record]) -> list[Cell]:
        """Return the cells of a column."""
        best = (self.whole or self).best(column, competing)
        cells = []
        for row in rows:
            name, text = str(row["row"]), column.show(row)
            sources = {name, self.baselines.get(name, name)} if column.compares else {name}
            # The number of seeds has a formula too, but isn't computed from results.
            is_result = bool(column.formula) and column.key != "seeds" and text not in ("", MISSING)
            struck = is_result and not sources.isdisjoint(self.struck)
            mark = column.mark(row) if column.mark else ""
            mark += ONE_SEED if text != MISSING and row.get(column.seeds) == 1 else ""
            mark += MIXED if is_result and not sources.isdisjoint(self.mixed) else ""
            cells.append(Cell(text, name in best and not struck, mark, struck))
        return cells

    def best(self, column: Column, competing: Sequence[Record]) -> set[str]:
        """Name the rows that are the best by a column; none unless several compete.

        If the numbers of the runs are known, the best row must also differ from the runner-up: the confidence
        interval of their difference with the same seeds excludes 0.
        """
        ranks = {str(row["row"]): column.rank(row) for row in competing} if column.rank else {}
        order = sorted((row for row in ranks if math.isfinite(ranks[row])), key=lambda row: -ranks[row])
        if len(order) < 2:
            return set()
        parts = self.parts
        if parts is None or column.key not in parts or not parts["row"].isin(order).any():
            return {row for row in order if ranks[row] == ranks[order[0]]}
        ours, theirs = (
            parts.loc[parts["row"] == row].set_index("seed")[column.key].astype(float) for row in order[:2]
        )
        gap = paired(ours, theirs)
        better = ranks[order[0]] > ranks[order[1]]  # not only before rounding
        is_clear = better and direction(gap.low, gap.high) * float(ours.mean() - theirs.mean()) > 0
        return {order[0]} if is_clear else set()

    # ---- formats

    def render(self, format: Format) -> str:
        """Write the table in a format; the text ends with a line feed."""
        write: Callable[[], str] = getattr(self, {"md": "markdown"}.get(format, format))
        return write()

    def markdown(self) -> str:
        """Write a table in GitHub's Markdown with aligned columns; names of rows set apart are in italics."""
        return formats.markdown(self)

    __str__ = __repr__ = markdown

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto" tabindex="0">{self.html()}</div>'

    def latex(self) -> str:
        """Write a float with booktabs rules for a paper; it fits a column or the page."""
        return latex.latex(self)

    def html(self, page: formats.OnPage | None = None) -> str:
        """Write an HTML table with a style sheet, or as part of a page, which adds style, caption, and notes.

        On a page, each cell with provenance is a button with its row and column in `data-row` and
        `data-column`.
        """
        return formats.html(self, page)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of columns, those with the same text as one ("fewer examples, FLOPs: …"), and others."""
        subjects: dict[str, list[str]] = {}
        for subject, _, text in (note.partition(": ") for column in self.columns for note in column.notes):
            same = subjects.setdefault(text, [])
            name = subject.removeprefix(f"{same[0].split()[0]} ") if same else subject
            same += [] if name in same else [name]
        return (*(f"{', '.join(same)}: {text}" for text, same in subjects.items()), *self.own_notes)

    @property
    def constant(self) -> set[str]:
        """Keys of columns whose competing rows all show the same text, or nothing; none for a single row."""
        rows = records(self.frame)
        rows = several if len(several := [row for row in rows if not row["apart"]]) > 1 else rows
        texts = ({column.show(row) for row in rows} for column in self.columns)
        same = (len(found - {""}) < 2 and (len(rows) > 1 or found <= {MISSING, ""}) for found in texts)
        return {column.key for column, is_same in zip(self.columns, same, strict=True) if is_same}

    def csv(self) -> str:
        """Write the raw numbers, one line for each row; missing ones are empty."""
        return to_csv(self._raw())

    def json(self) -> str:
        """Write the raw numbers with name, caption, and notes; missing ones are null."""
        rows = [{key: plain(value) for key, value in row.items()} for row in records(self._raw())]
        content = {
            "name": self.name, "caption": self.caption, "notes": self.notes, "retracted": dict(self.struck),
            "mixed": sorted(self.mixed), "rows": rows,
        }  # fmt: skip
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def _raw(self) -> pd.DataFrame:
        """Return the frame without the numbers of hidden columns, and with the displayed names of rows."""
        hidden, shown = (
            {
                name
                for name in self.frame.columns
                for column in columns
                if column.importance and (name == column.key or name.startswith(f"{column.key}_"))
            }
            for columns in (self.hidden, self.columns)
        )
        raw = self.frame.drop(columns=["row", *(hidden - shown)])
        if not self.shown.keys().isdisjoint(self.rows):
            raw.insert(1, "shown", [self.shown.get(row, row) for row in self.rows])
        return raw


def records(frame: pd.DataFrame) -> list[Record]:
    """Return the rows of a frame."""
    names = [str(name) for name in frame.columns]
    # Arrow's strings are slow to read one by one. For numbers, `tolist` returns Python's types.
    columns = [
        column.to_numpy(object) if column.dtype == "str" else column.tolist() for _, column in frame.items()
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def plain(value: Any) -> Any:
    """Convert a value of a frame for JSON: NumPy scalars to Python's, NaN and infinities to None."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and value - value != 0 else value
