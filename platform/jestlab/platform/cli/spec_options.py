"""The argument and options of verbs that are about a spec."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


def spec_options(function: Function) -> Callable[..., Any]:
    """Add SPEC, `--scale` and `--set`; the command receives the loaded and validated `study: Study`."""

    @click.argument("spec")
    @click.option("--scale", help="Scale of the study: smoke, … [its first].")
    @click.option(
        "--set", "overrides", metavar="PATH=VALUE", multiple=True, help="Change a value of the spec."
    )
    @functools.wraps(function)
    def wrapped(*args: Any, spec: str, scale: str | None, overrides: tuple[str, ...], **kwargs: Any) -> Any:
        from jestlab.platform.spec.load import load

        return function(*args, study=load(spec, scale, overrides), **kwargs)

    return wrapped
