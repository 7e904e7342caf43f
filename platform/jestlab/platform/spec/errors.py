"""Errors in a spec, with the place they are at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from jestlab.platform.errors import UserError, nearest

Path = tuple[str, ...]
"""A place in a spec: `("runs", "joint", "selection", "rule")`, written `runs.joint.selection.rule`."""


class SpecError(UserError):
    """A spec that cannot be planned.

    Attributes:
        path: The place, from the spec's root.
        message: What is wrong there and what would be right.
    """

    def __init__(self, path: Sequence[str], message: str) -> None:
        self.path: Path = tuple(path)
        self.message = message
        super().__init__(f"{dotted(path)}: {message}" if path else message)


@contextmanager
def within(*place: str) -> Iterator[None]:
    """Context in which the places of errors count from a place in the spec."""
    try:
        yield
    except SpecError as error:
        raise SpecError((*place, *error.path), error.message) from None


def dotted(path: Sequence[str]) -> str:
    """A place as it is written: its parts joined by dots."""
    return ".".join(path)


def shown(value: object) -> str:
    """A value as an error quotes it: as YAML would say it, shortened."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def choices(given: object, valid: Iterable[str]) -> str:
    """A hint: the nearest of few valid values, and all of them."""
    known = list(valid)
    hint = nearest(str(given), known)
    listed = f"valid: {', '.join(known)}"
    return f"{hint} ({listed})" if hint.startswith("did you mean") else listed


def kind_of(value: object) -> str:
    """The type of a value in a spec writer's words."""
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        type(None): "nothing",
    }
    if hasattr(value, "items"):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return names.get(type(value), f"a {type(value).__name__}")
