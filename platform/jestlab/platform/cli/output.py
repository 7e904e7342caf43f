"""What a verb writes for its user to a file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from jestlab.platform.errors import UserError


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one step: whoever reads it sees the old one or the new one, never a part.

    Args:
        path: The file; its folder is made.
        content: All of it.

    Raises:
        UserError: It cannot be written; what was there still is.
    """
    encoded = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(encoded)
            Path(partial).chmod(0o666 & ~_umask())
            Path(partial).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(partial).unlink()
            raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _umask() -> int:
    """What the process takes from the permissions of new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
