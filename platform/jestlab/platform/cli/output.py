"""What verbs print and write: aligned tables, JSON, counts in plain English, whole files."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jestlab.analysis import files
from jestlab.platform.errors import UserError

if TYPE_CHECKING:
    from jestlab.platform.planning.plan import Plan


# What a terminal obeys, besides line breaks and tabs, or what turns the direction of what follows.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text for people: what a terminal would obey is printed as spaces.

    Names, captions and messages may come from files that nobody has looked at, and a terminal lets its
    output change its title, its colours, what is on the screen, even the clipboard.

    Args:
        text: May have several lines.
        err: Print to standard error.
        nl: End with a line break.
    """
    click.echo(_OBEYED.sub(" ", str(text)), err=err, nl=nl)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Align columns by spaces, each as wide as its widest cell; nothing is cut, so that pipes get it all.

    Args:
        headers: One for each column.
        rows: Cells, as many in each row; each on one line.
        right: Indices of the columns that are aligned to the right.
    """
    lines = [tuple(headers), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    aligned = (
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
    return "\n".join(line.rstrip() for line in aligned)


def print_json(data: Any, indent: int | None = None) -> None:
    """Print data for a program; what a terminal would obey is escaped."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    click.echo(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def show(as_json: bool, data: Any, text: object) -> None:
    """Print data for a program, or the same as text for people."""
    if as_json:
        print_json(data)
    else:
        say(text)


def counted(count: int, noun: str) -> str:
    """Write a count with its noun: "1 run", "3 runs", "2 studies"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def few(labels: Sequence[str]) -> str:
    """Write the first two of some labels, and how many more there are."""
    return ", ".join(labels[:2]) + (f" and {len(labels) - 2} more" if len(labels) > 2 else "")


def printable(text: str) -> str:
    """Replace what a terminal would obey by spaces."""
    return "".join(character if character.isprintable() else " " for character in text)


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


def print_or_write(path: Path | None, content: str | bytes, name: str | None = None) -> None:
    """Print the content, or write the file whole or not at all and print its name.

    A terminal gets text as `say` prints it, a pipe and a file get the content as it is.

    Raises:
        UserError: It cannot be written; what was there still is.
    """
    if path is None:
        if isinstance(content, str) and sys.stdout.isatty():
            say(content, nl=False)
        else:
            click.echo(content, nl=False, color=True)  # click would leave out colours
        return
    with writing(path, "cannot write"):
        files.write_whole(path, content)
    say(name or path)
