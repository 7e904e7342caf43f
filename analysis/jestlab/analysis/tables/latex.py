r"""Write a table in LaTeX, for `\input`: a float with booktabs rules.

LaTeX does the typesetting: `\resizebox` shrinks a table that is wider than its column. Here, characters are
counted to choose between one column and both, and to leave out the least important columns
(`Column.importance`) of a table that would get too small to read.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ..units import listed

if TYPE_CHECKING:
    from .core import Cell, Table

_READABLE = {"table": 62, "table*": 142}
"""Environment → characters in a line of a two-column article, in letters that are up to a third smaller."""

_GAP = 2  # characters between columns
_LONG = 30  # characters; longer texts break into lines
_HEADING = 10  # characters; longer headings break into lines if they are wider than the cells below


class _Layout(NamedTuple):
    """The layout of a table.

    Attributes:
        environment: `table`, or `table*`, which spans the columns of the paper.
        headings: Index of each column that is shown → lines of its heading.
        long: Indices of columns whose texts break into lines.
        left_out: Indices of the columns that do not fit.
    """

    environment: str
    headings: dict[int, list[str]]
    long: set[int]
    left_out: list[int]


def latex(table: Table) -> str:
    """Write a float; comments above it name the packages that it needs."""
    layout = _layout(table)
    label = table.label or "tab:" + re.sub(r"[\W_]", "-", table.name)
    shaded = any(line.ours or any(cell.shade for cell in line.cells) for line in table.lines)
    alignment = "".join(
        _LONG_TEXT if i in layout.long else table.columns[i].align[0] for i in layout.headings
    )
    lines = [
        r"% \usepackage{array, booktabs, graphicx}",
        *([r"% \usepackage[table]{xcolor}", _COLORS] if shaded else []),
        *([r"% \usepackage[normalem]{ulem}"] if table.struck else []),
        _FIT,
        *(f"% {line}" for line in remarks(table)),
        f"\\begin{{{layout.environment}}}[t]",
        r"  \centering",
        f"  \\caption{{{escape(table.caption, breaks=True)}}}",
        f"  \\label{{{label}}}",
        r"  \vspace{3pt}",
        r"  \setlength{\tabcolsep}{4pt}",
        f"  \\jestlabfit{{\\begin{{tabular}}{{@{{}}{alignment}@{{}}}}",
        r"    \toprule",
        *(f"    {line}" for line in [*_headings(table, layout), *_body(table, layout)]),
        r"    \bottomrule",
        r"  \end{tabular}}",
    ]
    if table.notes:
        notes = (escape(note, breaks=True) for note in table.notes)
        text = " ".join(note if note.endswith((".", "!", "?")) else f"{note}." for note in notes)
        lines += ["", r"  \vspace{3pt}", r"  \parbox{\linewidth}{\footnotesize\raggedright", f"    {text}}}"]
    return "\n".join([*lines, f"\\end{{{layout.environment}}}", ""])


def remarks(table: Table) -> list[str]:
    """Name the columns that are left out."""
    layout = _layout(table)
    if not layout.left_out:
        return []
    left_out = (table.columns[i] for i in layout.left_out)
    names = listed([f"{column.group} {column.header}".strip() for column in left_out])
    keys = ", ".join(table.columns[i].key for i in list(layout.headings)[1:])
    return [
        f"Left out, since not all columns fit: {names}",
        f"Choose the columns with options of a report: {{columns: [{keys}], width: text}}",
    ]


def _layout(table: Table) -> _Layout:
    """Choose the environment and the columns: those that the user chose, or the most important ones."""
    headings, widths, importance, long = {}, {}, {}, set()
    for i, column in enumerate(table.columns):
        texts = [line.cells[i].text for line in table.lines]
        if i > 0 and not any(texts):
            continue
        width = max(map(len, texts), default=0)
        if column.align == "left" and width > _LONG:
            width = _LONG
            long.add(i)
        headings[i] = textwrap.wrap(column.header, max(_HEADING, width), break_long_words=False) or [""]
        widths[i] = max(width, *map(len, headings[i])) + _GAP
        if i > 0 and column.is_optional:
            importance[i] = column.importance
    environment = "table*" if table.width == "text" else "table"
    if table.width == "auto" and sum(widths.values()) > _READABLE["table"]:
        environment = "table*"
    left_out = []
    for i in sorted(importance, key=lambda i: (importance[i], -i)):
        if sum(widths.values()) > _READABLE[environment]:
            left_out.append(i)
            del widths[i], headings[i]
    return _Layout(environment, headings, long, sorted(left_out))


# ---- rows


def _headings(table: Table, layout: _Layout) -> Iterator[str]:
    """Yield the headings of groups with a rule under each, and those of columns."""
    cells, rules, first = [], [], 1
    for group, columns in groupby(table.columns[i].group for i in layout.headings):
        count = len(list(columns))
        cells.append(f"\\multicolumn{{{count}}}{{c}}{{{escape(group)}}}")
        rules += [f"\\cmidrule(lr){{{first}-{first + count - 1}}}"] if group else []
        first += count
    if rules:
        yield f"{' & '.join(cells)} \\\\"
        yield " ".join(rules)
    texts = {i: r" \\ ".join(map(escape, lines)) for i, lines in layout.headings.items()}
    for i, lines in layout.headings.items():
        if len(lines) > 1:
            texts[i] = f"\\shortstack[{table.columns[i].align[0]}]{{{texts[i]}}}"
    yield f"{' & '.join(texts.values())} \\\\"


def _body(table: Table, layout: _Layout) -> Iterator[str]:
    """Yield the rows, with a rule above each section and between rows that are set apart and others."""
    for section in table.sections:
        yield r"\midrule"
        if section.title:
            title = escape(section.title)
            yield f"\\multicolumn{{{len(layout.headings)}}}{{@{{}}l}}{{\\textit{{{title}}}}} \\\\"
        previous = section.lines[0]
        for line in section.lines:
            if line.apart != previous.apart:
                yield r"\midrule"
            cells = " & ".join(_cell(line.cells[i], i in layout.long) for i in layout.headings)
            shade = r"\rowcolor{jestlabours} " if line.ours else ""
            # LaTeX would read a bracket or a star here as an option of the line break before it.
            yield f"{shade}{'{}' if cells.startswith(('[', '*')) else ''}{cells} \\\\"
            previous = line


_SMALL = re.compile(r" (± [0-9.,]+|\[[^A-Za-z]+\])")
"""Matches the deviation or the interval of a number, which is written in small letters."""


def _cell(cell: Cell, breaks: bool) -> str:
    parts = re.split(_SMALL, cell.text, maxsplit=1)
    text, *rest = (escape(part, breaks) for part in parts)
    text = f"\\textbf{{{text}}}" if cell.bold else text
    if rest:
        text += f"\\,{{\\scriptsize {rest[0]}}}{rest[1]}"
    text = f"\\sout{{{text}}}" if cell.struck else text
    text += f"\\textsuperscript{{{escape(cell.mark)}}}" if cell.mark else ""
    if not cell.shade:
        return text
    color = "jestlababove" if cell.shade > 0 else "jestlabbelow"
    # LaTeX would print a space here, and read a bracket as an option.
    return f"\\cellcolor{{{color}!{round(65 * abs(cell.shade))}!white}}{{}}{text}"


_LONG_TEXT = f">{{\\raggedright\\arraybackslash}}p{{{_LONG // 2}em}}"
_FIT = (
    "\\providecommand{\\jestlabfit}[1]{\\sbox0{#1}%\n"
    "  \\ifdim\\wd0>\\linewidth\\resizebox{\\linewidth}{!}{\\usebox0}\\else\\usebox0\\fi}"
)
_COLORS = (
    "\\providecolor{jestlabours}{rgb}{0.9, 0.9, 1.0}\n"
    "\\providecolor{jestlababove}{HTML}{0072B2}\n"
    "\\providecolor{jestlabbelow}{HTML}{D55E00}"
)

# ---- characters

_WRITTEN = {
    **{sign: f"\\{sign}" for sign in "{}$&%#_"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "\n": " ", "−": "$-$", "⁻": "$^{-}$",
}  # fmt: skip
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi mathrm{o} pi rho varsigma "
    "sigma tau upsilon phi chi psi omega"
)
_MATH = {
    **{chr(ord("α") + i): name for i, name in enumerate(_GREEK.split())}, "Δ": "Delta", "±": "pm",
    "×": "times", "∞": "infty", "≥": "geq", "≤": "leq", "≠": "neq", "≈": "approx", "√": "surd",
    "→": "rightarrow", "←": "leftarrow", "↔": "leftrightarrow", "↑": "uparrow", "↓": "downarrow",
    "✓": "surd", "✗": "times", "○": "circ",
}  # fmt: skip
_WITHOUT_FONT = "«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲų"
"""Latin letters that LaTeX's default font does not have."""


def escape(text: str, breaks: bool = False) -> str:
    """Write a text in LaTeX; a character that LaTeX can't print is named by its number.

    Args:
        text: Any characters.
        breaks: Whether a line may end within a long word, after one of its slashes and underscores.
    """
    written = "".join(map(_letter, text))
    return re.sub(r"(/|\\_)", r"\1\\allowbreak{}", written) if breaks else written


def _letter(char: str) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    if char in _MATH:
        return f"$\\{_MATH[char]}$"
    if char in "–—‘’“”…†‡•" or (" " <= char <= "ž" and char.isprintable() and char not in _WITHOUT_FONT):
        return char
    kind, _, plain = unicodedata.decomposition(char).partition(" ")
    if kind in ("<sub>", "<super>") and (sign := chr(int(plain, 16))).isascii():
        return f"${'_' if kind == '<sub>' else '^'}{{{sign}}}$"
    return f"[U+{ord(char):04X}]"
