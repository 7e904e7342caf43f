"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file in one step: whoever reads it sees the old one or the new one, never a part.

    Args:
        path: The file; its folder is made.
        content: All of it.

    Returns:
        The path.

    Raises:
        OSError: It cannot be written; what was there still is.
    """
    encoded = content.encode() if isinstance(content, str) else content
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
    return path


def _umask() -> int:
    """What the process takes from the permissions of new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
