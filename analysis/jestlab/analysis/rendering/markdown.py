"""A table in GitHub's Markdown, aligned so that it also reads in a terminal."""

from __future__ import annotations

import re
import textwrap

from .table import Cell, Line, Table

_WIDTH = 100  # of captions and notes, characters
_UNDERSCORE = re.compile(r"(?<!\w)_|_(?!\w)")  # within a word it emphasises nothing
_RULE = {"left": ":{}-", "right": "-{}:", "center": ":{}:"}


def write(table: Table) -> str:
    """Rows that stand apart in italics, sections under a row with their title; shading is left out."""
    columns = table.columns
    lines = [[_escape(f"{column.group} {column.header}".strip()) for column in columns]]
    for section in table.sections():
        if section.title:
            lines.append([f"*{_escape(section.title)}*", *[""] * (len(columns) - 1)])
        lines += [_row(line) for line in section.lines]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(columns))]
    sides = {"left": str.ljust, "right": str.rjust, "center": str.center}
    padded = [
        "| "
        + " | ".join(
            sides[column.align](text, width)
            for text, width, column in zip(line, widths, columns, strict=True)
        )
        + " |"
        for line in lines
    ]
    rules = [_RULE[column.align].format("-" * width) for width, column in zip(widths, columns, strict=True)]
    text = [padded[0], f"|{'|'.join(rules)}|", *padded[1:], "", textwrap.fill(_escape(table.caption), _WIDTH)]
    notes = [f"- {_escape(note)}" for note in table.notes]
    text += ["", *(textwrap.fill(note, _WIDTH, subsequent_indent="  ") for note in notes)] if notes else []
    return "\n".join(text) + "\n"


def _row(line: Line) -> list[str]:
    texts = [_cell(cell) for cell in line.cells]
    return [f"*{texts[0]}*", *texts[1:]] if line.apart else texts


def _cell(cell: Cell) -> str:
    text = _escape(cell.text)
    return (f"**{text}**" if cell.bold else text) + cell.mark


def _escape(text: str) -> str:
    """Keep a text from being read as Markdown: one line, and none of the characters that would format it."""
    text = " ".join(text.split())
    text = "".join(f"\\{character}" if character in "\\|*`<$" else character for character in text)
    text = _UNDERSCORE.sub(r"\_", text)
    return text.replace("](", "]\\(")  # brackets alone are no link
