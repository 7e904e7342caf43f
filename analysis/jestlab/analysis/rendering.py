"""A table once, in every format: Markdown, LaTeX, CSV, HTML, JSON.

The frame holds raw numbers and goes out as it is in CSV and JSON. The columns say how a row of it is shown to
people; Markdown, LaTeX and HTML share those texts, and differ in how they escape and emphasise them.
"""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import pandas as pd

Format = Literal["md", "latex", "csv", "html", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

_WIDTH = 100  # of captions and notes in Markdown, characters

Record = Mapping[str, Any]
"""A row of the frame."""


@dataclass(frozen=True)
class Column:
    """How one column is shown.

    Attributes:
        header: Its heading.
        show: The text of a row's cell.
        rank: The figure by which the best row is found and set in bold, as rounded as it is shown, so that
            what looks equal is bold together; NaN stays out. None: nothing is bold.
        align: Side to which the cells are aligned.
    """

    header: str
    show: Callable[[Record], str]
    rank: Callable[[Record], float] | None = None
    align: Literal["left", "right"] = "right"


@dataclass(frozen=True)
class _Cell:
    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of results, ready to be printed.

    Attributes:
        name: Short, for file names and labels.
        caption: What the numbers are.
        frame: Raw numbers, one row a line of the table. Its bool column `apart` marks rows that do not
            compete: they are shown first, set off, and are never the best.
        columns: What is shown of it.
        notes: What a reader must know besides: conventions; runs that are missing, and why.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()

    def render(self, format: Format) -> str:
        """The table in a format; the text ends with a newline."""
        writers: dict[Format, Callable[[], str]] = {
            "md": self.markdown,
            "latex": self.latex,
            "csv": self.csv,
            "html": self.html,
            "json": self.json,
        }
        return writers[format]()

    def markdown(self) -> str:
        """A GitHub table whose columns also line up in a terminal; rows that stand apart in italics."""
        apart, rows = self._body()
        lines = [[_markdown_escape(column.header) for column in self.columns]]
        lines += [
            [
                f"*{_markdown_escape(cell.text)}*" if i == 0 else _markdown_escape(cell.text)
                for i, cell in enumerate(row)
            ]
            for row in apart
        ]
        lines += [
            [
                f"**{_markdown_escape(cell.text)}**" if cell.bold else _markdown_escape(cell.text)
                for cell in row
            ]
            for row in rows
        ]
        widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(self.columns))]
        padded = [
            "| "
            + " | ".join(
                text.ljust(width) if column.align == "left" else text.rjust(width)
                for text, width, column in zip(line, widths, self.columns, strict=True)
            )
            + " |"
            for line in lines
        ]
        rule = (
            "|"
            + "|".join(
                f":{'-' * (width + 1)}" if column.align == "left" else f"{'-' * (width + 1)}:"
                for width, column in zip(widths, self.columns, strict=True)
            )
            + "|"
        )
        text = [*padded[:1], rule, *padded[1:], "", textwrap.fill(_markdown_escape(self.caption), _WIDTH)]
        notes = [f"- {_markdown_escape(note)}" for note in self.notes]
        text += (
            ["", *(textwrap.fill(note, _WIDTH, subsequent_indent="  ") for note in notes)] if notes else []
        )
        return "\n".join(text) + "\n"

    def latex(self) -> str:
        """A `table` for a paper; needs the package booktabs."""
        apart, rows = self._body()

        def line(cells: Sequence[_Cell]) -> str:
            texts = [
                f"\\textbf{{{_latex_escape(c.text)}}}" if c.bold else _latex_escape(c.text) for c in cells
            ]
            return "    " + " & ".join(texts) + r" \\"

        alignment = "".join(column.align[0] for column in self.columns)
        header = line([_Cell(column.header) for column in self.columns])
        body = [line(row) for row in apart] + (["    \\midrule"] if apart and rows else [])
        body += [line(row) for row in rows]
        notes = "".join(f" {_latex_escape(note)}." for note in self.notes)
        return "\n".join(
            [
                "% \\usepackage{booktabs}",
                "\\begin{table}",
                "  \\centering",
                f"  \\caption{{{_latex_escape(self.caption)}{notes}}}",
                f"  \\label{{tab:{_slug(self.name)}}}",
                f"  \\begin{{tabular}}{{@{{}}{alignment}@{{}}}}",
                "    \\toprule",
                header,
                "    \\midrule",
                *body,
                "    \\bottomrule",
                "  \\end{tabular}",
                "\\end{table}",
                "",
            ]
        )

    def csv(self) -> str:
        """Raw numbers, one row a line of the table; an empty cell where there is none."""
        return str(self.frame.to_csv(index=False, lineterminator="\n"))

    def json(self) -> str:
        """Raw numbers with name, caption and notes; null where there is none."""
        rows = [{str(key): _plain(value) for key, value in row.items()} for row in self._records()]
        content = {"name": self.name, "caption": self.caption, "notes": list(self.notes), "rows": rows}
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def html(self) -> str:
        """A table that stands on its own: its style with it, ASCII throughout, so that no charset matters."""
        apart, rows = self._body()

        def line(cells: Sequence[_Cell], css: str = "") -> str:
            texts = [f"<b>{html.escape(c.text)}</b>" if c.bold else html.escape(c.text) for c in cells]
            data = "".join(f"<td>{text}</td>" for text in texts[1:])
            return f'<tr{css}><th scope="row">{texts[0]}</th>{data}</tr>'

        headers = "".join(f'<th scope="col">{html.escape(column.header)}</th>' for column in self.columns)
        notes = "".join(f"<br>{html.escape(note)}" for note in self.notes)
        text = "\n".join(
            [
                f"<style>{_CSS}</style>",
                '<table class="jestlab">',
                f"<caption>{html.escape(self.caption)}{notes}</caption>",
                f"<thead><tr>{headers}</tr></thead>",
                "<tbody>",
                *(line(row, ' class="apart"') for row in apart),
                *(line(row) for row in rows),
                "</tbody>",
                "</table>",
                "",
            ]
        )
        return text.encode("ascii", "xmlcharrefreplace").decode()

    def _records(self) -> list[dict[str, Any]]:
        return [{str(key): value for key, value in row.items()} for row in self.frame.to_dict("records")]

    def _body(self) -> tuple[list[list[_Cell]], list[list[_Cell]]]:
        """Rows that stand apart, and the others, with the best of each column in bold."""
        records = self._records()
        competing = [row for row in records if not row["apart"]]
        best = {
            i: max((rank for row in competing if (rank := column.rank(row)) == rank), default=None)
            for i, column in enumerate(self.columns)
            if column.rank is not None
        }

        def cells(row: Record, competes: bool) -> list[_Cell]:
            return [
                _Cell(
                    column.show(row),
                    bold=competes and column.rank is not None and column.rank(row) == best[i],
                )
                for i, column in enumerate(self.columns)
            ]

        apart = [cells(row, False) for row in records if row["apart"]]
        return apart, [cells(row, True) for row in competing]


_CSS = (
    "table.jestlab{border-collapse:collapse;font:14px/1.5 system-ui,sans-serif;"
    "font-variant-numeric:tabular-nums;border-block:2px solid}"
    "table.jestlab caption{caption-side:bottom;text-align:left;font-size:12px;padding-top:6px}"
    "table.jestlab th,table.jestlab td{padding:2px 10px;text-align:right;font-weight:400;white-space:nowrap}"
    "table.jestlab b{font-weight:700}"
    "table.jestlab tr>:first-child{text-align:left}"
    "table.jestlab thead th,table.jestlab tr.apart>*{border-bottom:1px solid}"
    "table.jestlab tr.apart{font-style:italic}"
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
    "λ": r"$\lambda$",
    "\n": " ",
}


def _latex_escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _markdown_escape(text: str) -> str:
    """Keep a text from being read as Markdown: one line, and none of the characters that would format it."""
    text = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\|*`<[" else character for character in text)


def _slug(text: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in text)


def _plain(value: Any) -> Any:
    """A value of a frame as JSON has it: NumPy's scalars as Python's, null for what is no finite number."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and value - value != 0 else value
