"""Code of one's own on the command line: names of figures, tables and executors, and options for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import click.shell_completion

from jestlab.platform.errors import UserError

if TYPE_CHECKING:
    from jestlab.models.extensions import Kind

Function = TypeVar("Function", bound=Callable[..., Any])


class Named(click.ParamType[str]):
    """A name that is built in, or stands for code of one's own; a file counts from the working directory."""

    name = "name"

    def __init__(self, kind: Kind, builtin: Sequence[str], *, others: bool = False) -> None:
        """Create the type of the names of a kind of code.

        Args:
            kind: What the code is used as.
            builtin: Names of what is built in.
            others: Whether further names may be valid, which the command knows.
        """
        self._kind = kind
        self._builtin = builtin
        self._others = others

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Show what is built in."""
        return f"[{'|'.join(self._builtin)}|NAME]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, a file made absolute; refuse one that is unknown, with the nearest."""
        if value in self._builtin:
            return str(value)
        from jestlab.models import extensions
        from jestlab.models.extensions import references

        if not self._others or references.is_reference(value):
            try:
                extensions.check_name(self._kind, value, self._builtin)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return references.anchored(value, Path.cwd())

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Complete what is built in or installed."""
        from jestlab.models.extensions.kinds import installed

        names = (*self._builtin, *installed(self._kind))
        return [click.shell_completion.CompletionItem(name) for name in names if name.startswith(incomplete)]


def options_option(function: Function) -> Function:
    """Add `--option`; the command receives its values as `own_options`."""
    return click.option(
        "--option",
        "own_options",
        metavar="KEY=VALUE",
        multiple=True,
        help="Argument of a function of your own, read as YAML; repeatable.",
    )(function)


def parsed(texts: Sequence[str]) -> dict[str, Any]:
    """Parse the values of `--option`.

    Raises:
        UserError: One has no key or no value, or is not YAML.
    """
    from jestlab.platform.errors import SpecError
    from jestlab.platform.spec.overrides import parse

    found: dict[str, Any] = {}
    for text in texts:
        try:
            path, value = parse(text)
        except SpecError as error:
            raise UserError(f"--option {error}".replace("as in --set seeds=5", "as in x=flops")) from None
        found[".".join(path)] = value
    return found
