"""Options of `jestlab table` that say what is shown of a table, and how."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from jestlab.analysis.tables.shape import Shape

Function = TypeVar("Function", bound=Callable[..., Any])


def shape_options(function: Function) -> Callable[..., Any]:
    """Add `--columns`, `--rows`, `--digits`, `--sort`, `--caption`, `--label`, `--width` and `--no-notes`.

    The command receives them as one `shape: Shape`.
    """

    @click.option(
        "--columns",
        metavar="NAMES",
        multiple=True,
        help="Columns to show, in this order, joined by commas: keys, headings, or scores, costs, factors.",
    )
    @click.option(
        "--rows",
        metavar="NAMES",
        multiple=True,
        help="Rows to show, in this order, joined by commas: runs, labels, or names as shown.",
    )
    @click.option(
        "--digits",
        metavar="N",
        multiple=True,
        help="Digits of scores and differences, or by column, joined by commas: scores=2,fewer_flops=1.",
    )
    @click.option("--sort", metavar="COLUMN", default="", help="Sort rows by a column; -COLUMN: descending.")
    @click.option("--caption", metavar="TEXT", help="Caption instead of the table's own.")
    @click.option("--label", metavar="LABEL", default="", help="Label in LaTeX  [default: tab:NAME]")
    @click.option(
        "--width",
        metavar="WIDTH",
        default="auto",
        show_default=True,
        help="How wide the table may be in LaTeX: column, text, or a length such as 3.25in.",
    )
    @click.option("--no-notes", is_flag=True, help="Leave out the notes.")
    @functools.wraps(function)
    def wrapped(
        *args: Any,
        columns: tuple[str, ...],
        rows: tuple[str, ...],
        digits: tuple[str, ...],
        sort: str,
        caption: str | None,
        label: str,
        width: str,
        no_notes: bool,
        **kwargs: Any,
    ) -> Any:
        shape = Shape(columns, rows, parse_digits(digits), sort, caption, label, not no_notes, width)
        return function(*args, shape=shape, **kwargs)

    return wrapped


def parse_digits(given: Sequence[str]) -> int | dict[str, int] | None:
    """Parse `--digits`: "2", or "scores=2,fewer_flops=1".

    Raises:
        click.BadParameter: It is neither.
    """
    parts = [part.strip() for text in given for part in text.split(",") if part.strip()]
    if not parts:
        return None
    if len(parts) == 1 and parts[0].isdecimal():
        return int(parts[0])
    pairs = [part.partition("=") for part in parts]
    if any(not name or not number.isdecimal() for name, _, number in pairs):
        raise click.BadParameter(
            f"{', '.join(parts)!r} is neither a number nor COLUMN=NUMBER, joined by commas",
            param_hint="--digits",
        )
    return {name: int(number) for name, _, number in pairs}
