"""What a verb writes for its user to a file."""

from __future__ import annotations

from pathlib import Path

from jestlab.analysis import files
from jestlab.platform.errors import UserError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all, as `jestlab.analysis.files` does.

    Raises:
        UserError: It cannot be written; what was there still is.
    """
    try:
        files.write_whole(path, content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
