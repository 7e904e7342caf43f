"""Atomic writing of files.

Analysis writes its own files, since the file that exists decides whether a figure has to be drawn again.
Models and platform write through `jestlab.models.data.files`, which analysis may not import.
"""

from __future__ import annotations

import contextlib
import uuid
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
    # Named before it is made: Ctrl-C may come at any moment, and nothing is to be left behind.
    partial = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        with partial.open("xb") as stream:
            stream.write(encoded)
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return path
