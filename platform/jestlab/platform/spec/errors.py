"""Errors in a spec: each names its place, what is wrong there, and what would be right."""

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
    """Prefix the places of errors raised inside with a place in the spec."""
    try:
        yield
    except SpecError as error:
        raise SpecError((*place, *error.path), error.message) from None


def dotted(path: Sequence[str]) -> str:
    """Write a place as its parts joined by dots."""
    return ".".join(path)


def shown(value: object) -> str:
    """Quote a value for an error message: as YAML would write it, shortened."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def choices(given: object, valid: Iterable[str]) -> str:
    """List the valid values, after the one nearest to what was given."""
    known = list(valid)
    hint = nearest(str(given), known)
    listed = f"valid: {', '.join(known)}"
    return f"{hint} ({listed})" if hint.startswith("did you mean") else listed


def kind_of(value: object) -> str:
    """Name the type of a value in a spec writer's words."""
    if hasattr(value, "items"):
        return "a mapping"
    names: dict[type, str] = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a string",
        type(None): "nothing",
        list: "a list",
        tuple: "a list",
    }
    return names.get(type(value), f"a {type(value).__name__}")
