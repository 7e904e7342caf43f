"""Result tables for terminals: the best in bold, the least important columns left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from jestlab.platform.render import Block, styled
from jestlab.platform.render import TextTable as Aligned
from jestlab.platform.render import table as aligned

if TYPE_CHECKING:
    from jestlab.analysis.tables.core import Cell, Line, Table


def blocks(table: Table) -> Iterator[Block]:
    """Write a result table for a terminal, with caption and notes."""
    yield _rows(table)
    yield ""
    yield styled(" ".join(table.caption.split()))
    if table.notes:
        yield ""
    for note in table.notes:
        yield styled(f"- {' '.join(note.split())}", "dim")


def _rows(table: Table) -> Aligned:
    headers = [" ".join(f"{column.group} {column.header}".split()) for column in table.columns]
    rows: list[list[str | Text] | Text] = []
    for section in table.sections:
        if section.title:
            rows.append(styled(section.title, "italic"))
        rows += [_row(line) for line in section.lines]
    right = [number for number, column in enumerate(table.columns) if column.align != "left"]
    importance = dict(zip(headers, (column.importance for column in table.columns), strict=True))
    return aligned(headers, rows, right, importance)


def _row(line: Line) -> list[str | Text]:
    first, *others = (_cell(cell) for cell in line.cells)
    first.stylize("italic" if line.apart else "bold" if line.ours else "")
    return [first, *others]


def _cell(cell: Cell) -> Text:
    text = styled(" ".join(cell.text.split()), "strike dim" if cell.struck else "bold" if cell.bold else "")
    return text + cell.mark
