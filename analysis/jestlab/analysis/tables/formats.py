"""A table in Markdown and HTML; `latex` writes it for papers."""

from __future__ import annotations

import re
import textwrap
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from ..units import MISSING

if TYPE_CHECKING:
    from .core import Cell, Column, Line, Table

# ---- GitHub's Markdown, aligned so that it is readable on a terminal

_WIDTH = 100  # characters in a line of captions and notes
_UNDERSCORE = re.compile(r"(?<!\w)_|_(?!\w)")  # within a word, it doesn't start emphasis
_RULE = {"left": ":{}-", "right": "-{}:", "center": ":{}:"}
_PAD = {"left": str.ljust, "right": str.rjust, "center": str.center}


def markdown(table: Table) -> str:
    """Write a table in GitHub's Markdown; titles and the names of rows that are set apart are in italics."""
    sides = [column.align for column in table.columns]
    rows = [[_md(f"{column.group} {column.header}".strip()) for column in table.columns]]
    for section in table.sections:
        rows += [[f"*{_md(section.title)}*", *[""] * (len(sides) - 1)]] if section.title else []
        for line in section.lines:
            first, *others = map(_md_cell, line.cells)
            rows.append([f"*{first}*" if line.apart else first, *others])
    widths = [max(3, *map(len, texts)) for texts in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        padded = (_PAD[side](text, width) for side, text, width in zip(sides, row, widths, strict=True))
        lines.append(f"| {' | '.join(padded)} |")
    rule = [_RULE[side].format("-" * width) for side, width in zip(sides, widths, strict=True)]
    lines[1:1] = [f"|{'|'.join(rule)}|"]
    lines += ["", textwrap.fill(_md(table.caption), _WIDTH)]
    lines += [""] if table.notes else []
    lines += [textwrap.fill(f"- {_md(note)}", _WIDTH, subsequent_indent="  ") for note in table.notes]
    return "\n".join(lines) + "\n"


def _md_cell(cell: Cell) -> str:
    text = f"~~{_md(cell.text)}~~" if cell.struck else _md(cell.text)
    return (f"**{text}**" if cell.bold else text) + cell.mark


def _md(text: str) -> str:
    """Escape a string for Markdown: one line, without characters that would format it."""
    text = re.sub(r"[\\|*`<$]", r"\\\g<0>", " ".join(text.split()))
    return _UNDERSCORE.sub(r"\_", text).replace("](", "]\\(")  # brackets alone are no link


# ---- HTML

_LONG = 40  # characters; longer texts may break into lines


def html(table: Table, opens: bool = False, most: int | None = None) -> str:
    """Write a table in HTML, in ASCII so that the charset doesn't matter; see `Table.html`."""
    words = "<br>".join(map(prose, [table.caption, *table.notes]))
    parts = [] if opens else [f"<style>{_CSS}</style>"]
    parts += ['<table class="jestlab">', *([] if opens else [f"<caption>{words}</caption>"]), "<thead>"]
    if any(column.group for column in table.columns):
        cells = ""
        for group, columns in groupby(table.columns, key=lambda column: column.group):
            span = len(list(columns))
            about = {"scope": "colgroup", "class_": "group"} if group else {}
            cells += _element(
                "th" if group else "td", escape(group), **about, colspan=span if span > 1 else 0
            )
        parts.append(_element("tr", cells, class_="groups"))
    parts += [_element("tr", "".join(map(_heading, table.columns))), "</thead>"]
    left = len(table.lines) if most is None else most
    for section in table.sections:
        lines = section.lines[:left]
        left -= len(lines)
        if not lines:
            continue
        parts.append("<tbody>")
        if section.title:
            title = _element("th", escape(section.title), scope="rowgroup", colspan=len(table.columns))
            parts.append(_element("tr", title, class_="section"))
        parts += [_row(table, line, opens and table.opens) for line in lines]
        parts.append("</tbody>")
    return "\n".join([*parts, "</table>", ""]).encode("ascii", "xmlcharrefreplace").decode()


def prose(text: str) -> str:
    """Escape a text for HTML, and mark up the parts between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _element(name: str, content: str, **attributes: object) -> str:
    """Write an element; an attribute that is empty is left out, and `class_` and `data_row` are renamed."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value
    )
    return f"<{name}{written}>{content}</{name}>"


def _heading(column: Column) -> str:
    side = "left" if column.align == "left" else ""
    return _element("th", escape(column.header), scope="col", class_=side, title=column.formula)


def _row(table: Table, line: Line, opens: bool) -> str:
    name = _element("span", _text(line.cells[0]), class_="name")
    cells = [_element("th", name, scope="row")]
    for column, cell in zip(table.columns[1:], line.cells[1:], strict=True):
        text = _text(cell)
        if opens and column.formula and cell.text not in ("", MISSING):
            origin = {"aria_haspopup": "dialog", "data_row": line.key, "data_column": column.key}
            text = _element("button", text, type="button", **origin)
        is_left = column.align == "left"
        shade = "above" if cell.shade > 0 else "below" if cell.shade < 0 else ""
        classes = ("left" * is_left, "long" * (is_left and len(cell.text) > _LONG), shade)
        style = f"--shade:{abs(cell.shade):.2f}" if cell.shade else ""
        cells.append(_element("td", text, class_=" ".join(filter(None, classes)), style=style))
    return _element("tr", "".join(cells), class_=" ".join(["apart"] * line.apart + ["ours"] * line.ours))


def _text(cell: Cell) -> str:
    """Write the text of a cell with its emphasis and marks."""
    text = f"<b>{escape(cell.text)}</b>" if cell.bold else escape(cell.text)
    text = f"<s>{text}</s>" if cell.struck else text
    return f"{text}<sup>{escape(cell.mark)}</sup>" if cell.mark else text


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
