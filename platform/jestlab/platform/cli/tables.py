"""Tables for people: whole in a pipe, and on a terminal fitted to its width.

Where a table is too wide, its texts are broken into lines between words, and then the least important columns
are left out, which is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jestlab.platform.terminal import Styled, as_styled, columns_of, joined, styled, wrapped

ESSENTIAL = 100
"""Importance of columns that are never left out."""

USUAL = 50

_GAP = 2  # columns between two cells
_READABLE = 24  # columns that a text takes before others are left out for it
_SEPARATORS = re.compile(r"(?<=[/=,:;|_])")

Cell = str | Styled


@dataclass(frozen=True)
class Table:
    """A table for people.

    Attributes:
        headers: One for each column; without any text in them, no line of headers is printed.
        rows: Cells, as many in each row, each on one line; or one text for a line over the whole width.
        right: Indices of the columns that are aligned to the right. Their cells are not broken into lines.
        importance: Of each column: where a table is too wide, the one of the least importance is left out
            first, of several the last; `ESSENTIAL` ones stay.
        indent: Columns before each line.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell] | Styled]
    right: frozenset[int]
    importance: Sequence[int]
    indent: int = 0

    def __str__(self) -> str:
        """Write the whole table without styles; nothing is cut, so that pipes get it all."""
        return "\n".join(str(line) for line in self.lines(None)[0])

    def lines(self, most: int | None) -> tuple[list[Styled], list[str]]:
        """Return the lines of the table, and the headers of the columns that are left out.

        Args:
            most: Columns that a line may take; None for any number.
        """
        cells = [row for row in self.rows if not isinstance(row, Styled)]
        room = None if most is None else max(most - self.indent, 1)
        widths = _Widths(self.headers, cells, self.right, self.importance).fit(room)
        lines: list[Styled] = []
        if any(header.strip() for header in self.headers):
            lines += self._row([styled(header, "bold") for header in self.headers], widths)
        for row in self.rows:
            if isinstance(row, Styled):
                lines += [row] if room is None else wrapped(row, room)
            else:
                lines += self._row(list(map(as_styled, row)), widths)
        gone = [header for number, header in enumerate(self.headers) if number not in widths]
        return [" " * self.indent + line if len(line) else line for line in lines], gone

    def _row(self, cells: Sequence[Styled], widths: Mapping[int, int]) -> Iterator[Styled]:
        """Yield the lines of one row; cells of several lines begin on the first of it."""
        broken = {number: list(_broken(cells[number], width)) for number, width in widths.items()}
        for at in range(max(map(len, broken.values()), default=0)):
            parts = []
            for number, width in widths.items():
                text = broken[number][at] if at < len(broken[number]) else styled("")
                pad = " " * (width - columns_of(str(text)))
                parts.append(pad + text if number in self.right else text + pad)
            line = joined(" " * _GAP, parts)
            yield line.cut(0, len(str(line).rstrip()))


def _broken(cell: Styled, width: int) -> Iterator[Styled]:
    """Break a cell into lines: between words, or in a word that is too long where something is joined."""
    for line in wrapped(cell, width, hang=0):
        while columns_of(str(line)) > width:
            ends = [found.start() for found in _SEPARATORS.finditer(str(line)) if 0 < found.start() <= width]
            end = ends[-1] if ends else width
            yield line.cut(0, end)
            line = line.cut(end, len(line))
        yield line


class _Widths:
    """Finds how wide each column of a table is."""

    def __init__(
        self,
        headers: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        right: frozenset[int],
        importance: Sequence[int],
    ) -> None:
        self._importance = importance
        columns = [[header, *(str(row[i]) for row in rows)] for i, header in enumerate(headers)]
        self._natural = [max(map(columns_of, column)) for column in columns]
        self._least = [  # numbers stay on one line, and their headers may be broken
            max(
                _longest_word(header),
                *(columns_of(cell) if i in right else _longest_word(cell) for cell in cells),
            )
            if cells
            else _longest_word(header)
            for i, (header, *cells) in enumerate(columns)
        ]
        self._readable = [
            max(least, min(natural, _READABLE) if i not in right else least)
            for i, (least, natural) in enumerate(zip(self._least, self._natural, strict=True))
        ]

    def fit(self, room: int | None) -> dict[int, int]:
        """Return the width of each column that is shown, by its number."""
        shown = dict(enumerate(self._natural))
        if room is None or _total(shown) <= room:
            return shown
        shown = dict(enumerate(self._readable))
        while _total(shown) > room and (loose := [i for i in shown if self._importance[i] < ESSENTIAL]):
            del shown[min(loose, key=lambda i: (self._importance[i], -i))]
        self._shrink(shown, room, self._least)
        self._shrink(shown, room, [1] * len(self._least))
        while _total(shown) < room and (short := [i for i in shown if shown[i] < self._natural[i]]):
            shown[max(short, key=lambda i: self._natural[i] / shown[i])] += 1
        return shown

    @staticmethod
    def _shrink(shown: dict[int, int], room: int, least: Sequence[int]) -> None:
        """Make the widest columns narrower until all fit, or all are as narrow as they may be."""
        while _total(shown) > room and (wide := [i for i in shown if shown[i] > least[i]]):
            shown[max(wide, key=lambda i: shown[i])] -= 1


def _total(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _longest_word(text: str) -> int:
    return max(map(columns_of, text.split()), default=0)
