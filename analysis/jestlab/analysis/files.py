"""Atomic writing of files.

Analysis writes its own files, since the file that exists decides whether a figure has to be drawn again.
Models and platform write through `jestlab.models.data.files`, which analysis may not import.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file atomically: readers see the old content or the new one, never a part.

    Args:
        path: The file; its folder is created if missing.
        content: The whole content.

    Returns:
        The path.

    Raises:
        OSError: It cannot be written; the old file is unchanged.
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
    """The process's mask for permissions of new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
