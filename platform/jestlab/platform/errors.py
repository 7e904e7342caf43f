"""Errors that users can fix, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input: one line that names the place and the remedy. The command line prints it and exits 1."""


class StoreError(UserError):
    """The results store cannot be used: now, or before somebody has fixed something."""


class StoreUnreachable(StoreError):
    """The results store cannot be used now: no connection, locked, disk full. Trying again may help.

    What somebody has to fix first (a password, a permission, a damaged file) is a plain UserError.
    """


class BucketUnreachable(UserError):
    """The bucket that the lab is in does not answer, or refuses. Trying again may help."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the valid name most like an unknown one; None if none is like it."""
    return next(iter(difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.5)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """Write a clause that helps with an unknown name.

    Args:
        name: What was given.
        known: The valid names.

    Returns:
        "did you mean 'x'?" for the nearest valid name, else "known: a, b, c"; "there are none" without any.
    """
    names = sorted(set(known))
    if not names:
        return "there are none"
    if found := closest(name, names):
        return f"did you mean {found!r}?"
    return "known: " + ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
