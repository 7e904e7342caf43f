"""A table in LaTeX, with the rules of booktabs."""

from __future__ import annotations

import unicodedata
from itertools import groupby

from .table import Cell, Column, Line, Table

_WIDE = 72  # characters that fit the width of a text; a wider table is shrunk to it


def write(table: Table) -> str:
    """A `table` environment; what it needs to be loaded stands in comments above it."""
    columns = table.columns
    alignment = "".join(column.align[0] for column in columns)
    body: list[str] = []
    for i, section in enumerate(table.sections()):
        body += ["    \\midrule"] if i else []
        if section.title:
            body.append(
                f"    \\multicolumn{{{len(columns)}}}{{@{{}}l}}{{\\textit{{{_escape(section.title)}}}}} \\\\"
            )
        apart = [_row(line) for line in section.lines if line.apart]
        rows = [_row(line) for line in section.lines if not line.apart]
        body += apart + (["    \\midrule"] if apart and rows else []) + rows
    wide = _width(table) > _WIDE
    shaded = any(line.ours or any(cell.shade for cell in line.cells)
                 for section in table.sections() for line in section.lines)  # fmt: skip
    notes = "".join(f" {_escape(note)}{'' if note.endswith('.') else '.'}" for note in table.notes)
    return "\n".join(
        [
            "% \\usepackage{booktabs}",
            *(["% \\usepackage[table]{xcolor}", _COLOURS] if shaded else []),
            *(["% \\usepackage{graphicx}"] if wide else []),
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{_escape(table.caption)}{notes}}}",
            f"  \\label{{tab:{_slug(table.name)}}}",
            *(["  \\resizebox{\\linewidth}{!}{%"] if wide else []),
            f"  \\begin{{tabular}}{{@{{}}{alignment}@{{}}}}",
            "    \\toprule",
            *_groups(columns),
            "    " + " & ".join(_escape(column.header) for column in columns) + r" \\",
            "    \\midrule",
            *body,
            "    \\bottomrule",
            "  \\end{tabular}" + ("}" if wide else ""),
            "\\end{table}",
            "",
        ]
    )


def _groups(columns: tuple[Column, ...]) -> list[str]:
    """The headings over groups of columns, each with a rule under it; nothing where there are none."""
    cells, rules, first = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        count = len(list(members))
        if group:
            cells.append(f"\\multicolumn{{{count}}}{{c}}{{{_escape(group)}}}")
            rules.append(f"\\cmidrule(lr){{{first}-{first + count - 1}}}")
        else:
            cells += [""] * count
        first += count
    return ["    " + " & ".join(cells) + r" \\", "    " + " ".join(rules)] if rules else []


def _row(line: Line) -> str:
    shade = "\\rowcolor{jestlabours} " if line.ours else ""
    cells = " & ".join(_cell(cell) for cell in line.cells)
    # What begins with a bracket or a star would be read as an option of the line break before it.
    return "    " + shade + ("{}" if cells.startswith(("[", "*")) else "") + cells + r" \\"


def _cell(cell: Cell) -> str:
    text = f"\\textbf{{{_escape(cell.text)}}}" if cell.bold else _escape(cell.text)
    text += f"\\textsuperscript{{{_escape(cell.mark)}}}" if cell.mark else ""
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


def _escape(text: str) -> str:
    """A text in letters that every LaTeX prints; a character that it cannot print is named by its number."""
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
    """Characters of the widest line, about."""
    lines = [[column.header for column in table.columns]]
    lines += [[cell.text for cell in line.cells] for part in table.sections() for line in part.lines]
    return sum(max(len(line[i]) for line in lines) + 2 for i in range(len(table.columns)))


def _slug(text: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in text)
