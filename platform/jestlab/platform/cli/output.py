"""What verbs print and write: text and tables for people, JSON, counts in plain English, whole files."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from jestlab.analysis import files
from jestlab.platform.cli.tables import ESSENTIAL, Table
from jestlab.platform.errors import UserError
from jestlab.platform.terminal import OBEYED, Styled, as_styled, has_styles, width, wrapped
from jestlab.platform.words import counted as counted
from jestlab.platform.words import few as few
from jestlab.platform.words import printable as printable

if TYPE_CHECKING:
    from jestlab.platform.planning.plan import Plan


WIDE = "jestlab.wide"
"""Set in the context's `meta` by `--wide`: tables are printed whole."""

Block = str | Styled | Table
"""Text for people: lines of prose, a line with styles, or a table."""


def say(
    text: Block | Iterable[Block] = "", *, err: bool = False, hang: int | None = None, fit: bool = True
) -> None:
    """Print text for people: what a terminal would obey is printed as spaces.

    Names, captions and messages may come from files that nobody has looked at, and a terminal lets its
    output change its title, its colours, what is on the screen, even the clipboard. Bold and colours come
    from `Styled` alone. Lines fit the terminal; in a pipe they are as long as they are. Programs read an
    error as one line, so that COLUMNS counts for errors on a terminal alone.

    Args:
        text: May have several lines, and may be several blocks.
        err: Print to standard error.
        hang: By how many columns a line of prose that is broken goes on indented; by default as it begins.
        fit: Whether lines are broken to fit the terminal; not where they are commands to copy.
    """
    stream = sys.stderr if err else sys.stdout
    most = width(stream) if fit and (stream.isatty() or not err) else None
    click.echo(rendered(text, most, has_styles(stream), hang), err=err, color=True)


def rendered(
    text: Block | Iterable[Block], most: int | None, styles: bool = False, hang: int | None = None
) -> str:
    """Write text for people as `say` prints it.

    Args:
        text: As of `say`.
        most: Columns that a line may take; None for any number.
        styles: Whether bold and colours are wanted.
        hang: As of `say`.
    """
    blocks = [text] if isinstance(text, str | Styled | Table) else text
    return "\n".join(line.shown(styles) for block in blocks for line in _lines(block, most, hang))


def _lines(block: Block, most: int | None, hang: int | None) -> Iterator[Styled]:
    """Yield the lines of a block."""
    if isinstance(block, Table):
        is_wide = (context := click.get_current_context(silent=True)) is not None and context.meta.get(WIDE)
        lines, gone = block.lines(None if is_wide else most)
        yield from lines
        if gone and most is not None:
            left = f"not shown: {', '.join(dict.fromkeys(gone))} (--wide shows all)"
            yield from (line.styled("dim") for line in wrapped(left, most))
        return
    for line in block.split("\n") if isinstance(block, str) else [block]:
        if most is None:
            yield as_styled(line)
        else:
            yield from wrapped(line, most, hang)


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str | Styled] | Styled],
    right: Iterable[int] = (),
    importance: Mapping[str, int] | None = None,
    indent: int = 0,
) -> Table:
    """Make a table of columns that `say` prints: aligned by spaces, whole in a pipe, fitted to a terminal.

    Args:
        headers: One for each column; none is printed if all are empty.
        rows: Cells, as many in each row; or one text for a line over the whole width.
        right: Indices of the columns that are aligned to the right.
        importance: Header → importance, for those columns that may be left out where a terminal is too
            narrow, the least first: such a verb has `--wide`.
        indent: Columns before each line.
    """
    given = importance or {}
    return Table(
        headers,
        [row if isinstance(row, Styled) else [_cell(cell) for cell in row] for row in rows],
        frozenset(right),
        [given.get(header, ESSENTIAL) for header in headers],
        indent,
    )


def _cell(cell: str | Styled) -> str | Styled:
    if isinstance(cell, Styled):
        return Styled(tuple((printable(text), style) for text, style in cell.parts))
    return printable(cell)


def print_json(data: Any, indent: int | None = None) -> None:
    """Print data for a program; what a terminal would obey is escaped."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    click.echo(OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def show(as_json: bool, data: Any, text: Block | Iterable[Block]) -> None:
    """Print data for a program, or the same as text for people."""
    if as_json:
        print_json(data)
    else:
        say(text)


def absent_data(plan: Plan) -> list[str]:
    """Name the data and weights of a plan that do not exist yet, in one line; none where all exist."""
    if not plan.absent:
        return []
    here = Path.cwd()
    names = [
        str(path.relative_to(here) if path.is_relative_to(here) else path) + ("/" if what == "folder" else "")
        for path, what in plan.absent.items()
    ]
    counts = ", ".join(counted(count, what) for what, count in Counter(plan.absent.values()).items())
    return [
        f"not found: {', '.join(names)} ({counts}): until they exist, runs are identified by these paths and "
        "cannot be launched"
    ]


@contextmanager
def writing(place: Path, how: str = "cannot write to") -> Iterator[None]:
    """Context in which a file that cannot be written is an error that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # raised by us, with a sentence of its own
            raise
        raise UserError(f"{how} {place}: {error.strerror}") from error


def default_format(path: Path | None) -> Literal["text", "md"]:
    """Return the format of a table where nobody says: text on a terminal, else Markdown."""
    return "text" if path is None and sys.stdout.isatty() else "md"


def print_or_write_blocks(path: Path | None, blocks: Iterable[Block]) -> None:
    """Print blocks as `say` does, or write them whole to a file and print its name."""
    if path is None:
        say(blocks)
    else:
        print_or_write(path, rendered(blocks, None) + "\n")


def print_or_write(path: Path | None, content: str | bytes, name: str | None = None) -> None:
    """Print the content, or write the file whole or not at all and print its name.

    A terminal gets text as `say` prints it, a pipe and a file get the content as it is.

    Raises:
        UserError: It cannot be written; what was there still is.
    """
    if path is None:
        if isinstance(content, str) and sys.stdout.isatty():
            click.echo(OBEYED.sub(" ", content), nl=False)
        else:
            click.echo(content, nl=False, color=True)  # click would leave out colours
        return
    with writing(path, "cannot write"):
        files.write_whole(path, content)
    say(name or str(path))
