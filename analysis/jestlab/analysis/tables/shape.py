"""The shape of a table: which rows and columns to show, their order and digits, and the words around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from .core import ESSENTIAL, Column, Table, records
from .latex import Width

if TYPE_CHECKING:
    from ..frames import Frames

FAMILIES = {
    "scores": "metrics and score",
    "costs": "examples, FLOPs, time",
    "factors": "by how much less a run needs of them",
}
"""Name of several columns → description of them."""


@dataclass(frozen=True)
class Shape:
    """What to show of a table, and how.

    Attributes:
        columns: Columns to show after the names of the rows, in order: keys, headings, `FAMILIES`, or
            groups; empty for all.
        rows: Rows to show, in order: their names, or runs, for all their points; empty for all.
            Comparisons with the baseline remain even if it isn't shown.
        digits: Decimals of scores and differences; None for the usual ones.
        sort: Column to sort the rows of each section by; "-" before it for descending order.
        caption: Caption; None for the table's own.
        label: LaTeX label; empty for one made from the table's name.
        notes: Whether to show notes.
        width: Width in LaTeX.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    digits: int | None = None
    sort: str = ""
    caption: str | None = None
    label: str = ""
    notes: bool = True
    width: Width = "auto"

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Shape:
        """Take the shape from options of a table, which may contain others."""
        given = {key.name: options[key.name] for key in fields(cls) if options.get(key.name) is not None}
        return cls(**given | {key: tuple(given[key]) for key in ("columns", "rows") if key in given})

    def narrowed(self, frames: Frames, baseline: str | None) -> Frames:
        """Keep the runs that are shown, and the baseline, so that notes are about these only.

        Args:
            frames: Results of an experiment.
            baseline: Label or run to compare with; None for the study's.
        """
        names = [name for name in _split(self.rows, frames.names.known) if frames.names.meant(name)]
        return frames.only([*names, frames.baseline(baseline)]) if names else frames

    def applied(self, table: Table, own: Sequence[Frames] = ()) -> Table:
        """Return a table with this shape.

        Args:
            table: A table with all rows and columns.
            own: Results of the experiments in the table, whose runs may be named.

        Raises:
            ValueError: A row or column is unknown.
        """
        if self.digits is not None:
            columns = (replace(column, digits=self.digits) for column in table.columns)
            table = replace(table, columns=tuple(columns))
        table = _sorted(table, self.sort) if self.sort else table
        table = _with_rows(table, self.rows, own) if self.rows else table
        table = _with_columns(table, self.columns) if self.columns else table
        return replace(
            table,
            caption=table.caption if self.caption is None else self.caption,
            label=self.label,
            notes=table.notes if self.notes else (),
            width=self.width,
            chosen=bool(self.columns),
        )


def _split(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Split names joined by commas; a known name may contain a comma itself."""
    whole = set(known)
    parts = (part for name in names for part in ([name] if name in whole else name.split(",")))
    return [part.strip() for part in parts if part.strip()]


def _columns(table: Table, name: str) -> list[Column]:
    """Find the columns with a key, family, group, or heading."""
    for attribute in ("key", "family", "group"):
        if columns := [c for c in table.columns if getattr(c, attribute).casefold() == name.casefold()]:
            return columns
    if name in FAMILIES:
        raise RequestError(f"table {table.name!r} has no {name} ({FAMILIES[name]})")
    return [table.column_named(name)]


def _sorted(table: Table, by: str) -> Table:
    """Sort the rows by the numbers of a column, or by its texts if it has none; missing ones last."""
    column = table.column_named(by.removeprefix("-"))
    values = next((table.frame[name] for name in column.data if name in table.frame), table.frame["row"])
    if values.dtype.kind not in "fiub":
        texts = dict(zip(table.rows, map(column.text, records(table.frame)), strict=True))
        values = table.frame["row"].map(texts)
    order = values.sort_values(ascending=not by.startswith("-"), kind="stable", na_position="last").index
    return replace(table, frame=table.frame.loc[order].reset_index(drop=True))


def _with_rows(table: Table, names: Iterable[str], own: Sequence[Frames]) -> Table:
    runs = [name for frames in own for name in frames.names.known]
    chosen: dict[str, None] = {}
    for name in _split(names, [*table.rows, *table.shown.values(), *runs]):
        rows = {name} if name in table.rows else _rows_of_run(table, name, own)
        rows = rows or {table.row_named(name, runs)}
        chosen |= dict.fromkeys(row for row in table.rows if row in rows)
    frame = table.frame.set_index("row", drop=False).loc[list(chosen)]
    return replace(table, frame=frame.reset_index(drop=True))


def _rows_of_run(table: Table, name: str, own: Sequence[Frames]) -> set[str]:
    """Find the rows of a run, given its name or display name."""
    rows: set[str] = set()
    for frames in own:
        labels = set(frames.names.meant(name))
        rows |= labels.intersection(table.rows) if len(own) == 1 else set()
        if table.parts is not None:
            is_its = table.parts["label"].isin(labels) & (table.parts["experiment"] == frames.experiment)
            rows |= set(map(str, table.parts.loc[is_its, "row"]))
    return rows


def _with_columns(table: Table, names: Iterable[str]) -> Table:
    first, *others = table.columns
    chosen = {column.key: column for column in (first, *others) if column.importance >= ESSENTIAL}
    chosen = {first.key: first} | chosen
    aliases = [alias for column in others for alias in (column.key, column.header, column.group)]
    for name in _split(names, aliases):
        chosen |= {column.key: column for column in _columns(table, name) if column.key not in chosen}
    columns = tuple(chosen.values())
    data, notes = (
        {name for column in table.columns for name in of(column)}.difference(*map(of, columns))
        for of in (attrgetter("data"), attrgetter("notes"))
    )
    return replace(
        table,
        columns=columns,
        frame=table.frame.drop(columns=data.intersection(table.frame.columns)),
        notes=tuple(note for note in table.notes if note not in notes),
    )
