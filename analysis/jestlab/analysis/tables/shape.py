"""What is shown of a table: rows and columns, their order, digits, and the words around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ..units import nearest
from .core import ESSENTIAL, Column, Table, records
from .latex import parse_width

if TYPE_CHECKING:
    from ..frames import Frames

FAMILIES = {
    "scores": "metrics and score",
    "costs": "examples, FLOPs, time",
    "factors": "by how much less a run needs of them",
}
"""Name → the columns that it stands for."""

_OF_SCORES = ("scores", "differences")
_MOST_DIGITS = 12


@dataclass(frozen=True)
class Shape:
    """What is shown of a table.

    Attributes:
        columns: Keys or headings of columns, or names of `FAMILIES` or of groups, in the order in which they
            are shown, behind the names of the rows; empty for all.
        rows: Names of rows, or of runs, which stand for all their points, in the order in which they are
            shown; empty for all. What is compared with a baseline is so even where that is left out.
        digits: Behind the decimal point, of all scores and their differences, or by column; None for as many
            as a metric has.
        sort: Key of the column that rows are sorted by within their section, "-" before it for descending.
        caption: Instead of the table's own; None for that.
        label: LaTeX's label; empty for one made of the table's name.
        notes: Whether notes are shown.
        width: How wide the table may be in LaTeX: "auto", "column", "text", or a length.

    Raises:
        ValueError: Digits or width are not valid.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    digits: int | Mapping[str, int] | None = None
    sort: str = ""
    caption: str | None = None
    label: str = ""
    notes: bool = True
    width: str = "auto"

    def __post_init__(self) -> None:
        parse_width(self.width)
        numbers = self.digits.values() if isinstance(self.digits, Mapping) else [self.digits or 0]
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST_DIGITS:
                raise ValueError(f"digits must be a whole number from 0 to {_MOST_DIGITS}, not {number!r}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Shape:
        """Take it from the options of a report, which may have others as well."""
        known = {each.name for each in fields(cls)}
        given = {key: value for key, value in options.items() if key in known and value is not None}
        return cls(**given | {key: tuple(given[key]) for key in ("columns", "rows") if key in given})

    def narrowed(self, frames: Frames, baseline: str | None) -> Frames:
        """Keep the runs of an experiment that are shown, and the baseline, so that nothing is said of others.

        Args:
            frames: The experiment.
            baseline: Label or run that is compared with; None for the study's first.
        """
        known = frames.names
        named = [name for name in _listed(self.rows, known.known) if known.meant(name)]
        return frames.only([*named, frames.baseline(baseline)]) if named else frames

    def applied(self, table: Table, own: Iterable[Frames] = ()) -> Table:
        """Return a table as it is shown.

        Args:
            table: With all its rows and columns.
            own: Experiments that its rows come from, whose runs may be named.

        Raises:
            ValueError: There is no such row or column.
        """
        table = _with_digits(table, self.digits)
        if self.sort:
            table = _sorted(table, self.sort)
        if self.rows:
            table = _with_rows(table, self.rows, list(own))
        if self.columns:
            table = _with_columns(table, self.columns)
        return replace(
            table,
            caption=table.caption if self.caption is None else self.caption,
            label=self.label,
            notes=table.notes if self.notes else (),
            width=self.width,
            chosen=bool(self.columns),
        )


def _listed(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """Split names that are joined by commas, unless there is one that has a comma itself."""
    whole = set(known)
    return [
        part.strip()
        for name in names
        for part in ([name] if name in whole or "," not in name else name.split(","))
        if part.strip()
    ]


def _meant(table: Table, name: str) -> list[Column]:
    """The columns that a name stands for."""
    for members in (
        [column for column in table.columns if column.key == name],
        [column for column in table.columns if column.family == name],
        [column for column in table.columns if column.group and column.group.casefold() == name.casefold()],
    ):
        if members:
            return members
    if name in FAMILIES:
        raise ValueError(f"table {table.name!r} has no {name} ({FAMILIES[name]})")
    return [table.column_named(name)]


def _with_columns(table: Table, names: Sequence[str]) -> Table:
    first, *others = table.columns
    chosen = {first.key: first}
    chosen |= {column.key: column for column in others if column.importance >= ESSENTIAL}
    known = [alias for c in table.columns for alias in (c.key, c.header, c.group)]
    for name in _listed(names, known):
        chosen |= {column.key: column for column in _meant(table, name) if column.key not in chosen}
    columns = tuple(chosen.values())
    shown = {name for column in columns for name in column.data}
    gone = {name for column in table.columns for name in column.data} - shown
    raw = [name for name in table.frame.columns if name not in gone]
    return replace(table, columns=columns, raw=raw, notes=table.notes_on(columns))


def _with_rows(table: Table, names: Sequence[str], own: Sequence[Frames]) -> Table:
    known = [str(row) for row in table.frame["row"]]
    runs = [name for frames in own for name in frames.names.known]
    places: dict[int, None] = {}
    for name in _listed(names, [*known, *table.shown.values(), *runs]):
        rows = {name} if name in known else _rows_of_run(table, name, own)
        if not rows:
            rows = {_row_named(table, name, runs)}
        places |= dict.fromkeys(place for place, row in enumerate(known) if row in rows)
    return replace(table, frame=table.frame.iloc[list(places)].reset_index(drop=True))


def _rows_of_run(table: Table, name: str, own: Sequence[Frames]) -> set[str]:
    """Rows of the points of a run, by its name or by what is shown for it."""
    found: set[str] = set()
    for frames in own:
        labels = set(frames.names.meant(name))
        found |= labels.intersection(map(str, table.frame["row"])) if len(own) == 1 else set()
        if table.parts is not None:
            of_run = table.parts["label"].isin(labels) & (table.parts["experiment"] == frames.experiment)
            found |= set(map(str, table.parts.loc[of_run, "row"]))
    return found


def _row_named(table: Table, name: str, runs: Sequence[str]) -> str:
    try:
        return table.row_named(name)
    except ValueError as error:
        if " has no row " not in str(error):
            raise
        known = [*map(str, table.frame["row"]), *table.shown.values(), *runs]
        raise ValueError(f"table {table.name!r} has no row {name!r}: {nearest(name, known)}") from None


def _with_digits(table: Table, digits: int | Mapping[str, int] | None) -> Table:
    if digits is None:
        return table
    wanted: dict[str, int] = {}
    if isinstance(digits, Mapping):
        for name, number in digits.items():
            for column in _meant(table, name):
                if not column.takes_digits and column.family not in FAMILIES:
                    raise ValueError(f"column {column.key!r} of table {table.name!r} has no digits to choose")
                wanted[column.key] = number
    else:
        wanted = {column.key: digits for column in table.columns if column.family in _OF_SCORES}
    columns = tuple(
        replace(column, digits=wanted[column.key]) if column.takes_digits and column.key in wanted else column
        for column in table.columns
    )
    return replace(table, columns=columns)


def _sorted(table: Table, by: str) -> Table:
    """Sort the rows by the numbers of a column, those without one last; texts as people read them."""
    column = table.column_named(by.removeprefix("-"))
    name = next((name for name in column.data if name in table.frame), None)
    values = None if name is None else table.frame[name]
    if values is None or values.dtype.kind not in "fiub":
        values = table.frame["row"].map(dict(zip(table.frame["row"], map(column.text, records(table.frame)),
                                                 strict=True)))  # fmt: skip
    order = values.sort_values(ascending=not by.startswith("-"), kind="stable", na_position="last").index
    return replace(table, frame=table.frame.loc[order].reset_index(drop=True))
