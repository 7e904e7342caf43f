"""Options that verbs share."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from jestlab.platform.lab import Lab

Function = TypeVar("Function", bound=Callable[..., Any])


def lab_options(function: Function) -> Callable[..., Any]:
    """Add `--root` and `--store`; the command receives them as one `lab: Lab`."""

    @click.option(
        "--root",
        type=click.Path(file_okay=False),
        help="Folder of the lab, or gs://BUCKET/FOLDER [JESTLAB_ROOT, ./lab].",
    )
    @click.option("--store", help="SQLAlchemy URL of the store [JESTLAB_STORE, <root>/results.db].")
    @functools.wraps(function)
    def wrapped(*args: Any, root: str | None, store: str | None, **kwargs: Any) -> Any:
        return function(*args, lab=Lab.find(root, store), **kwargs)

    return wrapped


def same_lab_options() -> str:
    """`--root` and `--store` as this command was given them, for one that it advises; without passwords."""
    from jestlab.platform.store.environment import without_url_credentials

    given = click.get_current_context().params
    values = {name: given.get(name) for name in ("root", "store")}
    return "".join(
        f" --{name} {shlex.quote(without_url_credentials(value))}" for name, value in values.items() if value
    )
