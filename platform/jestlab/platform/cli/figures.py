"""Options of `jestlab plot` that say how a figure is printed: its size, words, font and legend."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from jestlab.analysis.sheet import LEGENDS, NONE, OPTIONS, Sheet, option

_HELP = {
    "width": "Width of the figure with its unit, 3.25in or 8.3cm  [default: the figure's own]",
    "height": "Height of the figure, likewise.",
    "title": "Text above the figure  [default: the study's question]",
    "caption": "Text below the figure  [default: what is shown]",
    "font": "Installed font, or serif, sans-serif, monospace.",
    "font_size": "Size of most letters, points  [default: 8]",
}
_WRITTEN = {"width": "LENGTH", "height": "LENGTH", "font": "NAME", "font_size": "POINTS"}


def sheet_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--width`, `--height`, `--title`, `--no-title`, `--caption`, `--no-caption`, `--font`,
    `--font-size` and `--legend`; the command receives them as one `sheet: Sheet`."""

    @click.option(
        "--legend",
        type=click.Choice(LEGENDS),
        help="Where curves and points are named  [default: direct, if there is room]",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, no_title: bool, no_caption: bool, legend: str | None, **kwargs: Any) -> Any:
        written: dict[str, Any] = {name: kwargs.pop(name) for name in _HELP} | {"legend": legend}
        for name, left_out in (("title", no_title), ("caption", no_caption)):
            if left_out and written[name] is not None:
                raise click.UsageError(f"--{name} and --no-{name}: give one of them")
            written[name] = NONE if left_out else written[name]
        for name in OPTIONS:
            try:
                if written[name] is not None:
                    option(name, written[name])
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint=f"--{name.replace('_', '-')}") from None
        return function(*args, sheet=Sheet.parse(written), **kwargs)

    for name in reversed(_HELP):
        flag = f"--{name.replace('_', '-')}"
        if name in ("title", "caption"):
            wrapped = click.option(f"--no-{name}", is_flag=True, help=f"Leave the {name} out.")(wrapped)
        wrapped = click.option(flag, name, metavar=_WRITTEN.get(name, "TEXT"), help=_HELP[name])(wrapped)
    return wrapped
