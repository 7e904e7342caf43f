"""Code of one's own on the command line: names of figures, tables and executors, and options for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
import click.shell_completion

from jestlab.platform.errors import UserError

if TYPE_CHECKING:
    from jestlab.models.extensions import Kind
    from jestlab.platform.own_results import Loader

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
        """Complete what is built in."""
        return [click.shell_completion.CompletionItem(n) for n in self._builtin if n.startswith(incomplete)]


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


@dataclass(frozen=True)
class Asked:
    """Code of one's own that a command asks for.

    Attributes:
        name: Where it is, or the name of an entry point.
        options: Its arguments.
        loader: Imports it.
    """

    name: str
    options: dict[str, Any]
    loader: Loader


def asked(
    store_url: str,
    experiment: str | None,
    kind: Literal["figure", "table"],
    name: str,
    texts: Sequence[str],
    builtin: Sequence[str],
) -> Asked | None:
    """Find the code of one's own that a name stands for.

    Args:
        store_url: URL of the store.
        experiment: Name of the study.
        kind: What the code is used as.
        name: What a report of the study is called, whose options then hold; a reference; an entry point.
        texts: Values of `--option`.
        builtin: Names that are built in.

    Returns:
        None if the name stands for none.

    Raises:
        UserError: Options are given, and there is no code that takes them; or they are no options.
    """
    from jestlab.models import extensions
    from jestlab.models.extensions import references
    from jestlab.platform.own_results import Loader
    from jestlab.platform.spec.own_reports import check_code

    options = parsed(texts)
    if name in builtin and options:
        raise UserError(f"--option is for a {kind} of your own, and {name} is built in")
    if name in builtin:
        return None
    named = _in_spec(store_url, experiment, kind, name) if experiment else None
    if named is not None:
        return Asked(named[0], {**named[1], **options}, Loader(store_url))
    if references.is_reference(name) or name in extensions.installed(kind):
        name = references.anchored(name, Path.cwd())
        check_code(kind, name, options, "--option")
        return Asked(name, options, Loader(store_url, asked=name))
    if options:
        raise UserError(f"--option is for a {kind} of your own, and {name} is none")
    return None


def _in_spec(store_url: str, experiment: str, kind: str, name: str) -> tuple[str, Mapping[str, Any]] | None:
    """Find a figure or table of one's own by what its files are called, with its options."""
    from jestlab.analysis.claims import studies
    from jestlab.analysis.connection import connect
    from jestlab.analysis.own import stem_of
    from jestlab.platform.spec.own_reports import named_in

    with connect(store_url) as connection:
        known = studies(connection)
    spec = known[experiment].spec if experiment in known else {}
    found = ((own, options) for what, own, options in named_in(spec) if what == kind and stem_of(own) == name)
    return next(found, None)
