"""Result tables in a terminal: the best in bold, the least important columns left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jestlab.platform.cli.output import Block
from jestlab.platform.cli.output import table as terminal_table
from jestlab.platform.cli.tables import Table as TerminalTable
from jestlab.platform.terminal import Styled, styled

if TYPE_CHECKING:
    from jestlab.analysis.tables.core import Cell, Line, Table


def blocks(table: Table) -> Iterator[Block]:
    """Write a result table for a terminal: its rows, its caption, and its notes."""
    headers = [" ".join(f"{column.group} {column.header}".split()) for column in table.columns]
    rows: list[list[str | Styled] | Styled] = []
    for section in table.sections:
        if section.title:
            rows.append(styled(section.title, "italic"))
        rows += [_styled_row(line) for line in section.lines]
    right = [number for number, column in enumerate(table.columns) if column.align != "left"]
    made = terminal_table(headers, rows, right)
    importance = [column.importance for column in table.columns]
    yield TerminalTable(made.headers, made.rows, made.right, importance)
    yield ""
    yield styled(" ".join(table.caption.split()))
    if table.notes:
        yield ""
    for note in table.notes:
        yield styled(f"- {' '.join(note.split())}", "dim")


def _styled_row(line: Line) -> list[str | Styled]:
    first, *others = (_styled_cell(cell) for cell in line.cells)
    return [first.styled("italic" if line.apart else "bold" if line.ours else ""), *others]


def _styled_cell(cell: Cell) -> Styled:
    text = styled(" ".join(cell.text.split()), "struck dim" if cell.struck else "bold" if cell.bold else "")
    return text + cell.mark
