"""A table in Markdown, HTML and LaTeX."""

from __future__ import annotations

import re
import textwrap
import unicodedata
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
    text = "\n".join(
        [
            *([] if opens else [f"<style>{_CSS}</style>"]),
            '<table class="jestlab">',
            *([] if opens else [f"<caption>{_lines([table.caption, *table.notes])}</caption>"]),
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


def _lines(texts: list[str]) -> str:
    return "<br>".join(escape(text) for text in texts)


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


# ---- LaTeX

_WIDE = 72  # characters that fit the width of a text; a wider table is shrunk to it


def latex(table: Table) -> str:
    """Write a `table` environment with booktabs' rules; comments above it name the packages that it needs."""
    columns = table.columns
    alignment = "".join(column.align[0] for column in columns)
    body: list[str] = []
    for i, section in enumerate(table.sections):
        body += ["    \\midrule"] if i else []
        if section.title:
            body.append(
                f"    \\multicolumn{{{len(columns)}}}{{@{{}}l}}{{\\textit{{{_tex(section.title)}}}}} \\\\"
            )
        apart = [_latex_row(line) for line in section.lines if line.apart]
        rows = [_latex_row(line) for line in section.lines if not line.apart]
        body += apart + (["    \\midrule"] if apart and rows else []) + rows
    wide = _width(table) > _WIDE
    shaded = any(line.ours or any(cell.shade for cell in line.cells) for line in table.lines)
    notes = "".join(f" {_tex(note)}{'' if note.endswith('.') else '.'}" for note in table.notes)
    return "\n".join(
        [
            "% \\usepackage{booktabs}",
            *(["% \\usepackage[table]{xcolor}", _COLOURS] if shaded else []),
            *(["% \\usepackage[normalem]{ulem}"] if table.struck else []),
            *(["% \\usepackage{graphicx}"] if wide else []),
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{_tex(table.caption)}{notes}}}",
            f"  \\label{{tab:{_slug(table.name)}}}",
            *(["  \\resizebox{\\linewidth}{!}{%"] if wide else []),
            f"  \\begin{{tabular}}{{@{{}}{alignment}@{{}}}}",
            "    \\toprule",
            *_latex_groups(columns),
            "    " + " & ".join(_tex(column.header) for column in columns) + r" \\",
            "    \\midrule",
            *body,
            "    \\bottomrule",
            "  \\end{tabular}" + ("}" if wide else ""),
            "\\end{table}",
            "",
        ]
    )


def _latex_groups(columns: tuple[Column, ...]) -> list[str]:
    """Write the headings over groups of columns, each with a rule under it; empty if there are none."""
    cells, rules, first = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        count = len(list(members))
        if group:
            cells.append(f"\\multicolumn{{{count}}}{{c}}{{{_tex(group)}}}")
            rules.append(f"\\cmidrule(lr){{{first}-{first + count - 1}}}")
        else:
            cells += [""] * count
        first += count
    return ["    " + " & ".join(cells) + r" \\", "    " + " ".join(rules)] if rules else []


def _latex_row(line: Line) -> str:
    shade = "\\rowcolor{jestlabours} " if line.ours else ""
    cells = " & ".join(_latex_cell(cell) for cell in line.cells)
    # What begins with a bracket or a star would be read as an option of the line break before it.
    return "    " + shade + ("{}" if cells.startswith(("[", "*")) else "") + cells + r" \\"


def _latex_cell(cell: Cell) -> str:
    text = f"\\textbf{{{_tex(cell.text)}}}" if cell.bold else _tex(cell.text)
    text = f"\\sout{{{text}}}" if cell.struck else text
    text += f"\\textsuperscript{{{_tex(cell.mark)}}}" if cell.mark else ""
    if not cell.shade:
        return text
    colour = "jestlababove" if cell.shade > 0 else "jestlabbelow"
    return f"\\cellcolor{{{colour}!{round(65 * abs(cell.shade))}!white}} {text}"


_COLOURS = (
    "\\providecolor{jestlabours}{rgb}{0.9, 0.9, 1.0}\n"
    "\\providecolor{jestlababove}{HTML}{0072B2}\n"
    "\\providecolor{jestlabbelow}{HTML}{D55E00}"
)

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": r"$-$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "→": r"$\rightarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "σ": r"$\sigma$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "\n": " ",
}


_LETTERS = {
    "ß": r"{\ss}", "æ": r"{\ae}", "Æ": r"{\AE}", "œ": r"{\oe}", "Œ": r"{\OE}", "ø": r"{\o}", "Ø": r"{\O}",
    "ł": r"{\l}", "Ł": r"{\L}", "å": r"{\aa}", "Å": r"{\AA}", "ı": r"{\i}", "’": "'", "‘": "`", "“": "``",
    "”": "''", "§": r"{\S}", "·": r"$\cdot$", "°": r"$^\circ$",
}  # fmt: skip
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip


def _tex(text: str) -> str:
    """Escape a string for LaTeX; a character that LaTeX cannot print is named by its number."""
    return "".join(_letter(character) for character in text)


def _letter(character: str) -> str:
    known = _LATEX.get(character) or _LETTERS.get(character)
    if known is not None:
        return known
    if character.isascii():
        return character
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[1] in _ACCENTS and parts[0].isascii():
        return f"\\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return f"[U+{ord(character):04X}]"


def _width(table: Table) -> int:
    """Estimate the width of the widest line, in characters."""
    lines = [[column.header for column in table.columns]]
    lines += [[cell.text for cell in line.cells] for line in table.lines]
    return sum(max(len(line[i]) for line in lines) + 2 for i in range(len(table.columns)))


def _slug(text: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in text)
