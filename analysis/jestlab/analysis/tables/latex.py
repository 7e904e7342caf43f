r"""Write a table in LaTeX, for `\input`: a float with booktabs rules.

LaTeX shrinks a table that is wider than its column (`\resizebox`). This module counts characters to choose
between one column and the full width, and to leave out the least important columns (`Column.importance`) of a
table that would become too small to read.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ..units import listed, sentence

if TYPE_CHECKING:
    from .core import Cell, Column, Table

_READABLE = {"table": 62, "table*": 142}
"""Environment → characters that fit a line of a two-column article if letters shrink by up to a third."""

_GAP = 2  # characters between columns
_LONG = 30  # characters; longer texts are broken into lines
_HEADING = 7  # characters; longer headings are broken into lines if they are wider than the cells below

_FIT = (
    "\\providecommand{\\jestlabfit}[1]{\\sbox0{#1}%\n"
    "  \\ifdim\\wd0>\\linewidth\\resizebox{\\linewidth}{!}{\\usebox0}\\else\\usebox0\\fi}"
)
_BELOW = "\n  \\vspace{3pt}\n  \\parbox{\\linewidth}{\\footnotesize\\raggedright\n    "


class _Printed(NamedTuple):
    """A column that is printed: its place in the table, lines of its heading, and width in characters."""

    place: int
    column: Column
    heading: list[str]
    width: int
    is_long: bool

    @property
    def alignment(self) -> str:
        """The specification of the column in the argument of `tabular`."""
        long = f">{{\\raggedright\\arraybackslash}}p{{{_LONG // 2}em}}"
        return long if self.is_long else self.column.align[0]


def latex(table: Table) -> str:
    """Write a float; comments above it name the required packages and the columns that do not fit."""
    environment, columns, omitted = _layout(table)
    label = table.label or "tab:" + re.sub(r"[\W_]", "-", table.name)
    notes = " ".join(sentence(escape(note, breaks=True)) for note in table.notes)
    caption = table.caption.removeprefix(f"{''.join(table.experiments[:1])}: ")  # an internal name
    below = f"{_BELOW}{notes}}}\n" if notes else ""
    lines = [
        r"% \usepackage{array, booktabs, graphicx}",
        *([r"% \usepackage[normalem]{ulem}"] if table.struck else []),
        _FIT,
        *([f"% Left out, since not all columns fit: {listed(omitted)}"] if omitted else []),
        f"\\begin{{{environment}}}[t]",
        r"  \centering",
        f"  \\caption{{{escape(caption, breaks=True)}}}",
        f"  \\label{{{label}}}",
        r"  \vspace{3pt}",
        r"  \setlength{\tabcolsep}{4pt}",
        f"  \\jestlabfit{{\\begin{{tabular}}{{@{{}}{''.join(each.alignment for each in columns)}@{{}}}}",
        r"    \toprule",
        *(f"    {line}" for line in [*_headings(columns), *_body(table, columns)]),
        r"    \bottomrule",
        r"  \end{tabular}}",
        f"{below}\\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


def left_out(table: Table) -> list[str]:
    """Name the columns that do not fit."""
    return _layout(table)[2]


def _layout(table: Table) -> tuple[str, list[_Printed], list[str]]:
    """Choose the environment and the columns, and name columns that do not fit; empty ones are dropped."""
    columns = []
    for place, column in enumerate(table.columns):
        width = max((len(line.cells[place].text) for line in table.lines), default=0)
        is_long = column.align == "left" and width > _LONG
        width = _LONG if is_long else width
        heading = textwrap.wrap(column.header, max(_HEADING, width), break_long_words=False) or [""]
        if width or not place:
            width = max(width, *map(len, heading)) + _GAP
            columns.append(_Printed(place, column, heading, width, is_long))
    is_wide = table.width == "auto" and sum(each.width for each in columns) > _READABLE["table"]
    environment = "table*" if is_wide or table.width == "text" else "table"
    optional = [each for each in columns[1:] if each.column.is_optional]
    optional.sort(key=lambda each: -each.column.importance)
    omitted = []
    while optional and sum(each.width for each in columns) > _READABLE[environment]:
        omitted.append(optional.pop())
        columns.remove(omitted[-1])
    return environment, columns, [each.column.title for each in sorted(omitted)]


# ---- rows


def _headings(columns: Sequence[_Printed]) -> Iterator[str]:
    """Yield the headings of groups with a rule under each, and those of columns."""
    cells, rules, first = [], [], 1
    for group, members in groupby(each.column.group for each in columns):
        last = first + len(list(members)) - 1
        cells.append(f"\\multicolumn{{{last - first + 1}}}{{c}}{{{escape(group)}}}")
        rules += [f"\\cmidrule(lr){{{first}-{last}}}"] if group else []
        first = last + 1
    if rules:
        yield f"{' & '.join(cells)} \\\\"
        yield " ".join(rules)
    texts = []
    for each in columns:
        text = r" \\ ".join(map(escape, each.heading))
        texts.append(f"\\shortstack[{each.column.align[0]}]{{{text}}}" if len(each.heading) > 1 else text)
    yield f"{' & '.join(texts)} \\\\"


def _body(table: Table, columns: Sequence[_Printed]) -> Iterator[str]:
    """Yield the rows, with a rule above each section and between rows that are set apart and others."""
    for title, lines in table.sections:
        yield r"\midrule"
        if title:
            yield f"\\multicolumn{{{len(columns)}}}{{@{{}}l}}{{\\textit{{{escape(title)}}}}} \\\\"
        previous = lines[0]
        for line in lines:
            if line.apart != previous.apart:
                yield r"\midrule"
            cells = " & ".join(_cell(line.cells[each.place], each.is_long) for each in columns)
            # LaTeX would read a bracket or a star here as an option of the line break before it.
            yield f"{'{}' if cells.startswith(('[', '*')) else ''}{cells} \\\\"
            previous = line


def _cell(cell: Cell, breaks: bool) -> str:
    text = escape(cell.text, breaks)
    text = f"\\textbf{{{text}}}" if cell.bold else text
    text = f"\\sout{{{text}}}" if cell.struck else text
    return text + (f"\\textsuperscript{{{escape(cell.mark)}}}" if cell.mark else "")


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
_NOT_IN_FONT = "«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲų"
"""Latin letters that LaTeX's default font does not have."""


def escape(text: str, breaks: bool = False) -> str:
    """Escape a text for LaTeX. A character that LaTeX can't print is replaced by its code point, [U+1F600].

    Args:
        text: Any characters.
        breaks: Whether a line may end after slashes and underscores within a word.
    """
    written = "".join(map(_letter, text))
    return re.sub(r"(/|\\_)", r"\1\\allowbreak{}", written) if breaks else written


def _letter(char: str) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    if char in _MATH:
        return f"$\\{_MATH[char]}$"
    if char in "–—‘’“”…†‡•" or (" " <= char <= "ž" and char.isprintable() and char not in _NOT_IN_FONT):
        return char
    kind, _, plain = unicodedata.decomposition(char).partition(" ")
    if kind in ("<sub>", "<super>") and (sign := chr(int(plain, 16))).isascii():
        return f"${'_' if kind == '<sub>' else '^'}{{{sign}}}$"
    return f"[U+{ord(char):04X}]"
