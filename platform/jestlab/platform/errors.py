"""Errors that users can fix, each with its place and remedy, and the words that such errors are made of."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class UserError(Exception):
    """Bad input: one line that names the place and the remedy. The command line prints it and exits 1."""

    def _render_traceback_(self) -> list[str]:
        """Show the line alone in a notebook: IPython asks exceptions for this."""
        return [f"Error: {self}"]


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Context in which what the command line prints in one line, whatever raises it, is a UserError."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise UserError(" ".join(str(error).split())) from error


class StoreError(UserError):
    """The results store cannot be used: now, or before somebody has fixed something."""


class StoreUnreachable(StoreError):
    """The results store cannot be used now: no connection, locked, disk full. Trying again may help.

    What somebody has to fix first (a password, a permission, a damaged file) is a plain UserError.
    """


class StoreMissing(StoreUnreachable):
    """There is no results store at the place: not made yet, moved away, or its disk is gone."""


class BucketUnreachable(UserError):
    """The bucket that the lab is in does not answer, or refuses. Trying again may help."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the valid name most like an unknown one; None if none is like it."""
    return next(iter(difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.5)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Write a clause that helps with an unknown name: "did you mean 'x'?" if a valid name is like it.

    Else that is "known: a, b, c", or "there are none".
    """
    names = sorted(set(known))
    if not names:
        return "there are none"
    if found := closest(name, names):
        return f"did you mean {found!r}?"
    return "known: " + ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


# ---- errors in a spec

Path = tuple[str, ...]
"""A place in a spec: `("runs", "joint", "selection", "rule")`, written `runs.joint.selection.rule`."""


class SpecError(UserError):
    """A spec that cannot be planned: its place from the spec's root, and what is wrong and would be right."""

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
