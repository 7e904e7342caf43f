"""What is wrong with a run that another tool recorded: it is reported, and the other runs are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from jestlab.platform.errors import UserError
from jestlab.platform.words import on_one_line

T = TypeVar("T")

_OF_DAMAGE = (ArithmeticError, LookupError, MemoryError, OSError, RecursionError, ValueError, sqlite3.Error)

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
    except sqlite3.OperationalError:
        raise  # of the whole database: it is locked, or of another version
    except _OF_DAMAGE as error:
        what = str(error)[:200] or type(error).__name__
        damaged(UserError(on_one_line(f"{place}: cannot be read ({what}): copy it again, or move it away")))
    return None
