"""What is wrong with a run that another tool recorded: it is reported, and the other runs are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from jestlab.platform.errors import UserError

T = TypeVar("T")

Damaged = Callable[[UserError], None]
"""Told of a run that cannot be read; the others are read all the same."""


def refuse(error: UserError) -> None:
    """Raise what is wrong with a run."""
    raise error


def attempted(damaged: Damaged, place: object, read: Callable[[], T]) -> T | None:
    """Return what is read of a run at a place; None if that fails, which is reported in one line."""
    try:
        return read()
    except UserError as error:
        damaged(error)
    except (ArithmeticError, LookupError, MemoryError, OSError, RecursionError, ValueError) as error:
        what = str(error)[:200] or type(error).__name__
        damaged(UserError(one_line([f"{place}: cannot be read ({what}): copy it again, or move it away"])))
    return None


def one_line(parts: Iterable[object]) -> str:
    """Join the parts of an error's text, without line breaks that the data may have brought in."""
    return " ".join(" ".join(str(part) for part in parts).split())
