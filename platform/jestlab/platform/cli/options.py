"""Options that several verbs have: the spec, the lab, how to launch, the output."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from jestlab.analysis.costs import SCOPES
from jestlab.platform.cli.completion import SCALE, SPEC
from jestlab.platform.cli.flags import CodeName
from jestlab.platform.cli.output import WIDE

Function = TypeVar("Function", bound=Callable[..., Any])

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def examples(*commands: str) -> str:
    """Write the epilog of a verb's help: examples, each without the word `jestlab`."""
    return "\b\nExamples:\n" + "\n".join(f"  jestlab {command}" for command in commands)


def lab_options(function: Function) -> Callable[..., Any]:
    """Add `--root` and `--store`; the command receives them as one `lab: Lab`."""

    @click.option(
        "--root",
        type=click.Path(file_okay=False),
        help="Folder of the lab, or gs://BUCKET/FOLDER  [default: JESTLAB_ROOT, else ./lab]",
    )
    @click.option(
        "--store",
        metavar="URL",
        help="SQLAlchemy URL of the results store  [default: JESTLAB_STORE, else <root>/results.db]",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, root: str | None, store: str | None, **kwargs: Any) -> Any:
        from jestlab.platform.lab.lab import Lab

        return function(*args, lab=Lab.find(root, store), **kwargs)

    return wrapped


def same_lab_options() -> str:
    """Write this command's `--root` and `--store` for a command that it suggests, without passwords."""
    from jestlab.platform.store.address import parse_url, shown_url

    given = click.get_current_context().params
    values = {"root": given.get("root"), "store": given.get("store")}
    if values["store"] and not values["store"].startswith("sqlite"):
        values["store"] = shown_url(parse_url(values["store"]))
    return "".join(f" --{name} {shlex.quote(value)}" for name, value in values.items() if value)


def spec_options(function: Function) -> Callable[..., Any]:
    """Add SPEC, `--scale` and `--set`; the command receives the loaded and validated `study: StudySpec`."""

    @click.argument("spec", type=SPEC)
    @click.option("--scale", type=SCALE,
                  help="Scale of the study: smoke, mini, paper  [default: the study's first]")  # fmt: skip
    @click.option(
        "--set", "overrides", metavar="PATH=VALUE", multiple=True, help="Override a value; repeatable."
    )
    @functools.wraps(function)
    def wrapped(*args: Any, spec: str, scale: str | None, overrides: tuple[str, ...], **kwargs: Any) -> Any:
        from jestlab.platform.spec.load import load

        return function(*args, study=load(spec, scale, overrides), **kwargs)

    return wrapped


def decide_option(function: Function) -> Callable[..., Any]:
    """Add `--decide`; the command receives a `study` that adds seeds until its claims are decided."""

    @click.option("--decide", is_flag=True,
                  help="Add seeds, round by round, until each claim is confirmed, refuted, out of reach, or "
                       "over budget; like `seeds: {until: decided}` in a spec.")  # fmt: skip
    @functools.wraps(function)
    def wrapped(*args: Any, decide: bool, study: Any, **kwargs: Any) -> Any:
        return function(*args, study=study.decided() if decide else study, **kwargs)

    return wrapped


def launch_options(function: Function) -> Callable[..., Any]:
    """Add the options for launching runs; the command receives them as `shared: dict`."""

    @click.option(
        "--on",
        type=CodeName("executor", ("local", "vertex", "kubernetes", "slurm")),
        help="Executor: built in or custom  [default: the study's, else that of your settings, else local]",
    )
    @click.option(
        "--parallel",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of concurrent runs across all launches  [default: the study's]",
    )
    @click.option(
        "--retries",
        type=click.IntRange(min=0),
        metavar="N",
        help="Number of further attempts at a failed run  [default: the study's]",
    )
    @click.option("--fail-fast", is_flag=True, help="Stop all runs when one has failed its last attempt.")
    @click.option(
        "--keep-going", is_flag=True, help="Continue if the first three runs fail with the same error."
    )
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        shared = {name: kwargs.pop(name) for name in ("on", "parallel", "retries", "fail_fast", "keep_going")}
        if shared["fail_fast"] and shared["keep_going"]:
            raise click.UsageError("--fail-fast and --keep-going exclude each other")
        return function(*args, shared=shared, **kwargs)

    return wrapped


def json_option(help: str = "Print JSON.") -> Callable[[Function], Function]:
    """Add `--json`; the command receives it as `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def _set_wide(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[WIDE] = value


wide_option = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_set_wide,
    help="Print all columns, even if they are wider than the terminal.",
)
"""`--wide`: print tables whole."""


def output_option(
    help: str = "Write to this file instead.", folder: bool = False
) -> Callable[[Function], Function]:
    """Add `--output`; the command receives it as `output: Path | None`."""
    return click.option("-o", "--output", type=FOLDER if folder else FILE, help=help)


def baseline_option(default: str = "the first run that is not a reference") -> Callable[[Function], Function]:
    """Add `--baseline`; the command receives it as `baseline: str | None`."""
    text = f"Run or label to compare with  [default: {default}]"
    return click.option("--baseline", metavar="RUN", help=text)


def scope_option(
    what: str = "Which FLOPs count", default: str | None = "scoring", otherwise: str = ""
) -> Callable[[Function], Function]:
    """Add `--scope`; the command receives it as `scope`, None where `otherwise` says the default in words."""
    end = f"  [default: {otherwise}]" if otherwise else "."
    text = f"{what}; each scope includes the ones before it{end}"
    return click.option("--scope", type=click.Choice(SCOPES), default=default, show_default=True, help=text)
