"""Flags generated from the options of figures and tables, and names of custom code on the command line."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import click

from jestlab.platform.errors import SpecError, UserError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from jestlab.models.extensions import Kind
    from jestlab.platform.spec.options import Options

_NAMES = {"options": "option"}
"""Options whose flag has another name, because it is repeated."""


def model_flags(*models: type[Options], leave: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Add a flag for each option of models. The command receives those given as one `given: dict`.

    Args:
        models: Options of figures or tables.
        leave: Options that are arguments of the command.
    """
    from jestlab.platform.spec.options import flat_fields

    fields = {name: info for name, info in flat_fields(*models).items() if name not in leave}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            values = {name: _number(kwargs.pop(name), info) for name, info in fields.items()}
            given = {name: value for name, value in values.items() if value not in (None, ())}
            if "options" in given:
                given["options"] = _parse_options(given["options"])
            try:
                return function(*args, given=given, **kwargs)
            except SpecError as error:
                if error.path and error.path[0] in ("kind", "figure", *fields):
                    name = error.path[-1 if error.path[0] == "figure" else 0]
                    message = error.message.replace("unknown key", "not an option of this kind")
                    raise click.UsageError(f"{_flag(name)}: {message}") from None
                raise

        for name, info in reversed(fields.items()):
            _add_flag(name, info)(wrapped)
        return wrapped

    return decorate


def _flag(name: str) -> str:
    return "--" + _NAMES.get(name, name).replace("_", "-")


def _add_flag(name: str, info: FieldInfo) -> Callable[[Any], Any]:
    annotation = _inner(info.annotation)
    flag, help = _flag(name), info.description or ""
    if info.default not in (None, True, False, "", (), {}) and not info.is_required():
        default = ", ".join(info.default) if isinstance(info.default, tuple) else info.default
        help = f"{help}  [default: {default}]"
    if annotation is bool:
        negative = f"/--no-{flag[2:]}" if info.default else ""
        return click.option(flag + negative, name, is_flag=True, default=None, help=help)
    if get_origin(annotation) is Literal:
        return click.option(flag, name, type=click.Choice(get_args(annotation)), help=help)
    multiple = get_origin(annotation) in (tuple, dict)
    metavar = "KEY=VALUE" if get_origin(annotation) is dict else name.upper()
    return click.option(flag, name, metavar=metavar, multiple=multiple, help=help)


def _number(value: Any, info: FieldInfo) -> Any:
    """Return the number for the text of one, if the option can be a whole number; else the value itself."""
    is_number = isinstance(value, str) and value.isdecimal()
    return int(value) if is_number and int in get_args(info.annotation) else value


def _inner(annotation: Any) -> Any:
    """Return an annotation without null and metadata; `str` for other unions."""
    if get_origin(annotation) is Annotated:
        return _inner(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return _inner(members[0]) if len(members) == 1 else str
    return annotation


def _parse_options(texts: Sequence[str]) -> Mapping[str, Any]:
    """Parse the values of `--option KEY=VALUE`, which are YAML."""
    from jestlab.platform.spec.overrides import parse

    found: dict[str, Any] = {}
    for text in texts:
        try:
            path, value = parse(text)
        except SpecError:
            raise UserError(f"--option {text!r}: expected KEY=VALUE, such as x=flops") from None
        found[".".join(path)] = value
    return found


class CodeName(click.ParamType[str]):
    """A built-in name, or the name of custom code; a file is relative to the working directory."""

    name = "name"

    def __init__(self, kind: Kind, builtin: Sequence[str], *, others: bool = False) -> None:
        """Create the type.

        Args:
            kind: Use of the code.
            builtin: Built-in names.
            others: Whether the command accepts further names.
        """
        self._kind = kind
        self._builtin = builtin
        self._others = others

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Show the built-in names."""
        return f"[{'|'.join(self._builtin)}|NAME]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, with its file made absolute; fail if it is unknown."""
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
