"""Print the output of verbs as text or JSON, write it to files, and show progress bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from jestlab.platform.errors import UserError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from jestlab.platform.render import Block


def say(blocks: Block | Iterable[Block] = "", *, err: bool = False, fit: bool = True) -> None:
    """Print text and tables without control characters, fitted to the width of a terminal.

    Args:
        blocks: One or several texts or tables.
        err: Print to standard error. In a pipe, lines are then never wrapped, even if COLUMNS is set: other
            programs expect one line per error.
        fit: Whether to fit to the width; False for commands and addresses that users copy.
    """
    from jestlab.platform.render import has_styles, render, width

    stream = sys.stderr if err else sys.stdout
    limit = width(stream) if fit and (stream.isatty() or not err) else None
    click.echo(render(blocks, limit, has_styles(stream)), err=err, color=True)


def print_json(data: Any) -> None:
    """Print data as JSON, with control characters escaped. Infinities and NaN are texts: JSON lacks them."""
    from jestlab.platform.render import escape_controls

    text = json.dumps(data, default=datetime.isoformat)
    data = json.loads(text, parse_constant=lambda name: str(float(name)))
    click.echo(escape_controls(json.dumps(data, ensure_ascii=False)))


def show(as_json: bool, data: Any, text: Block | Iterable[Block]) -> None:
    """Print data as JSON if `as_json`, else print the text."""
    if as_json:
        print_json(data)
    else:
        say(text)


Columns = Mapping[str, str | Callable[[Any], object]]
"""Header → name of an attribute of the row, or a function of the row."""


def show_rows(as_json: bool, rows: Sequence[Any], columns: Columns, empty: str) -> None:
    """Print records as a JSON list, or as a table.

    Args:
        as_json: Whether to print JSON.
        rows: Dataclass objects, or named tuples.
        columns: Columns of the table. JSON has all attributes.
        empty: Text to print instead of a table without rows.
    """
    from jestlab.platform.render import table
    from jestlab.platform.words import on_one_line

    def cell(row: Any, column: str | Callable[[Any], object]) -> str:
        value = getattr(row, column) if isinstance(column, str) else column(row)
        return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else on_one_line(str(value))

    data = [row._asdict() if isinstance(row, tuple) else asdict(row) for row in rows]  # type: ignore[attr-defined]
    cells = [[cell(row, column) for column in columns.values()] for row in rows]
    show(as_json, data, table(list(columns), cells) if rows else empty)


@contextmanager
def writing(place: Path, action: str = "cannot write to") -> Iterator[None]:
    """Convert an OSError of a file operation to a UserError: "{action} {place}: {reason}"."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # raised by jestlab with a full message
            raise
        raise UserError(f"{action} {place}: {error.strerror}") from error


def default_format(path: Path | None) -> Literal["text", "md"]:
    """Return the default format of a table: text on a terminal; Markdown in a pipe or a file."""
    return "text" if path is None and sys.stdout.isatty() else "md"


def print_or_write_blocks(path: Path | None, blocks: Block | Iterable[Block]) -> None:
    """Print blocks; with a path, write them to the file in full width and print its name."""
    from jestlab.platform.render import render

    if path is None:
        say(blocks)
    else:
        print_or_write(path, render(blocks) + "\n")


def print_or_write(path: Path | None, content: str | bytes, name: str | None = None) -> None:
    """Print the content; with a path, write it to the file atomically and print `name`, or else the path.

    The content is unchanged, except that a terminal receives no control characters.

    Raises:
        UserError: The file cannot be written; an existing file stays unchanged.
    """
    if path is None:
        if isinstance(content, str) and sys.stdout.isatty():
            from jestlab.platform.render import without_controls

            content = without_controls(content)
        click.echo(content, nl=False, color=True)
        return
    from jestlab.analysis import files

    with writing(path, "cannot write"):
        files.write_whole(path, content)
    say(name or str(path))


# ---- progress


@contextmanager
def reporting(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if standard error is a terminal. Yield a function to call with (done, total)."""
    with _bar(title, None) as (progress, task):
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def counting(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar like `reporting`. Yield a function to call with the number of newly done items."""
    with _bar(title, total) as (progress, task):
        yield lambda count: progress.advance(task, count)


@contextmanager
def _bar(title: str, total: int | None) -> Iterator[tuple[Progress, TaskID]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress, progress.add_task(title, total=total)
