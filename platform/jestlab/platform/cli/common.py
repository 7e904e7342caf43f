"""Options that verbs share."""

from __future__ import annotations

import functools
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
