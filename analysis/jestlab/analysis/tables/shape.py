"""The shape of a table: which rows and columns to show, their order and digits, and the words around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from .core import ESSENTIAL, Column, Table, Width, records

if TYPE_CHECKING:
    from ..frames import Frames


@dataclass(frozen=True)
class Shape:
    """What to show of a table, and how.

    Attributes:
        columns: Columns to show after the rows' names, in this order: keys, headings, groups of headings, or
            families (scores, costs, factors); empty for all.
        rows: Rows to show, in this order: names of rows, or of runs for all points of a run; empty for all.
            Comparisons with the baseline remain even if it isn't shown.
        digits: Number of decimals of scores and differences; None for the usual number.
        sort: Column to sort the rows of each section by; "-" before it for descending order.
        caption: Caption; None for the table's own caption.
        label: LaTeX label; empty for a label made from the table's name.
        notes: Whether to show notes.
        width: Width in LaTeX.
    """

    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    digits: int | None = None
    sort: str = ""
    caption: str | None = None
    label: str = ""
    notes: bool = True
    width: Width = "auto"

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Shape:
        """Create a shape from the options of a table; other options are ignored."""
        names = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in options.items() if key in names and value is not None})

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
