"""Errors that users can fix, and helpers to write their messages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from jestlab.analysis.errors import shown as shown
from jestlab.analysis.errors import without_addresses
from jestlab.analysis.units import near as near
from jestlab.analysis.units import nearest as nearest


class UserError(Exception):
    """An error that users can fix. The command line prints its message of one line, and exits with code 1."""

    def _render_traceback_(self) -> list[str]:
        """Show only the message in a notebook: IPython calls this method."""
        return [f"Error: {self}"]


class UserErrors(UserError):
    """Several errors with one line each; the last line may be their number."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(lines))


def sentence(error: BaseException) -> str:
    """Return the message of an error on one line; for an OSError, the file's name and the reason."""
    text = str(error) or ("not enough memory" if isinstance(error, MemoryError) else type(error).__name__)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return without_addresses(" ".join(text.split()))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Convert a ValueError or OSError that is raised in this context to a UserError."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise UserError(sentence(error)) from error


class StoreError(UserError):
    """The results store can't be used."""


class StoreUnreachable(StoreError):
    """The results store can't be used now: no connection, locked, or disk full. Retrying may help.

    If a person has to fix the cause (a password, a permission, a damaged file), it isn't this error.
    """


class StoreMissing(StoreUnreachable):
    """The results store doesn't exist: not created yet, moved, or on a disk that isn't mounted."""


class BucketUnreachable(UserError):
    """The lab's bucket doesn't answer, or denies access. Retrying may help."""


# ---- errors in a spec

Path = tuple[str, ...]
"""A place in a spec: `("runs", "joint", "selection", "rule")`, written `runs.joint.selection.rule`."""


class SpecError(UserError, ValueError):
    """An invalid spec. It is also a ValueError, so that pydantic collects it from validators.

    Attributes:
        path: Place of the error, from the root of the spec.
        message: The problem and the expected value.
        errors: All errors if several were found together, of which this is the first; otherwise this one.
    """

    def __init__(self, path: Sequence[str], message: str) -> None:
        self.path: Path = tuple(path)
        self.message = message
        self.errors: tuple[SpecError, ...] = (self,)
        super().__init__(f"{dotted(path)}: {message}" if path else message)


class Mistakes(dict[tuple[Path, str], SpecError]):
    """Collects errors in a spec without duplicates, to raise them together.

    `with mistakes: …` collects a SpecError that is raised in the block; execution continues after the block.
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
        """Raise the collected errors, if any, as one SpecError."""
        if self:
            together = SpecError(*next(iter(self)))
            together.errors = tuple(self.values())
            raise together from None


@contextmanager
def placed(place: Callable[[Path], Path]) -> Iterator[None]:
    """Replace the path of each SpecError that is raised in this context by `place(path)`."""
    try:
        yield
    except SpecError as error:
        mistakes = Mistakes()
        mistakes.add(SpecError(place(one.path), one.message) for one in error.errors)
        mistakes.check()


def within(*place: str) -> AbstractContextManager[None]:
    """Prefix the path of each SpecError that is raised in this context."""
    return placed(lambda path: (*place, *path))


def dotted(path: Sequence[str]) -> str:
    """Join the parts of a path by dots."""
    return ".".join(path)


def no_string(value: object) -> str:
    """Describe a value that should be a string, or the first such item of a list; suggest quotes."""
    if isinstance(value, list | tuple):
        value = next((item for item in value if not isinstance(item, str)), value)
    quotes = ": put it in quotes" if isinstance(value, bool | int | float) else ""
    return f"{shown(value)} ({kind_of(value)}){quotes}"


def choices(given: object, valid: Iterable[str]) -> str:
    """List the valid values, after the most similar one to the given value, if any."""
    known = list(valid)
    hint = near(str(given), known)
    listed = f"valid: {', '.join(known)}"
    return f"{hint} ({listed})" if hint else listed


def kind_of(value: object) -> str:
    """Name the type of a value as users of specs know it, such as "a mapping"."""
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
