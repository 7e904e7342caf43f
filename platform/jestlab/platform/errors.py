"""Errors that users can fix, each with its place and remedy, and the words that such errors are made of."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

from jestlab.analysis.written import shown as shown
from jestlab.analysis.written import without_addresses


class UserError(Exception):
    """Bad input: one line that names the place and the remedy. The command line prints it and exits 1."""

    def _render_traceback_(self) -> list[str]:
        """Show the line alone in a notebook: IPython asks exceptions for this."""
        return [f"Error: {self}"]


class UserErrors(UserError):
    """Several kinds of bad input at once, each told in a line; the last line may count them."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(lines))


def sentence(error: BaseException) -> str:
    """Write an error on one line for people: that of a file as its name and what is wrong with it."""
    text = str(error) or ("not enough memory" if isinstance(error, MemoryError) else type(error).__name__)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return without_addresses(" ".join(text.split()))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Context in which what the command line prints in one line, whatever raises it, is a UserError."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise UserError(sentence(error)) from error


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


class SpecError(UserError, ValueError):
    """A spec that cannot be planned: its place from the spec's root, and what is wrong and would be right.

    It is a ValueError as well, so that pydantic collects those that validators raise.
    """

    def __init__(self, path: Sequence[str], message: str) -> None:
        self.path: Path = tuple(path)
        self.message = message
        super().__init__(f"{dotted(path)}: {message}" if path else message)

    @property
    def errors(self) -> tuple[SpecError, ...]:
        """This mistake, or all of several."""
        return (self,)


class SpecErrors(SpecError):
    """Several mistakes in a spec. As one error it is the first of them."""

    def __init__(self, errors: Sequence[SpecError]) -> None:
        self._errors = tuple(errors)
        super().__init__(self._errors[0].path, self._errors[0].message)

    @property
    def errors(self) -> tuple[SpecError, ...]:
        """All of the mistakes."""
        return self._errors


class Mistakes:
    """Gathers the mistakes in a spec, each once, to raise them together.

    `with mistakes: …` takes in the mistakes that are raised inside; what follows is executed all the same.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._found: dict[tuple[Path, str], SpecError] = {}

    def __len__(self) -> int:
        """Return the number of mistakes so far."""
        return len(self._found)

    def add(self, errors: Iterable[SpecError]) -> None:
        """Take in mistakes."""
        for error in errors:
            self._found.setdefault((error.path, error.message), error)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if isinstance(error, SpecError):
            self.add(error.errors)
        return isinstance(error, SpecError)

    def together(self) -> SpecError:
        """Return what was found as one error; there has to be something."""
        return next(iter(self._found.values())) if len(self) == 1 else SpecErrors([*self._found.values()])

    def check(self) -> None:
        """Raise what was found, if anything."""
        if self._found:
            raise self.together() from None


@contextmanager
def placed(place: Callable[[Path], Path]) -> Iterator[None]:
    """Replace the places of errors raised inside by what a function makes of them."""
    try:
        yield
    except SpecError as error:
        mistakes = Mistakes()
        mistakes.add(SpecError(place(one.path), one.message) for one in error.errors)
        raise mistakes.together() from None


def within(*place: str) -> AbstractContextManager[None]:
    """Prefix the places of errors raised inside with a place in the spec."""
    return placed(lambda path: (*place, *path))


def dotted(path: Sequence[str]) -> str:
    """Write a place as its parts joined by dots."""
    return ".".join(path)


def no_string(value: object) -> str:
    """Write what is given in place of a string: the value, its type, and that quotes make it a string.

    Of a list, that is the first item that is none.
    """
    if isinstance(value, list | tuple):
        value = next((item for item in value if not isinstance(item, str)), value)
    quotes = ": put it in quotes" if isinstance(value, bool | int | float) else ""
    return f"{shown(value)} ({kind_of(value)}){quotes}"


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
