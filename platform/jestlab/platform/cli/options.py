"""Options that several verbs share, and flags generated from the Pydantic models of figures and tables."""

from __future__ import annotations

import contextlib
import functools
import shlex
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import click

from jestlab.platform.cli.completion import SCALE, SPEC
from jestlab.platform.errors import SpecError, UserError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from jestlab.platform.spec.options import Options

Function = TypeVar("Function", bound=Callable[..., Any])

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


RUN_HELP = """\
RUN is EXPERIMENT/RUN/SEED, such as quickstart/joint/1. You can omit the seed if the run has only one, and the
experiment if no other has such a run. You can also give the first characters of a run's fingerprint."""
"""Explanation of the argument RUN, for the help of verbs."""


def examples(*commands: str) -> str:
    """Write the examples at the end of a verb's help; the given commands lack the word `jestlab`."""
    return "\b\nExamples:\n" + "\n".join(f"  jestlab {command}" for command in commands)


def lab_options(function: Function) -> Callable[..., Any]:
    """Add `--root` and `--store`; the command receives them as one `lab: Lab`."""

    @click.option(
        "--root",
        type=click.Path(file_okay=False),
        help="Folder of the lab, or gs://BUCKET/FOLDER.  [default: JESTLAB_ROOT, else ./lab]",
    )
    @click.option(
        "--store",
        metavar="URL",
        help="SQLAlchemy URL of the results store, or shared for one in <root> that several machines write "
        "to.  [default: JESTLAB_STORE, else the one in <root>]",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, root: str | None, store: str | None, **kwargs: Any) -> Any:
        from jestlab.platform.lab.lab import Lab

        return function(*args, lab=Lab.find(root, store), **kwargs)

    return wrapped


def same_lab_options() -> str:
    """Return this command's `--root` and `--store`, without passwords, to append to a suggested command."""
    from jestlab.platform.store.address import parse_url, shown_url

    given = click.get_current_context().params
    values = {"root": given.get("root"), "store": given.get("store")}
    if values["store"] and not values["store"].startswith(("sqlite", "shared")):
        values["store"] = shown_url(parse_url(values["store"]))
    return "".join(f" --{name} {shlex.quote(value)}" for name, value in values.items() if value)


def spec_options(function: Function) -> Callable[..., Any]:
    """Add SPEC, `--scale`, and `--set`; the command receives the loaded, valid `study: StudySpec`."""

    @click.argument("spec", type=SPEC)
    @click.option("--scale", type=SCALE,
                  help="Scale of the study: smoke, mini, paper.  [default: the study's first]")  # fmt: skip
    @click.option(
        "--set",
        "overrides",
        metavar="PATH=VALUE",
        multiple=True,
        help="Override a value of SPEC; repeatable.",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, spec: str, scale: str | None, overrides: tuple[str, ...], **kwargs: Any) -> Any:
        from jestlab.platform.spec.load import load

        return function(*args, study=load(spec, scale, overrides), **kwargs)

    return wrapped


def decide_option(function: Function) -> Callable[..., Any]:
    """Add `--decide`. If given, the command receives a `study` with seeds until its claims are decided."""

    @click.option("--decide", is_flag=True,
                  help="Add seeds, round by round, until each claim is confirmed, refuted, out of reach, or "
                       "over budget; like `seeds: {until: decided}` in a spec.")  # fmt: skip
    @functools.wraps(function)
    def wrapped(*args: Any, decide: bool, study: Any, **kwargs: Any) -> Any:
        return function(*args, study=study.until_decided() if decide else study, **kwargs)

    return wrapped


def json_option(help: str = "Print JSON.") -> Callable[[Function], Function]:
    """Add `--json`; the command receives it as `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def lab_json_options(help: str = "Print JSON.") -> Callable[[Function], Callable[..., Any]]:
    """Add `--json`, `--root`, and `--store`; the command receives them as `as_json` and `lab`."""
    return lambda function: json_option(help)(lab_options(function))


def output_option(
    help: str = "Write to this file instead.", folder: bool = False
) -> Callable[[Function], Function]:
    """Add `--output`; the command receives it as `output: Path | None`."""
    return click.option("-o", "--output", type=FOLDER if folder else FILE, help=help)


# ---- flags of figures and tables

_FLAG_NAMES = {"options": "option"}
"""Option → name of its flag, if it differs: a repeatable flag is in the singular."""

_EXAMPLES = {"options": "threshold=0.5", "best": "tuned={of: RUN, by: METRIC}"}
"""Option whose flag takes KEY=VALUE → an example."""


def model_flags(*models: type[Options], exclude: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Add a flag for each field of the models. The command receives the given flags as one `given: dict`.

    Args:
        models: Models with the options of figures or tables.
        exclude: Fields without a flag, because they are arguments of the command.
    """
    from jestlab.platform.spec.options import flat_fields

    fields = {name: info for name, info in flat_fields(*models).items() if name not in exclude}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            values = {name: _number(kwargs.pop(name), info) for name, info in fields.items()}
            given = {name: value for name, value in values.items() if value not in (None, ())}
            for name in _EXAMPLES.keys() & given.keys():
                given[name] = _parse_options(name, given[name])
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
    return "--" + _FLAG_NAMES.get(name, name).replace("_", "-")


def _add_flag(name: str, info: FieldInfo) -> Callable[[Any], Any]:
    annotation = _base_type(info.annotation)
    flag = _flag(name)
    help, _, default = (info.description or "").partition("; default: ")
    help = f"{help}.  [default: {default.removesuffix('.')}]" if default else help
    if not default and info.default not in (None, True, False, "", (), {}) and not info.is_required():
        default = ", ".join(info.default) if isinstance(info.default, tuple) else info.default
        help = f"{help}  [default: {default}]"
    if annotation is bool:
        negative = f"/--no-{flag[2:]}" if info.default else ""
        return click.option(flag + negative, name, is_flag=True, default=None, help=help)
    if get_origin(annotation) is Literal:
        return click.option(flag, name, type=click.Choice(get_args(annotation)), help=help)
    multiple, is_number = get_origin(annotation) in (tuple, dict), annotation in (int, float)
    metavar = "KEY=VALUE" if get_origin(annotation) is dict else "N" if is_number else name.upper()
    return click.option(flag, name, metavar=metavar, multiple=multiple, help=help)


def _number(value: Any, info: FieldInfo) -> Any:
    """Convert a text to a number if the field accepts one; return other values unchanged."""
    if isinstance(value, str):
        members = set(_members(info.annotation))
        for type_ in (each for each in (int, float) if each in members):
            with contextlib.suppress(ValueError):
                return type_(value)
    return value


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the types in a union, without `Annotated` metadata."""
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _base_type(annotation: Any) -> Any:
    """Return a type without its None alternative and `Annotated` metadata; `str` for other unions."""
    members = [member for member in _members(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 else str


def _parse_options(name: str, texts: Sequence[str]) -> Mapping[str, Any]:
    """Parse the values of an option's flag, such as `--option KEY=VALUE`, which are YAML."""
    from jestlab.platform.spec.overrides import parse

    found: dict[str, Any] = {}
    for text in texts:
        try:
            path, value = parse(text)
        except SpecError:
            example = _EXAMPLES[name]
            raise UserError(f"{_flag(name)} {text!r}: expected KEY=VALUE, such as {example}") from None
        found[".".join(path)] = value
    return found
