"""Text and tables for people: styles, tables that fit the terminal, and output without control characters.

Output consists of blocks: strings, rich `Text`, and `TextTable`. In a pipe or a file, blocks are written
completely and without styles. On a terminal, long lines are wrapped, and tables that are too wide are shown
without their least important columns.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from textwrap import shorten
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from jestlab.platform.words import counted, few, on_one_line, printable

if TYPE_CHECKING:
    from jestlab.analysis.tables.core import Cell, Table

STATE_STYLES: Mapping[str, str] = {
    "COMPLETED": "green",
    "RUNNING": "bright_blue",  # dark blue is hard to read on black
    "FAILED": "red",
    "CANCELLED": "magenta",
    "PREEMPTED": "yellow",
    "PENDING": "dim",
    "BLOCKED": "dim",
    "SKIPPED": "dim",
}
"""State of a run → style of its text."""

VERDICT_STYLES = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not run": "dim"}
"""Verdict of a claim → style of its text."""

ESSENTIAL = 100
"""Importance of columns that are never dropped."""

USUAL = 50
"""Importance of most other columns."""

_GAP = "  "
_READABLE = 24  # before text columns are narrower than this, columns are dropped
_SHORT_NOTE = 150  # characters of a note that explains a sign


# ---- terminals


def width(stream: IO[str] | None = None) -> int | None:
    """Return the maximum length of a line: COLUMNS, else the terminal's width; None for pipes and files.

    Args:
        stream: Output stream; by default, standard output.
    """
    given, stream = os.environ.get("COLUMNS", ""), stream or sys.stdout
    if re.fullmatch("[1-9][0-9]{0,8}", given):
        return int(given)
    with suppress(OSError, ValueError):
        return (os.get_terminal_size(stream.fileno()).columns or 80) if stream.isatty() else None
    return 80


def has_styles(stream: IO[str] | None = None) -> bool:
    """Return whether to write styles: only to terminals, unless NO_COLOR or FORCE_COLOR is set.

    Args:
        stream: Output stream; by default, standard output.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def without_controls(text: str) -> str:
    """Replace control characters except line feeds and tabs, and marks of text direction, by spaces.

    Names and messages may come from untrusted files, and control characters can change a terminal's title,
    its screen, or the clipboard.
    """
    return _CONTROLS.sub(" ", text)


def escape_controls(text: str) -> str:
    """Replace control characters in a JSON text by escape sequences."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


# ---- text


def styled(text: object, style: str = "") -> Text:
    """Return a text in a style, such as "bold green"."""
    return Text().append(without_controls(str(text)), style or None)


def in_state(text: object, state: str | None = None) -> Text:
    """Return a text in the color of a run's state; by default, the text itself is the state."""
    return styled(text, STATE_STYLES.get(state or str(text), ""))


def state_counts(counts: Mapping[str, int]) -> Text:
    """Return the numbers of runs by state, in the states' colors: "2 FAILED, 13 COMPLETED"."""
    known = ((count, state) for state in STATE_STYLES if (count := counts.get(state)))
    return Text(", ").join(in_state(f"{count} {state}", state) for count, state in known)


@dataclass(frozen=True)
class TextTable:
    """A table for people.

    Attributes:
        headers: Header of each column; if all are empty, no header line is printed.
        rows: Cells of each row, one per column. Line breaks in cells are replaced by spaces.
        right: Indices of right-aligned columns, whose cells aren't wrapped if other columns can be narrower.
        importance: Header → importance of its column; by default `ESSENTIAL`. If a line is too short for all
            columns, the least important ones are dropped first.
        indent: Spaces before each line.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    right: frozenset[int] = frozenset()
    importance: Mapping[str, int] = field(default_factory=dict)
    indent: int = 0

    def lines(self, limit: int | None) -> tuple[list[Text], list[str]]:
        """Return the lines of the table, and the headers of dropped columns.

        Args:
            limit: Maximum length of a line; None for no maximum.
        """
        headers = [styled(header, "bold") for header in self.headers]
        rows = [headers, *([_cell(cell) for cell in row] for row in self.rows)]
        widths = self._widths(rows, math.inf if limit is None else max(limit - self.indent, 1))
        printed = rows if any(map(str.strip, self.headers)) else rows[1:]
        lines = [Text(" " * self.indent) + line for row in printed for line in self._lines(row, widths)]
        return lines, [header for number, header in enumerate(self.headers) if number not in widths]

    def _widths(self, rows: Sequence[Sequence[Text]], room: float) -> dict[int, int]:
        """Return the width of each column to show, by its index."""
        columns = [[cell.plain for cell in column] for column in zip(*rows, strict=True)]
        widths = {i: max(map(cell_len, column)) for i, column in enumerate(columns)}
        if _total(widths) <= room:
            return widths
        least = {
            i: max([_longest_word(header), *map(cell_len if i in self.right else _longest_word, cells)])
            for i, (header, *cells) in enumerate(columns)
        }
        readable = {i: max(least[i], min(widths[i], 0 if i in self.right else _READABLE)) for i in widths}
        ranks = [self.importance.get(header, ESSENTIAL) for header in self.headers]
        kept = {i: readable[i] for i in widths if ranks[i] >= ESSENTIAL}
        for i in sorted(widths.keys() - kept, key=lambda i: (-ranks[i], readable[i], i)):
            if _total(kept | {i: readable[i]}) <= room:
                kept[i] = readable[i]
        widths = {i: size for i, size in widths.items() if i in kept}
        for minimum in (readable, least, dict.fromkeys(widths, 1)):
            while _total(widths) > room and (wide := [i for i in widths if widths[i] > minimum[i]]):
                widths[max(wide, key=lambda i: widths[i])] -= 1
        return widths

    def _lines(self, row: Sequence[Text], widths: Mapping[int, int]) -> Iterator[Text]:
        """Yield the lines of one row, aligned at the top: several if cells are wrapped."""
        columns = [
            [row[i]] if cell_len(row[i].plain) <= size else row[i].wrap(_console(), size, overflow="fold")
            for i, size in widths.items()
        ]
        for cells in zip_longest(*columns, fillvalue=Text()):
            parts: list[str | Text] = []
            for (i, size), cell in zip(widths.items(), cells, strict=True):
                cell.rstrip()
                padding = " " * (size - cell_len(cell.plain))
                parts += [padding, cell, _GAP] if i in self.right else [cell, padding, _GAP]
            line = Text.assemble(*parts)
            line.rstrip()
            yield line


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    right: Iterable[int] = (),
    importance: Mapping[str, int] | None = None,
    indent: int = 0,
) -> TextTable:
    """Make a `TextTable`; its attributes document the arguments."""
    return TextTable(headers, list(rows), frozenset(right), importance or {}, indent)


class TextColumn(NamedTuple):
    """A column for `table_of`; `cell` returns the cell of a record."""

    header: str
    cell: Callable[[Any], str | Text]
    importance: int = ESSENTIAL
    right: bool = False


def table_of(records: Iterable[Any], columns: Sequence[TextColumn]) -> TextTable:
    """Make a table with one row for each record."""
    return table(
        [column.header for column in columns],
        [[column.cell(record) for column in columns] for record in records],
        [number for number, column in enumerate(columns) if column.right],
        {column.header: column.importance for column in columns},
    )


Block = str | Text | TextTable
"""A part of a command's output: lines of text, a styled line, or a table."""


def result_blocks(made: Table, see_notes: str = "") -> Iterator[Block]:
    """Convert a result table to blocks: the table with the best values in bold, the caption, and notes.

    Args:
        made: The table.
        see_notes: Where users find the notes, which are then only counted, except one for each sign in the
            cells. Empty to include all notes.
    """
    headers = [on_one_line(column.title) for column in made.columns]
    rows: list[Sequence[str | Text]] = []
    signs: set[str] = set()
    for title, lines in made.sections:
        if title:
            rows.append([styled(title, "italic"), *[""] * (len(headers) - 1)])
        for line in lines:
            cells = [
                _result_cell(column.key, cell) for column, cell in zip(made.columns, line.cells, strict=True)
            ]
            cells[0].stylize("italic" if line.apart else "")
            rows.append(cells)
            signs.update(*(cell.mark for cell in line.cells))
    right = [number for number, column in enumerate(made.columns) if column.align != "left"]
    importance = dict(zip(headers, (column.importance for column in made.columns), strict=True))
    yield table(headers, rows, right, importance)
    yield from ("", on_one_line(made.caption))
    notes = [on_one_line(note) for note in made.notes]
    if see_notes:
        explained = {note[0]: note for note in reversed(notes) if note[:1] in signs}
        notes = [shorten(note, _SHORT_NOTE, placeholder=" …") for note in explained.values()]
        notes += [f"{counted(len(made.notes), 'note')}: {see_notes}"] if made.notes else []
    elif notes:
        notes = ["", *(f"- {note}" for note in notes)]
    yield from (styled(note, "dim") for note in notes)


def _result_cell(key: str, cell: Cell) -> Text:
    style = "strike dim" if cell.struck else "bold" if cell.bold else ""
    if key == "verdict":
        style = VERDICT_STYLES.get(cell.text.partition(" at this scale")[0], "")
    return styled(cell.text, style) + cell.mark


def render(blocks: Block | Iterable[Block], limit: int | None = None, styles: bool = False) -> str:
    """Convert blocks to one text.

    Args:
        blocks: One block, or several.
        limit: Maximum length of a line; None for no maximum.
        styles: Whether to write styles as escape sequences.
    """
    if isinstance(blocks, str | Text | TextTable):
        blocks = [blocks]
    lines = (line for block in blocks for line in _lines(block, limit))
    return "\n".join(to_ansi(line) if styles else without_controls(line.plain) for line in lines)


def _lines(block: Block, limit: int | None) -> Iterator[Text]:
    if isinstance(block, TextTable):
        lines, dropped = block.lines(limit)
        yield from lines
        if dropped and limit is not None:
            note = f"not shown: {few(list(dict.fromkeys(dropped)), 4)} (a pipe shows all)"
            yield from wrap(styled(note, "dim"), limit)
        return
    for line in map(styled, block.split("\n")) if isinstance(block, str) else [block]:
        yield from [line] if limit is None else wrap(line, limit)


def wrap(line: Text, limit: int) -> Iterator[Text]:
    """Break a line between words. Indent further lines like the first, or like the text of a list item."""
    plain = line.plain
    if cell_len(plain) <= limit:
        yield line
        return
    start = len(plain) - len(plain.lstrip(" "))
    start += 2 if plain[start:].startswith("- ") else 0
    hang = min(start, limit // 2)
    offsets, used = [], start
    for word in _WORD.finditer(plain, start):
        if used > hang and used + cell_len(word[1]) > limit and word.start() > start:
            offsets.append(word.start())
            used = hang
        used += cell_len(word[0])
    for number, part in enumerate(line.divide(offsets)):
        part.rstrip()
        yield Text(" " * hang) + part if number else part


_WORD = re.compile(r"((?:`[^`]*`[^\s`]*)|\S+)\s*")
"""Matches a word, or a command in backticks, which isn't broken."""


def to_ansi(line: Text) -> str:
    """Convert a line to a string with escape sequences for its styles."""
    line = line.copy()
    line.plain = without_controls(line.plain)
    return "".join(
        segment.style.render(segment.text) if segment.style else segment.text
        for segment in line.render(_console())
    )


def markdown(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table in Markdown with aligned columns."""
    cells = [[printable(cell).replace("|", "\\|") for cell in row] for row in [headers, *rows]]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [" | ".join(map(str.ljust, row, sizes)) for row in cells]
    rule = "|".join("-" * (size + 2) for size in sizes)
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])]) + "\n"


@cache
def _console() -> Console:
    return Console(color_system="standard", force_terminal=True)


def _cell(cell: str | Text) -> Text:
    """Return a cell on one line."""
    text = Text.assemble(cell)
    text.plain = printable(text.plain)
    return text


def _total(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
