"""A table in HTML."""

from __future__ import annotations

import html
from itertools import groupby

from .table import Cell, Line, Table


def write(table: Table, opens: bool = False) -> str:
    """The table with caption and notes; ASCII throughout, so that no charset matters.

    Args:
        table: What to write.
        opens: As in `Table.html`.
    """
    shared = any(column.group for column in table.columns)
    text = "\n".join(
        [
            *([] if opens else [f"<style>{_CSS}</style>"]),
            '<table class="jestlab">',
            f"<caption>{_lines([table.caption, *table.notes])}</caption>",
            "<thead>",
            *([_groups(table)] if shared else []),
            "<tr>" + "".join(_heading(table, i) for i in range(len(table.columns))) + "</tr>",
            "</thead>",
            *(_section(table, section.title, section.lines, opens) for section in table.sections()),
            "</table>",
            "",
        ]
    )
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _heading(table: Table, i: int) -> str:
    column = table.columns[i]
    title = f' title="{html.escape(column.formula)}"' if column.formula else ""
    return f'<th scope="col"{title}>{html.escape(column.header)}</th>'


def _groups(table: Table) -> str:
    """The headings over groups of columns."""
    cells = []
    for group, columns in groupby(table.columns, key=lambda column: column.group):
        count = len(list(columns))
        span = f' colspan="{count}"' if count > 1 else ""
        if group:
            cells.append(f'<th scope="colgroup" class="group"{span}>{html.escape(group)}</th>')
        else:
            cells.append(f"<td{span}></td>")
    return f'<tr class="groups">{"".join(cells)}</tr>'


def _section(table: Table, title: str, lines: tuple[Line, ...], opens: bool) -> str:
    rows = []
    if title:
        rows.append(
            f'<tr class="section"><th scope="rowgroup" colspan="{len(table.columns)}">'
            f"{html.escape(title)}</th></tr>"
        )
    for line in lines:
        classes = " ".join(name for name in ("apart", "ours") if getattr(line, name))
        attributes = f' class="{classes}"' if classes else ""
        cells = [
            _cell(table, line, i, cell, opens and bool(cell.text) and i > 0)
            for i, cell in enumerate(line.cells)
        ]
        rows.append(f"<tr{attributes}>{''.join(cells)}</tr>")
    return "\n".join(["<tbody>", *rows, "</tbody>"])


def _cell(table: Table, line: Line, i: int, cell: Cell, opens: bool) -> str:
    text = html.escape(cell.text)
    text = f"<b>{text}</b>" if cell.bold else text
    text += f"<sup>{html.escape(cell.mark)}</sup>" if cell.mark else ""
    if opens:
        row, column = html.escape(line.key), html.escape(table.columns[i].key)
        text = f'<button type="button" data-row="{row}" data-column="{column}">{text}</button>'
    if i == 0:
        return f'<th scope="row">{text}</th>'
    if cell.shade == 0:
        return f"<td>{text}</td>"
    side = "above" if cell.shade > 0 else "below"
    return f'<td class="{side}" style="--shade:{abs(cell.shade):.2f}">{text}</td>'


def _lines(texts: list[str]) -> str:
    return "<br>".join(html.escape(text) for text in texts)


_CSS = (
    "table.jestlab{border-collapse:collapse;font:14px/1.5 system-ui,sans-serif;"
    "font-variant-numeric:tabular-nums;border-block:2px solid}"
    "table.jestlab caption{caption-side:bottom;text-align:left;font-size:12px;padding-top:6px}"
    "table.jestlab th,table.jestlab td{padding:2px 10px;text-align:right;font-weight:400;white-space:nowrap}"
    "table.jestlab b{font-weight:700}"
    "table.jestlab tr>:first-child{text-align:left}"
    "table.jestlab th.group{text-align:center;border-bottom:1px solid}"
    "table.jestlab thead tr:last-child>*,table.jestlab tr.apart>*{border-bottom:1px solid}"
    "table.jestlab tbody+tbody>tr:first-child>*{border-top:1px solid}"
    "table.jestlab tr.apart,table.jestlab tr.section{font-style:italic}"
    "table.jestlab tr.ours>*{background:color-mix(in srgb,#7070ff 14%,transparent)}"
    "table.jestlab td.above{background:color-mix(in srgb,#0072b2 calc(var(--shade)*65%),transparent)}"
    "table.jestlab td.below{background:color-mix(in srgb,#d55e00 calc(var(--shade)*65%),transparent)}"
)
