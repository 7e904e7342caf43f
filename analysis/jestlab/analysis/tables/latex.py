"""A table in LaTeX, for `\\input`: it fits a column of text, or else the page, in letters that can be read.

Nothing is scaled. What makes a table fit, in this order: a smaller size of letters with less between columns,
headings on several lines, long texts that break into lines, and the width of the whole text (`table*`). Where
all of that is not enough the least important columns go (`Column.importance`), and a comment says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, product
from typing import TYPE_CHECKING, NamedTuple

from ..units import listed
from .tex import escape, width

if TYPE_CHECKING:
    from .core import Cell, Column, Line, Table

COLUMN, TEXT = 220.0, 450.0
"""Widths of a column and of the whole text of an article on two columns of A4 paper, the narrowest that is
common, in points."""

_WIDEST_COLUMN = 260.0  # points; what is wider is as wide as a text
_POINTS = {"pt": 1.0, "in": 72.27, "cm": 28.4528, "mm": 2.84528, "bp": 1.00375}
_LENGTH = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(pt|in|cm|mm|bp)\s*")
_LEAST, _MOST = 40.0, 2000.0  # points


class Type(NamedTuple):
    """How the letters of a table are set.

    Attributes:
        command: LaTeX's; empty for the size of the text.
        size: Of the letters, in points, in a document whose text has 10.
        small: Of what is set smaller, in points: spreads and intervals.
        between: `\\tabcolsep`, half of the space between two columns, in points.
    """

    command: str
    size: int
    small: int
    between: float


_TYPES = (
    Type("", 10, 7, 6.0),
    Type(r"\small", 9, 6, 5.0),
    Type(r"\small", 9, 6, 3.5),
    Type(r"\footnotesize", 8, 6, 3.5),
    Type(r"\footnotesize", 8, 6, 2.5),
)
"""From the most pleasant to the densest."""

_LONG = 90.0  # points; a text that is wider may break into lines, down to half of this
_LINES = {"table": 3, "table*": 4}
"""Environment → lines that a cell may have."""
_HEADING_LINES = 3
_RAGGED = {"left": "\\raggedright ", "right": "\\raggedleft ", "center": "\\centering "}
_NOTES = r"\footnotesize"


def parse_width(written: str) -> tuple[float | None, str]:
    """Parse the width that a table may have.

    Args:
        written: "auto" (a column, else the text), "column", "text", or a length such as "3.25in" or "240pt".

    Returns:
        The width in points, None for auto; and the environment, `table` or `table*`.

    Raises:
        ValueError: It is none of these.
    """
    if written == "auto":
        return None, ""
    if written in ("column", "text"):
        return (COLUMN, "table") if written == "column" else (TEXT, "table*")
    found = _LENGTH.fullmatch(written)
    points = float(found[1]) * _POINTS[found[2]] if found else math.nan
    if not _LEAST <= points <= _MOST:
        raise ValueError(
            f"invalid width {written!r}: expected auto, column, text, or a length such as 3.25in or 240pt"
        )
    return points, "table" if points <= _WIDEST_COLUMN else "table*"


def latex(table: Table) -> str:
    """Write a float with booktabs' rules; comments above it name the packages that it needs."""
    layout = _fitted(table)
    columns = layout.columns
    body: list[str] = []
    for i, section in enumerate(table.sections):
        body += ["    \\midrule"] if i else []
        if section.title:
            title = f"\\textit{{{escape(section.title)}}}"
            body.append(f"    \\multicolumn{{{len(columns)}}}{{@{{}}l}}{{{title}}} {layout.end}")
        apart, rows = (
            [layout.row(line) for line in section.lines if line.apart is aside] for aside in (True, False)
        )
        gap = ["    \\addlinespace[2pt]"] if layout.breaks else []
        body += _joined(apart, gap) + (["    \\midrule"] if apart and rows else []) + _joined(rows, gap)
    label = table.label or "tab:" + re.sub(r"[\W_]", "-", table.name)
    shaded = any(line.ours or any(cell.shade for cell in layout.kept(line)) for line in table.lines)
    return "\n".join(
        [
            "% \\usepackage{booktabs}",
            *(["% \\usepackage[table]{xcolor}", _COLOURS] if shaded else []),
            *(["% \\usepackage[normalem]{ulem}"] if table.struck else []),
            *layout.told,
            f"\\begin{{{layout.environment}}}[t]",
            "  \\centering",
            f"  \\caption{{{escape(table.caption, breaks=True)}}}",
            f"  \\label{{{label}}}",
            "  \\vspace{3pt}",
            *([f"  {layout.type.command}"] if layout.type.command else []),
            *(
                [f"  \\setlength{{\\tabcolsep}}{{{layout.type.between:g}pt}}"]
                if layout.type.between != 6
                else []
            ),
            f"  \\begin{{tabular}}{{@{{}}{''.join(layout.alignment)}@{{}}}}",
            "    \\toprule",
            *layout.groups(),
            *layout.headings(),
            "    \\midrule",
            *body,
            "    \\bottomrule",
            "  \\end{tabular}",
            *_notes(table.notes_on(columns), layout),
            f"\\end{{{layout.environment}}}",
            "",
        ]
    )


def remarks(table: Table) -> list[str]:
    """Say in sentences what does not fit: columns that are left out, or that it takes the whole page."""
    return [line.removeprefix("% ") for line in _fitted(table).told]


def _joined(rows: Sequence[str], gap: Sequence[str]) -> list[str]:
    """Put a gap between rows."""
    return [line for i, row in enumerate(rows) for line in ([*gap, row] if i else [row])]


def _notes(notes: Sequence[str], layout: _Layout) -> list[str]:
    """Write the notes under a table, as wide as it is, but not narrow."""
    if not notes:
        return []
    share = round(max(layout.width / layout.room + 0.01, 0.8), 2)
    text = " ".join(
        escape(note if note.endswith((".", "!", "?")) else f"{note}.", breaks=True) for note in notes
    )
    where = "\\linewidth" if share >= 1 else f"{share:.2f}\\linewidth"
    return [
        "",
        "  \\vspace{3pt}",
        f"  \\parbox{{{where}}}{{{_NOTES}\\raggedright",
        f"    {text}}}",
    ]


# ---- layout


@dataclass(frozen=True)
class _Layout:
    """A table that fits.

    Attributes:
        table: The table.
        environment: `table`, or `table*` over all columns of a page.
        room: How wide it may be, in points.
        type: Its letters.
        places: Places of the columns that are shown, among the table's.
        stacked: Whether headings may have several lines.
    """

    table: Table
    environment: str
    room: float
    type: Type
    places: tuple[int, ...]
    stacked: bool

    @property
    def columns(self) -> tuple[Column, ...]:
        """What is shown."""
        return tuple(self.table.columns[place] for place in self.places)

    def kept(self, line: Line) -> list[Cell]:
        """The cells of a row that are shown."""
        return [line.cells[place] for place in self.places]

    @cached_property
    def _bodies(self) -> list[float]:
        """Width of each column without its heading, each cell on one line."""
        return [
            max((_cell_width(line.cells[place], self.type) for line in self.table.lines), default=0.0)
            for place in self.places
        ]

    @cached_property
    def heads(self) -> list[list[str]]:
        """The lines of each column's heading."""
        return [
            _wrapped(column.header, self.type.size, body) if self.stacked else [column.header]
            for column, body in zip(self.columns, self._bodies, strict=True)
        ]

    @cached_property
    def _naturals(self) -> list[float]:
        """Width of each column, each cell on one line."""
        size = self.type.size
        found = [
            max(body, *(width(line, size) for line in head))
            for body, head in zip(self._bodies, self.heads, strict=True)
        ]
        # As LaTeX has it, the last column of a group makes room for the heading over it.
        for group, members in groupby(range(len(found)), key=lambda i: self.columns[i].group):
            *_, last = at = list(members)
            inner = sum(found[i] for i in at) + 2 * self.type.between * (len(at) - 1)
            found[last] += max(0.0, width(group, size) - inner)
        return found

    @cached_property
    def widths(self) -> list[float]:
        """Width of each column; texts break into lines where there is not room for them on one."""
        naturals = self._naturals
        least = [self._least(place, natural) for place, natural in zip(self.places, naturals, strict=True)]
        spare = self.room - self._between - sum(naturals)
        if spare >= 0 or sum(least) == sum(naturals):
            return naturals
        # In proportion to what they hold, but none narrower than it may be.
        widths, long = list(naturals), [i for i in range(len(naturals)) if least[i] < naturals[i]]
        left = self.room - self._between - sum(n for i, n in enumerate(naturals) if i not in long)
        while long:
            share = left / sum(naturals[i] for i in long)
            narrow = [i for i in long if share * naturals[i] < least[i]]
            for i in narrow or long:
                widths[i] = math.ceil(least[i]) if narrow else math.floor(share * naturals[i])
            if not narrow:
                break
            left -= sum(widths[i] for i in narrow)
            long = [i for i in long if i not in narrow]
        return widths

    def _least(self, place: int, natural: float) -> float:
        """How narrow a column may be: as it is, unless it holds long texts."""
        if natural <= _LONG:
            return natural
        pieces = (piece for line in self.table.lines for piece in _pieces(line.cells[place], self.type))
        return min(natural, max(_LONG / 2, *pieces))

    @property
    def _between(self) -> float:
        return 2 * self.type.between * (len(self.places) - 1)

    @cached_property
    def width(self) -> float:
        """Of the whole table."""
        whole = sum(self.widths) + self._between
        titles = (width(section.title, self.type.size) for section in self.table.sections)
        return max(whole, *titles)

    @cached_property
    def breaks(self) -> bool:
        """Whether texts break into lines."""
        return any(w < n for w, n in zip(self.widths, self._naturals, strict=True))

    @cached_property
    def lines(self) -> int:
        """Of the tallest cell."""
        if not self.breaks:
            return 1
        tall = (
            math.ceil(1.15 * width(line.cells[place].text, self.type.size) / self.widths[i])
            for i, place in enumerate(self.places)
            if self.widths[i] < self._naturals[i]
            for line in self.table.lines
        )
        return max(tall, default=1)

    @property
    def fits(self) -> bool:
        """Whether it is no wider than it may be, and no cell is too tall."""
        return self.width <= self.room and self.lines <= _LINES[self.environment]

    @cached_property
    def alignment(self) -> list[str]:
        """Of each column, as `tabular` has it."""
        return [
            f"p{{{w:g}pt}}" if w < natural else column.align[0]
            for column, w, natural in zip(self.columns, self.widths, self._naturals, strict=True)
        ]

    @property
    def end(self) -> str:
        """What ends a row."""
        return r"\tabularnewline" if self.breaks else r"\\"

    @property
    def told(self) -> list[str]:
        """Comments on what does not fit."""
        said = [any(line.cells[i].text for line in self.table.lines) for i in range(len(self.table.columns))]
        gone = [c for i, c in enumerate(self.table.columns) if i not in self.places and said[i]]
        asked, environment = parse_width(self.table.width)
        if not gone and self.width > self.room:
            return [f"% Wider than the {self.room:.0f}pt that it may have."]
        if not gone and asked is not None and environment != self.environment:
            return [f"% All its columns do not fit into {asked:.0f}pt: set over the whole page."]
        if not gone:
            return []
        keys = [_plain(column.key) for column in self.columns[1:]]
        return [
            f"% Left out, since all columns do not fit into {self.room:.0f}pt: "
            f"{listed([_plain(f'{column.group} {column.header}'.strip()) for column in gone])}.",
            f"% To choose, name them by their keys: columns: [{', '.join(keys)}] in the spec, or",
            f"% --columns {','.join(keys)}; left out: {', '.join(_plain(column.key) for column in gone)}.",
        ]

    # ---- writing

    def groups(self) -> list[str]:
        """Write the headings over groups of columns, each with a rule under it; empty if there are none."""
        cells, rules, first = [], [], 1
        for group, members in groupby(self.columns, key=lambda column: column.group):
            count = len(list(members))
            if group:
                edges = ["@{}" * (first == 1), "@{}" * (first + count > len(self.columns))]
                cells.append(f"\\multicolumn{{{count}}}{{{edges[0]}c{edges[1]}}}{{{escape(group)}}}")
                rules.append(f"\\cmidrule(lr){{{first}-{first + count - 1}}}")
            else:
                cells += [""] * count
            first += count
        return [f"    {' & '.join(cells)} {self.end}", "    " + " ".join(rules)] if rules else []

    def headings(self) -> list[str]:
        """Write the headings, the last line of each just above the rule."""
        height = max(map(len, self.heads))
        rows = [[""] * (height - len(head)) + head for head in self.heads]
        return [f"    {' & '.join(escape(row[line]) for row in rows)} {self.end}" for line in range(height)]

    def row(self, line: Line) -> str:
        """Write a row."""
        shade = "\\rowcolor{jestlabours} " if line.ours else ""
        written = [
            (_RAGGED[column.align] if w < natural else "") + _written(cell, breaks=w < natural)
            for column, cell, w, natural in zip(
                self.columns, self.kept(line), self.widths, self._naturals, strict=True
            )
        ]
        cells = " & ".join(written)
        # What begins with a bracket or a star would be read as an option of the line break before it.
        return f"    {shade}{'{}' if cells.startswith(('[', '*')) else ''}{cells} {self.end}"


def _fitted(table: Table) -> _Layout:
    """Find how a table fits: the first way of those from the most pleasant on; else without some columns."""
    room, environment = parse_width(table.width)
    # A column that says nothing in any row says nothing on paper.
    says = [any(line.cells[i].text for line in table.lines) for i in range(len(table.columns))]
    places = tuple(place for place in range(len(says)) if says[place] or place == 0)
    rooms = [(room, environment)] if room is not None else [(COLUMN, "table"), (TEXT, "table*")]
    for layout in _ways(table, rooms, places):
        if layout.fits:
            return layout
    room, environment = rooms[-1]
    if (
        table.chosen and environment == "table"
    ):  # what somebody has named goes over the page, and is all there
        room, environment = TEXT, "table*"
    while True:
        ways = list(_ways(table, [(room, environment)], places))
        # A cell that is tall is better than one that is missing.
        found = next((way for way in ways if way.fits), None) or next(
            (way for way in ways if way.width <= way.room and way.lines <= 2 * _LINES[environment]), None
        )
        less = _without_least(table.columns, places)
        if found is not None or less == places:
            return found or ways[-1]
        places = less


def _ways(table: Table, rooms: Iterable[tuple[float, str]], places: tuple[int, ...]) -> Iterator[_Layout]:
    """Yield ways to lay out a table."""
    for (room, environment), type_ in product(rooms, _TYPES):
        for stacked in (False, True):
            yield _Layout(table, environment, room, type_, places, stacked)


def _without_least(columns: Sequence[Column], places: tuple[int, ...]) -> tuple[int, ...]:
    """Leave out the least important column, of several the last; the first, and essential ones, stay."""
    from .core import ESSENTIAL

    others = [place for place in places[1:] if columns[place].importance < ESSENTIAL]
    if not others:
        return places
    least = min(others, key=lambda place: (columns[place].importance, -place))
    return tuple(place for place in places if place != least)


def _wrapped(heading: str, size: int, room: float) -> list[str]:
    """Break a heading into as few lines as make it no wider than its column, or as narrow as it can be."""
    words = heading.split(" ")
    best = [heading]
    for count in range(1, min(_HEADING_LINES, len(words)) + 1):
        splits = [split for split in _splits(words, count) if count == 1 or min(map(len, split)) > 1]
        lines = min(splits, key=lambda found: max(width(line, size) for line in found), default=best)
        if max(width(line, size) for line in lines) < max(width(line, size) for line in best):
            best = lines
        if max(width(line, size) for line in best) <= room:
            break
    return best


def _splits(words: Sequence[str], count: int) -> Iterator[list[str]]:
    """Yield all ways to write words on a number of lines."""
    if count == 1:
        yield [" ".join(words)]
        return
    for end in range(1, len(words) - count + 2):
        for rest in _splits(words[end:], count - 1):
            yield [" ".join(words[:end]), *rest]


# ---- cells

_SPREAD = re.compile(r"(?P<main>.*?) ± (?P<spread>[0-9.,]+)(?P<rest>.*)")
_INTERVAL = re.compile(r"(?P<main>.*?) \[(?P<ends>[0-9.,+− ]+)\](?P<rest>.*)")


class _Parts(NamedTuple):
    """What a cell says: the number that is read first, what is set smaller behind it, and the rest."""

    main: str
    small: str
    rest: str


def _parts(cell: Cell) -> _Parts:
    if found := _SPREAD.fullmatch(cell.text):
        return _Parts(found["main"], f"±{found['spread']}", found["rest"])
    if found := _INTERVAL.fullmatch(cell.text):
        return _Parts(found["main"], f"[{found['ends']}]", found["rest"])
    return _Parts(cell.text, "", "")


def _written(cell: Cell, breaks: bool) -> str:
    """Write a cell: what spreads and intervals say is smaller, on the same line."""
    main, small, rest = _parts(cell)
    text = escape(main, breaks)
    text = f"\\textbf{{{text}}}" if cell.bold else text
    if small:
        index = small.replace("±", r"\pm ").replace("−", "-").replace(", ", r",\,")
        text += f"\\,$\\scriptstyle{{}}{index}$"
    text += escape(rest, breaks)
    text = f"\\sout{{{text}}}" if cell.struck else text
    text += f"\\textsuperscript{{{escape(cell.mark)}}}" if cell.mark else ""
    if not cell.shade:
        return text
    colour = "jestlababove" if cell.shade > 0 else "jestlabbelow"
    # A space here would be printed, and a bracket read as an option.
    return f"\\cellcolor{{{colour}!{round(65 * abs(cell.shade))}!white}}{{}}{text}"


def _cell_width(cell: Cell, type_: Type) -> float:
    main, small, rest = _parts(cell)
    # Thin spaces, of a sixth of the size, stand before it and within.
    index = width(small.replace(", ", ","), type_.small) + type_.size / 3 if small else 0.0
    mark = width(cell.mark, type_.small + 1) + 0.5 if cell.mark else 0.0
    return width(main, type_.size, cell.bold) + index + width(rest, type_.size) + mark


def _pieces(cell: Cell, type_: Type) -> Iterator[float]:
    """Yield the widths of the parts of a cell between which a line may end."""
    main, small, rest = _parts(cell)
    if small:
        yield _cell_width(replace(cell, text=cell.text.removesuffix(rest)), type_)
    for text in (rest,) if small else (main, rest):
        yield from (width(word, type_.size, bold=True) for word in re.split(r"\s+|(?<=[/_-])", text))


_COLOURS = (
    "\\providecolor{jestlabours}{rgb}{0.9, 0.9, 1.0}\n"
    "\\providecolor{jestlababove}{HTML}{0072B2}\n"
    "\\providecolor{jestlabbelow}{HTML}{D55E00}"
)


def _plain(text: str) -> str:
    """A text as a comment may hold it: ASCII, on one line."""
    return " ".join(text.encode("ascii", "backslashreplace").decode().split())
