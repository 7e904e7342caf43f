r"""Write a table in LaTeX, for `\input`: booktabs rules, in one column of a paper or across the page.

LaTeX does the typesetting. Only the choice of a layout happens here, from counts of characters: a table that
doesn't fit gets smaller letters, breaks long texts into lines (`tabularx`), spans the page (`table*`), and
finally loses its least important columns (`Column.importance`), which a comment in the file names.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from typing import TYPE_CHECKING, NamedTuple

from ..errors import RequestError
from ..units import listed

if TYPE_CHECKING:
    from .core import Cell, Column, Table

COLUMN, TEXT = 220.0, 450.0
"""Width in points of a column and of the text of a two-column article on A4, the narrowest common paper."""

_WIDEST_COLUMN = 260.0  # points; a wider table spans the page
_POINTS = {"pt": 1.0, "in": 72.27, "cm": 28.4528, "mm": 2.84528, "bp": 1.00375}
_LENGTH = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(pt|in|cm|mm|bp)\s*")
_MIN_WIDTH, _MAX_WIDTH = 40.0, 2000.0  # points

_SIZES = {"": (10.0, 6.0), "\\footnotesize": (8.5, 3.0)}
"""Command for the size of letters → em, and half the space between columns (`tabcolsep`), in points."""

_LONG = 14.0  # em; longer texts break into lines
_MAX_LINES = 4  # of a text in a cell
_HEADING = 10  # characters; longer headings break into lines if they are wider than the cells below


def parse_width(written: str) -> tuple[float | None, str]:
    """Parse the width that a table may have.

    Args:
        written: "auto" (a column, else the text), "column", "text", or a length such as "3.25in" or "240pt".

    Returns:
        The width in points, None for auto; and the environment, `table` or `table*`.

    Raises:
        ValueError: The width is invalid.
    """
    if written == "auto":
        return None, ""
    if written in ("column", "text"):
        return (COLUMN, "table") if written == "column" else (TEXT, "table*")
    match = _LENGTH.fullmatch(written)
    points = float(match[1]) * _POINTS[match[2]] if match else math.nan
    if not _MIN_WIDTH <= points <= _MAX_WIDTH:
        raise RequestError(
            f"invalid width {written!r}: expected auto, column, text, or a length such as 3.25in or 240pt"
        )
    return points, "table" if points <= _WIDEST_COLUMN else "table*"


def latex(table: Table) -> str:
    """Write a float; comments above it name the packages that it needs."""
    layout = _fitting(table)
    breaks = any(each.breaks for each in layout.shown.values())
    kind = r"tabularx}{\linewidth" if breaks else "tabular"
    label = table.label or "tab:" + re.sub(r"[\W_]", "-", table.name)
    notes = [escape(note, breaks=True) for note in table.notes_on([table.columns[i] for i in layout.shown])]
    shaded = any(line.ours or any(cell.shade for cell in line.cells) for line in table.lines)
    lines = [
        r"% \usepackage{booktabs}",
        *([r"% \usepackage{tabularx}"] if breaks else []),
        *([r"% \usepackage[table]{xcolor}", _COLORS] if shaded else []),
        *([r"% \usepackage[normalem]{ulem}"] if table.struck else []),
        *(f"% {line}" for line in layout.remarks),
        f"\\begin{{{layout.environment}}}[t]",
        r"  \centering",
        f"  \\caption{{{escape(table.caption, breaks=True)}}}",
        f"  \\label{{{label}}}",
        r"  \vspace{3pt}",
        *([f"  {layout.size}", f"  \\setlength{{\\tabcolsep}}{{{layout.gap:g}pt}}"] if layout.size else []),
        f"  \\begin{{{kind}}}{{@{{}}{layout.alignment}@{{}}}}",
        r"    \toprule",
        *(f"    {line}" for line in [*_headings(layout), *_body(layout)]),
        r"    \bottomrule",
        f"  \\end{{{kind.partition('}')[0]}}}",
    ]
    if notes:
        text = " ".join(note if note.endswith((".", "!", "?")) else f"{note}." for note in notes)
        lines += ["", r"  \vspace{3pt}", r"  \parbox{\linewidth}{\footnotesize\raggedright", f"    {text}}}"]
    return "\n".join([*lines, f"\\end{{{layout.environment}}}", ""])


def remarks(table: Table) -> list[str]:
    """Name the columns that are left out, or say that the table spans the page or doesn't fit."""
    return _fitting(table).remarks


# ---- layout


class _Measures(NamedTuple):
    """Measures of a column: lines of its heading; width in em; whether its texts break into lines."""

    heading: list[str]
    width: float
    breaks: bool


class _Layout(NamedTuple):
    """The layout of a table.

    Attributes:
        table: The table.
        room: Maximum width, in points.
        environment: `table`, or `table*`, which spans the page.
        size: Key of `_SIZES`.
        shown: Index of each column that is shown → its measures.
        dropped: Indices of columns that don't fit.
    """

    table: Table
    room: float
    environment: str
    size: str
    shown: dict[int, _Measures]
    dropped: Sequence[int]

    @property
    def gap(self) -> float:
        """Half the space between columns, in points."""
        return _SIZES[self.size][1]

    @property
    def fits(self) -> bool:
        """Whether the table fits into the width; columns of long texts share the remaining width."""
        groups = {i: self.table.columns[i].group for i in self.shown}
        sizes = Counter(groups.values())
        texts = [each.width for each in self.shown.values() if each.breaks]
        widths = [max(texts, default=0.0) * len(texts)]
        for i, each in self.shown.items():
            widths.append(0.0 if each.breaks else max(each.width, _ems(groups[i]) / sizes[groups[i]]))
        titles = (_ems(section.title) for section in self.table.sections)
        em = _SIZES[self.size][0]
        return max(sum(widths), *titles) * em + 2 * self.gap * (len(self.shown) - 1) <= self.room

    @property
    def alignment(self) -> str:
        """The columns, as `tabular` specifies them."""
        text = r">{\raggedright\arraybackslash}X"
        columns = self.table.columns
        return "".join(text if each.breaks else columns[i].align[0] for i, each in self.shown.items())

    @property
    def remarks(self) -> list[str]:
        """What doesn't fit, in ASCII."""
        columns = self.table.columns
        wanted, environment = parse_width(self.table.width)
        lines = []
        if self.dropped:
            missing = [columns[i] for i in sorted(self.dropped)]
            headers = listed([f"{column.group} {column.header}".strip() for column in missing])
            keys = ", ".join(columns[i].key for i in list(self.shown)[1:])
            lines = [
                f"Left out, since all columns do not fit into {self.room:.0f}pt: {headers}.",
                f"Choose columns by their keys, in a spec with columns: [{keys}],",
                f"or with --columns {keys.replace(', ', ',')}; "
                f"left out: {', '.join(column.key for column in missing)}.",
            ]
        elif not self.fits:
            lines = [f"Wider than the {self.room:.0f}pt that it may have."]
        elif wanted is not None and environment != self.environment:
            lines = [f"All its columns do not fit into {wanted:.0f}pt: the table spans the page."]
        return [" ".join(line.encode("ascii", "backslashreplace").decode().split()) for line in lines]


def _fitting(table: Table) -> _Layout:
    """Return the first layout that fits, from the most readable one to the one with the fewest columns."""
    from .core import ESSENTIAL

    wanted, environment = parse_width(table.width)
    rooms = [(COLUMN, "table"), (TEXT, "table*")] if wanted is None else [(wanted, environment)]
    if table.chosen and rooms[-1][1] == "table":
        rooms.append((TEXT, "table*"))
    cells = list(zip(*(line.cells for line in table.lines), strict=True))
    used = [i for i in range(len(table.columns)) if i == 0 or any(cell.text for cell in cells[i])]
    shown = {i: _measured(table.columns[i], cells[i]) for i in used}
    ranks = {i: table.columns[i].importance for i in used[1:]}
    optional = sorted((i for i in ranks if ranks[i] < ESSENTIAL), key=lambda i: (ranks[i], -i))
    for count in range(1 if table.chosen else len(optional) + 1):
        dropped = optional[:count]
        for (room, environment), size in product(rooms[-1:] if dropped else rooms, _SIZES):
            kept = {i: shown[i] for i in used if i not in dropped}
            layout = _Layout(table, room, environment, size, kept, dropped)
            if layout.fits:
                return layout
    return layout


def _measured(column: Column, cells: Sequence[Cell]) -> _Measures:
    body = max(map(_cell_ems, cells))
    heading = textwrap.wrap(column.header, max(int(2 * body), _HEADING), break_long_words=False) or [""]
    if column.align != "left" or body <= _LONG:
        return _Measures(heading, max(body, *map(_ems, heading)), False)
    words = (word for cell in cells for word in re.split(r"\s+|(?<=[/_])", cell.text))
    return _Measures(heading, max(body / _MAX_LINES, *map(_ems, [*words, *heading])), True)


_WIDE, _NARROW = set("+−=±×≤≥≈→%&@mwΔ—"), set(" .,:;'!|()[]ijlt")


def _ems(text: str) -> float:
    """Estimate the width of a text in em; all digits are half an em wide."""
    return sum(0.78 if c.isupper() or c in _WIDE else 0.38 if c in _NARROW else 0.5 for c in text)


def _cell_ems(cell: Cell) -> float:
    main, small, rest = _parts(cell)
    return _ems(main) * (1.17 if cell.bold else 1.0) + 0.75 * _ems(small + cell.mark) + _ems(rest)


# ---- rows


def _headings(layout: _Layout) -> Iterator[str]:
    """Yield the headings of groups with a rule under each, and those of columns."""
    cells, rules, first = [], [], 1
    for group, columns in groupby(layout.table.columns[i].group for i in layout.shown):
        count = len(list(columns))
        last = first + count - 1
        if group:
            edges = ("@{}" * (first == 1), "@{}" * (last == len(layout.shown)))
            cells.append(f"\\multicolumn{{{count}}}{{{edges[0]}c{edges[1]}}}{{{escape(group)}}}")
            rules.append(f"\\cmidrule(lr){{{first}-{last}}}")
        else:
            cells += [""] * count
        first = last + 1
    if rules:
        yield f"{' & '.join(cells)} \\\\"
        yield " ".join(rules)
    headings = [measures.heading for measures in layout.shown.values()]
    height = max(map(len, headings))
    for line in zip(*([""] * (height - len(heading)) + heading for heading in headings), strict=True):
        yield f"{' & '.join(map(escape, line))} \\\\"


def _body(layout: _Layout) -> Iterator[str]:
    """Yield the rows, with a rule above each section and between rows that are set apart and others."""
    for section in layout.table.sections:
        yield r"\midrule"
        if section.title:
            yield (
                f"\\multicolumn{{{len(layout.shown)}}}{{@{{}}l}}{{\\textit{{{escape(section.title)}}}}} \\\\"
            )
        previous = section.lines[0]
        for line in section.lines:
            if line.apart != previous.apart:
                yield r"\midrule"
            cells = " & ".join(_cell(line.cells[i], each.breaks) for i, each in layout.shown.items())
            shade = r"\rowcolor{jestlabours} " if line.ours else ""
            # LaTeX would read a bracket or a star here as an option of the line break before it.
            yield f"{shade}{'{}' if cells.startswith(('[', '*')) else ''}{cells} \\\\"
            previous = line


_SMALL = re.compile(r"(.*?) (± [0-9.,]+|\[[0-9.,+− ]+\])(.*)")


def _parts(cell: Cell) -> Sequence[str]:
    """Split a cell: a number, its deviation or interval, which is written in small letters, and the rest."""
    match = _SMALL.fullmatch(cell.text)
    return match.groups() if match else (cell.text, "", "")


def _cell(cell: Cell, breaks: bool) -> str:
    main, small, rest = _parts(cell)
    text = f"\\textbf{{{escape(main, breaks)}}}" if cell.bold else escape(main, breaks)
    if small:
        small = small.replace("± ", r"\pm ").replace("−", "-").replace(", ", r",\,")
        text += f"\\,$\\scriptstyle{{}}{small}${escape(rest, breaks)}"
    text = f"\\sout{{{text}}}" if cell.struck else text
    text += f"\\textsuperscript{{{escape(cell.mark)}}}" if cell.mark else ""
    if not cell.shade:
        return text
    color = "jestlababove" if cell.shade > 0 else "jestlabbelow"
    # LaTeX would print a space here, and read a bracket as an option.
    return f"\\cellcolor{{{color}!{round(65 * abs(cell.shade))}!white}}{{}}{text}"


_COLORS = (
    "\\providecolor{jestlabours}{rgb}{0.9, 0.9, 1.0}\n"
    "\\providecolor{jestlababove}{HTML}{0072B2}\n"
    "\\providecolor{jestlabbelow}{HTML}{D55E00}"
)

# ---- characters

_WRITTEN = {
    **{sign: f"\\{sign}" for sign in "{}$&%#_"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "\n": " ", "–": "--", "—": "---", "−": "$-$",
    "…": r"\dots{}", "’": "'", "‘": "`", "“": "``", "”": "''", "§": r"{\S}", "°": r"$^\circ$", "⁻": "$^{-}$",
    "ß": r"{\ss}", "æ": r"{\ae}", "Æ": r"{\AE}", "œ": r"{\oe}", "Œ": r"{\OE}", "ø": r"{\o}",
    "Ø": r"{\O}", "ł": r"{\l}", "Ł": r"{\L}", "ı": r"{\i}",
}  # fmt: skip
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi mathrm{o} pi rho varsigma "
    "sigma tau upsilon phi chi psi omega"
)
_MATH = {
    **{chr(ord("α") + i): name for i, name in enumerate(_GREEK.split())}, "Δ": "Delta", "µ": "mu",
    "±": "pm", "×": "times", "∞": "infty", "≥": "geq", "≤": "leq", "≠": "neq", "≈": "approx", "√": "surd",
    "→": "rightarrow", "←": "leftarrow", "↔": "leftrightarrow", "↑": "uparrow", "↓": "downarrow",
    "†": "dagger", "‡": "ddagger", "✓": "surd", "✗": "times", "○": "circ", "•": "bullet", "·": "cdot",
}  # fmt: skip
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip


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
    plain = unicodedata.normalize("NFKD", char)
    if char.isascii() or plain == char:
        return char if char.isascii() else f"[U+{ord(char):04X}]"
    for kind, sign in (("<sub>", "_"), ("<super>", "^")):
        if unicodedata.decomposition(char).startswith(kind) and plain.isascii():
            return f"${sign}{{{plain}}}$"
    if plain[0].isascii() and plain[1:] in _ACCENTS:
        return f"\\{_ACCENTS[plain[1:]]}{{{plain[0]}}}"
    return f"[U+{ord(char):04X}]"
