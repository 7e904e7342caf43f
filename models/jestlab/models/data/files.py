"""Files and folders that appear whole or not at all, whoever is killed and whoever else is writing."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

DERIVED = ".jestlab"
"""Subfolder of a shard folder for what is computed from it: index, digest, tokenizers, captions. Safe to
delete."""

_STALE_SECONDS = 3600.0
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def derived_path(folder: Path, name: str) -> Path:
    """Where a file computed from a folder's shards lies."""
    return folder / DERIVED / name


def write_whole(path: Path, content: bytes) -> bool:
    """Write a file in one step: readers see the old file or the new one, never a part.

    Args:
        path: The file; its folder is created.
        content: Its bytes.

    Returns:
        False where the place may not be written to: a shared dataset is often read-only, and what is derived
        from it is then computed anew by each process.
    """
    # No process number: on several hosts that share a disk two processes may have the same.
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path.parent)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        if error.errno in _NOT_ALLOWED:
            return False
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return True


def _remove_stale(folder: Path) -> None:
    """Remove what killed writers left in a folder of derived files."""
    for partial in folder.glob("*.part"):
        with contextlib.suppress(FileNotFoundError):  # a living writer has just renamed it
            if partial.is_file() and time.time() - partial.stat().st_mtime > _STALE_SECONDS:
                partial.unlink()


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Make a folder unless it is there; of several processes one makes it and the others wait.

    It is built under another name and renamed when whole, so that a folder that exists is complete; what a
    killed builder left is removed by the next one.

    Args:
        folder: The folder.
        build: Fills the folder that it is given.

    Returns:
        `folder`.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.part")
    lock = folder.with_name(f".{folder.name}.lock")
    with FileLock(lock):
        if not folder.is_dir():
            if partial.exists():
                shutil.rmtree(partial)
            partial.mkdir()
            try:
                build(partial)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise  # the lock stays: whoever waits on it is to build alone
            partial.rename(folder)
        lock.unlink(missing_ok=True)  # whoever waits on it, or opens a new one, finds the folder
    return folder


def build_derived(folder: Path, name: str, build: Callable[[Path], None]) -> Path:
    """Make a folder of what is computed from a folder's shards, unless it is there.

    It lies beside the shards, or where those may not be written to, in this user's part of the system's
    temporary folder: a shared dataset is often read-only.

    Args:
        folder: The folder of shards.
        name: Of the derived folder; whatever its content depends on must be part of it.
        build: Fills the folder that it is given.

    Returns:
        The derived folder.
    """
    try:
        return build_once(derived_path(folder, name), build)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            raise
    place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return build_once(_own_temporary_folder() / place / name, build)


def _own_temporary_folder() -> Path:
    """A folder that nobody else can have filled."""
    folder = Path(tempfile.gettempdir()) / f"jestlab-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder}: not this user's alone: remove it, or set TMPDIR to another folder")
    return folder


def shard_files(folder: Path, suffixes: Sequence[str]) -> list[tuple[Path, os.stat_result]]:
    """The files of a dataset at any depth, hidden folders left out, in the order of their paths.

    Args:
        folder: The dataset's folder.
        suffixes: Of the files that count: ".tar".

    Returns:
        Each file's path within the folder, with its size and times.
    """
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(tuple(suffixes)) and not name.startswith("."):
                path = Path(place, name)
                found.append((path.relative_to(folder), path.stat()))
    return sorted(found, key=lambda entry: entry[0])


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
