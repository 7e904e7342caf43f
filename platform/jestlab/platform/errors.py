"""Errors that users can fix, with their place and remedy, and helpers to write their messages."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from jestlab.analysis.written import shown as shown
from jestlab.analysis.written import without_addresses


class UserError(Exception):
    """An error that users can fix. The command line prints its message, one line, and exits with code 1."""

    def _render_traceback_(self) -> list[str]:
        """Show only the message in a notebook: IPython calls this method."""
        return [f"Error: {self}"]


class UserErrors(UserError):
    """Several errors, one line each; the last line may count them."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(lines))


def sentence(error: BaseException) -> str:
    """Write an error on one line for people; an error of a file starts with its name."""
    text = str(error) or ("not enough memory" if isinstance(error, MemoryError) else type(error).__name__)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return without_addresses(" ".join(text.split()))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Convert ValueError and OSError to UserError within a context."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise UserError(sentence(error)) from error


class StoreError(UserError):
    """The results store can't be used."""


class StoreUnreachable(StoreError):
    """The results store can't be used now: no connection, locked, disk full. Trying again may help.

    An error that a person has to fix (a password, a permission, a damaged file) is a plain UserError.
    """


class StoreMissing(StoreUnreachable):
    """The results store doesn't exist: not created yet, moved, or on a disk that isn't mounted."""


class BucketUnreachable(UserError):
    """The lab's bucket doesn't answer, or refuses access. Trying again may help."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the valid name most similar to an unknown one; or None."""
    return next(iter(difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.5)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest a valid name for an unknown one: "did you mean 'x'?", or "known: a, b, c"."""
    names = sorted(set(known))
    if not names:
        return "none exist"
    if found := closest(name, names):
        return f"did you mean {found!r}?"
    return "known: " + ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


# ---- errors in a spec

Path = tuple[str, ...]
"""A place in a spec: `("runs", "joint", "selection", "rule")`, written `runs.joint.selection.rule`."""


class SpecError(UserError, ValueError):
    """An invalid spec. It is also a ValueError, so that pydantic collects it from validators.

    Attributes:
        path: The place, from the root of the spec.
        message: The problem, with the expected form.
        errors: This error, or all of several, of which this is the first.
    """

    def __init__(self, path: Sequence[str], message: str) -> None:
        self.path: Path = tuple(path)
        self.message = message
        self.errors: tuple[SpecError, ...] = (self,)
        super().__init__(f"{dotted(path)}: {message}" if path else message)


class Mistakes(dict[tuple[Path, str], SpecError]):
    """Collects errors in a spec by place and message, to raise them together.

    `with mistakes: …` collects the errors that are raised inside, and execution continues after it.
    """

    def add(self, errors: Iterable[SpecError]) -> None:
        """Add errors."""
        for error in errors:
            self.setdefault((error.path, error.message), error)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, SpecError):
            self.add(error.errors)
        return isinstance(error, SpecError)

    def check(self) -> None:
        """Raise the errors as one, if there are any."""
        if self:
            together = SpecError(*next(iter(self)))
            together.errors = tuple(self.values())
            raise together from None


@contextmanager
def placed(place: Callable[[Path], Path]) -> Iterator[None]:
    """Map the places of errors raised within a context by a function."""
    try:
        yield
    except SpecError as error:
        mistakes = Mistakes()
        mistakes.add(SpecError(place(one.path), one.message) for one in error.errors)
        mistakes.check()


def within(*place: str) -> AbstractContextManager[None]:
    """Prefix the places of errors raised within a context with a place in the spec."""
    return placed(lambda path: (*place, *path))


def dotted(path: Sequence[str]) -> str:
    """Write a place as its parts joined by dots."""
    return ".".join(path)


def no_string(value: object) -> str:
    """Write a value that isn't a string, or the first such item of a list, with a hint to quote it."""
    if isinstance(value, list | tuple):
        value = next((item for item in value if not isinstance(item, str)), value)
    quotes = ": put it in quotes" if isinstance(value, bool | int | float) else ""
    return f"{shown(value)} ({kind_of(value)}){quotes}"


def choices(given: object, valid: Iterable[str]) -> str:
    """List the valid values, after the one nearest to the given value."""
    known = list(valid)
    hint = nearest(str(given), known)
    listed = f"valid: {', '.join(known)}"
    return f"{hint} ({listed})" if hint.startswith("did you mean") else listed


def kind_of(value: object) -> str:
    """Name the type of a value in the terms of a spec."""
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
