"""Names of files that are made of names that anybody may have given, however long and strange they are."""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path


def short(text: str, limit_bytes: int) -> str:
    """Cut a text to a number of bytes in UTF-8."""
    return text.encode()[:limit_bytes].decode(errors="ignore")


def free(folder: Path, name: str) -> str:
    """Return a name that nothing in a folder has: the name itself, or with an underscore and a number."""
    tries = chain([name, f"{name}_"], (f"{name}_{number}" for number in count(2)))
    return next(each for each in tries if not (folder / each).exists())
