"""A table in Markdown and HTML; `latex` writes it for a paper."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from ..units import MISSING

if TYPE_CHECKING:
    from .core import Cell, Column, Line, Table

# ---- GitHub's Markdown, aligned so that it also reads in a terminal

_WIDTH = 100  # of captions and notes, characters
_UNDERSCORE = re.compile(r"(?<!\w)_|_(?!\w)")  # within a word it emphasises nothing
_RULE = {"left": ":{}-", "right": "-{}:", "center": ":{}:"}


def markdown(table: Table) -> str:
    """Write a table in GitHub's Markdown: rows that stand apart in italics, titles of sections in rows."""
    columns = table.columns
    lines = [[_md(f"{column.group} {column.header}".strip()) for column in columns]]
    for section in table.sections:
        if section.title:
            lines.append([f"*{_md(section.title)}*", *[""] * (len(columns) - 1)])
        lines += [_md_row(line) for line in section.lines]
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
    text = [
        padded[0],
        f"|{'|'.join(rules)}|",
        *padded[1:],
        "",
        textwrap.fill(_md(table.caption), _WIDTH),
    ]
    notes = [f"- {_md(note)}" for note in table.notes]
    text += ["", *(textwrap.fill(note, _WIDTH, subsequent_indent="  ") for note in notes)] if notes else []
    return "\n".join(text) + "\n"


def _md_row(line: Line) -> list[str]:
    texts = [_markdown_cell(cell) for cell in line.cells]
    return [f"*{texts[0]}*", *texts[1:]] if line.apart else texts


def _markdown_cell(cell: Cell) -> str:
    text = _md(cell.text)
    text = f"~~{text}~~" if cell.struck else text
    return (f"**{text}**" if cell.bold else text) + cell.mark


def _md(text: str) -> str:
    """Escape a string for Markdown: one line, without characters that would format it."""
    text = " ".join(text.split())
    text = "".join(f"\\{character}" if character in "\\|*`<$" else character for character in text)
    text = _UNDERSCORE.sub(r"\_", text)
    return text.replace("](", "]\\(")  # brackets alone are no link


# ---- HTML

_LONG = 40  # letters; longer texts may break into lines


def html(table: Table, opens: bool = False, most: int | None = None) -> str:
    """Write a table in HTML, in ASCII so that no charset matters, with caption and notes if it stands alone.

    Args:
        table: What to write.
        opens: As in `Table.html`.
        most: As in `Table.html`.
    """
    shared = any(column.group for column in table.columns)
    words = "<br>".join(map(prose, [table.caption, *table.notes]))
    text = "\n".join(
        [
            *([] if opens else [f"<style>{_CSS}</style>"]),
            '<table class="jestlab">',
            *([] if opens else [f"<caption>{words}</caption>"]),
            "<thead>",
            *([_groups(table)] if shared else []),
            "<tr>" + "".join(_heading(column) for column in table.columns) + "</tr>",
            "</thead>",
            *_sections(table, opens, most),
            "</table>",
            "",
        ]
    )
    return text.encode("ascii", "xmlcharrefreplace").decode()


def prose(text: str) -> str:
    """Escape a text for HTML, and mark up the parts between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _heading(column: Column) -> str:
    title = f' title="{escape(column.formula)}"' if column.formula else ""
    side = ' class="left"' if column.align == "left" else ""
    return f'<th scope="col"{side}{title}>{escape(column.header)}</th>'


def _groups(table: Table) -> str:
    """Write the headings over groups of columns."""
    cells = []
    for group, columns in groupby(table.columns, key=lambda column: column.group):
        count = len(list(columns))
        span = f' colspan="{count}"' if count > 1 else ""
        if group:
            cells.append(f'<th scope="colgroup" class="group"{span}>{escape(group)}</th>')
        else:
            cells.append(f"<td{span}></td>")
    return f'<tr class="groups">{"".join(cells)}</tr>'


def _sections(table: Table, opens: bool, most: int | None) -> Iterator[str]:
    """Write each section as a body of its own, up to `most` rows in all."""
    opens = opens and table.opens
    left = len(table.lines) if most is None else most
    for section in table.sections:
        lines = section.lines[:left]
        left -= len(lines)
        if lines:
            yield "\n".join(["<tbody>", *_rows(table, section.title, lines, opens), "</tbody>"])


def _rows(table: Table, title: str, lines: Sequence[Line], opens: bool) -> Iterator[str]:
    if title:
        yield (
            f'<tr class="section"><th scope="rowgroup" colspan="{len(table.columns)}">'
            f"{escape(title)}</th></tr>"
        )
    for line in lines:
        classes = [name for name in ("apart", "ours") if getattr(line, name)]
        first, *others = zip(line.cells, table.columns, strict=True)
        cells = [f'<th scope="row"><span class="name">{_text(first[0])}</span></th>']
        cells += [_cell(line.key, cell, column, opens) for cell, column in others]
        yield f"<tr{_classed(classes)}>{''.join(cells)}</tr>"


def _cell(row: str, cell: Cell, column: Column, opens: bool) -> str:
    text = _text(cell)
    if opens and column.formula and cell.text not in ("", MISSING):
        text = (
            f'<button type="button" aria-haspopup="dialog" data-row="{escape(row)}" '
            f'data-column="{escape(column.key)}">{text}</button>'
        )
    classes = ["left"] if column.align == "left" else []
    if column.align == "left" and len(cell.text) > _LONG:
        classes.append("long")
    if cell.shade == 0:
        return f"<td{_classed(classes)}>{text}</td>"
    classes.append("above" if cell.shade > 0 else "below")
    return f'<td{_classed(classes)} style="--shade:{abs(cell.shade):.2f}">{text}</td>'


def _text(cell: Cell) -> str:
    """Write the text of a cell with its emphasis and marks."""
    text = escape(cell.text)
    text = f"<b>{text}</b>" if cell.bold else text
    text = f"<s>{text}</s>" if cell.struck else text
    return f"{text}<sup>{escape(cell.mark)}</sup>" if cell.mark else text


def _classed(names: Sequence[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""


_CSS = (
    "table.jestlab{border-collapse:collapse;font:14px/1.5 system-ui,sans-serif;"
    "font-variant-numeric:tabular-nums;border-block:2px solid}"
    "table.jestlab caption{caption-side:bottom;text-align:left;font-size:12px;padding-top:6px}"
    "table.jestlab th,table.jestlab td{padding:2px 10px;text-align:right;font-weight:400;white-space:nowrap}"
    "table.jestlab b{font-weight:700}"
    "table.jestlab tr>:first-child,table.jestlab .left{text-align:left}"
    "table.jestlab .long{white-space:normal}"
    "table.jestlab th.group{text-align:center;border-bottom:1px solid}"
    "table.jestlab thead tr:last-child>*,table.jestlab tr.apart>*{border-bottom:1px solid}"
    "table.jestlab tbody+tbody>tr:first-child>*{border-top:1px solid}"
    "table.jestlab tr.apart,table.jestlab tr.section{font-style:italic}"
    "table.jestlab tr.ours>*{background:color-mix(in srgb,#7070ff 14%,transparent)}"
    "table.jestlab td.above{background:color-mix(in srgb,#0072b2 calc(var(--shade)*65%),transparent)}"
    "table.jestlab td.below{background:color-mix(in srgb,#d55e00 calc(var(--shade)*65%),transparent)}"
)
