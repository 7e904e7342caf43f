"""Digests of the contents of files and folders."""

import hashlib
from pathlib import Path

_BLOCK = 1 << 20


def size_and_digest(path: Path) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 of a file, or of all files in a folder with their names.

    Raises:
        OSError: A file can't be read.
    """
    total, digest = 0, hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        if file != path:
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                total += len(block)
    return total, digest.hexdigest()


def digest_of(path: Path) -> str | None:
    """Return the SHA-256 of a file or folder; None if it doesn't exist or can't be read."""
    try:
        return size_and_digest(path)[1] if path.exists() else None
    except OSError:
        return None
