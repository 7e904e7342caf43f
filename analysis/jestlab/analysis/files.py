"""Write files atomically.

`jestlab.models.data.files` does the same for models and the platform; analysis can't import it.
"""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file atomically, and return its path. Readers see the old or the new content, never a part.

    A missing folder is created.

    Raises:
        OSError: The file can't be written; the old file is unchanged.
    """
    encoded = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is known before the file exists, so that an interrupt at any time leaves no file behind.
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
