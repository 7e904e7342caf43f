"""The shape of a table: which rows and columns to show, their order and digits, and the words around them.

Specs and commands have the same options. They import this module, so only functions import tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

if TYPE_CHECKING:
    from .frames import Frames
    from .tables.core import Column, Table

_MAX_DIGITS = 12

Width = Literal["auto", "column", "text"]
"""Width in LaTeX: one column of the paper, the whole text, or (auto) one column if the table fits it."""

Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: [given] if isinstance(given, str | int) else given)
]
"""Several names, or one by itself; none for the default."""


class Shape(BaseModel):
    """What to show of a table, and how; other options of the table are ignored.

    Rows can be named by runs, for all points of a run. Comparisons with the baseline remain even if it isn't
    shown. Columns can also be named by the groups of their headings.
    """

    model_config = ConfigDict(frozen=True)

    columns: Names = Field(
        (), description="Columns to show, in order: keys, headings, or scores, costs, factors."
    )
    rows: Names = Field((), description="Rows to show, in order: runs, labels, or names of rows.")
    digits: Annotated[int | None, Field(strict=True, ge=0, le=_MAX_DIGITS)] = Field(
        None, description="Decimal places of scores."
    )
    sort: str = Field("", description="Column to sort rows by; -COLUMN sorts in descending order.")
    caption: str | None = Field(None, description="Caption; default: the table's own.")
    label: str = Field("", description="LaTeX label; default: tab:NAME.")
    notes: Annotated[bool, Field(strict=True)] = Field(
        True, description="Show the notes; default: not on a terminal."
    )
    width: Width = Field(
        "auto", description="Width in LaTeX: auto, a column of the paper, or the whole text."
    )

    def named(self, frames: Frames) -> list[str]:
        """Return the rows that are names of runs."""
        return [name for name in _split(self.rows, frames.names.known) if frames.names.meant(name)]

    def of_results(self, frames: Frames, baseline: str | None) -> Frames:
        """Set the digits, and keep only the shown runs and the baseline, so that notes are about these."""
        if self.digits is not None:
            frames = replace(frames, declared=replace(frames.declared, digits=self.digits))
        names = self.named(frames)
        return frames.only([*names, frames.baseline(baseline)]) if names else frames

    def applied(self, table: Table, own: Sequence[Frames] = ()) -> Table:
        """Return a table with this shape. The digits are already set, by `of_results`.

        Args:
            table: A table with all rows and columns.
            own: Results of the experiments in the table, whose runs may be named.

        Raises:
            ValueError: A row or column is unknown.
        """
        table = _sorted(table, self.sort) if self.sort else table
        table = _with_rows(table, self.rows, own) if self.rows else table
        table = _with_columns(table, self.columns) if self.columns else table
        if not self.notes:
            columns = tuple(replace(column, notes=()) for column in table.columns)
            table = replace(table, columns=columns, own_notes=())
        caption = table.caption if self.caption is None else self.caption
        return replace(table, caption=caption, label=self.label, width=self.width)


def _split(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Split names at commas, except known names, which may contain commas."""
    whole = set(known)
    parts = (part for name in names for part in ([name] if name in whole else name.split(",")))
    return [part.strip() for part in parts if part.strip()]


def _sorted(table: Table, by: str) -> Table:
    """Sort rows by the numbers of a column, or by its texts if it has no numbers; missing values are last."""
    from .tables.core import records

    column = table.column_named(by.removeprefix("-"))
    frame = table.frame
    values = next((frame[name] for name in (column.key, f"{column.key}_mean") if name in frame), frame["row"])
    if values.dtype.kind not in "fiub":
        values = frame["row"].map(dict(zip(table.rows, map(column.show, records(frame)), strict=True)))
    order = values.sort_values(ascending=not by.startswith("-"), kind="stable", na_position="last").index
    return replace(table, frame=frame.loc[order].reset_index(drop=True))


def _with_rows(table: Table, names: Iterable[str], own: Sequence[Frames]) -> Table:
    runs = [name for frames in own for name in frames.names.known]
    chosen: list[str] = []
    for name in _split(names, [*table.rows, *table.shown.values(), *runs]):
        labels = {label for frames in own for label in frames.names.meant(name)}
        run_rows = set(table.rows) & labels
        if table.parts is not None:
            run_rows |= set(table.parts.loc[table.parts["label"].isin(labels), "row"])
        rows = {name} if name in table.rows else run_rows or {table.row_named(name)}
        chosen += [row for row in table.rows if row in rows and row not in chosen]
    return replace(table, frame=table.frame.set_index("row", drop=False).loc[chosen].reset_index(drop=True))


def _with_columns(table: Table, names: Iterable[str]) -> Table:
    from .tables.core import ESSENTIAL

    first, *others = (*table.columns, *table.hidden)
    columns = [first, *(column for column in others if column.importance >= ESSENTIAL)]
    aliases = [alias for column in others for alias in (column.key, column.header, column.group)]
    for name in _split(names, aliases):
        columns += [column for column in _columns(table, name) if column not in columns]
    hidden = tuple(column for column in others if column not in columns)
    kept = tuple(replace(column, importance=ESSENTIAL) for column in columns)
    return replace(table, columns=kept, hidden=hidden)


def _columns(table: Table, name: str) -> list[Column]:
    """Find the columns with this key, family, group, or heading."""
    for attribute in ("key", "family", "group"):
        every = (*table.columns, *table.hidden)
        if columns := [c for c in every if getattr(c, attribute).casefold() == name.casefold()]:
            return columns
    return [table.column_named(name)]
