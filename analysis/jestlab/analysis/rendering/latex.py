"""A table in LaTeX, with the rules of booktabs."""

from __future__ import annotations

from itertools import groupby

from .table import Cell, Column, Line, Table

_WIDE = 9  # from so many columns on a table is shrunk to the width of the text


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
    wide = len(columns) >= _WIDE
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
    return "    " + shade + " & ".join(_cell(cell) for cell in line.cells) + r" \\"


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


_LATIN = 0x17F  # LaTeX knows the letters up to here by itself


def _escape(text: str) -> str:
    """A text as LaTeX prints it; a character that it cannot print is named by its number."""
    return "".join(
        _LATEX.get(character, character if ord(character) <= _LATIN else f"[U+{ord(character):04X}]")
        for character in text
    )


def _slug(text: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in text)
