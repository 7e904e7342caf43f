"""Files and folders that appear complete or not at all, also data derived from shards for later runs."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock

if TYPE_CHECKING:
    import numpy.typing as npt

DERIVED = ".jestlab"
"""Subfolder of a shard folder for derived data: index, digest, tokenizers, captions. Safe to delete."""

Opened = TypeVar("Opened")
Item = TypeVar("Item")
Result = TypeVar("Result")

_LOG = logging.getLogger(__name__)
_STALE_SECONDS, _LOG_SECONDS = 3600.0, 10.0
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def derived_path(folder: Path, name: str) -> Path:
    """Return the path of a file that is derived from a folder's shards."""
    return folder / DERIVED / name


def write_whole(path: Path, content: bytes | Iterable[bytes]) -> bool:
    """Write a file, from bytes or parts of them, atomically: readers see the old file or the new one.

    The folder is created, and files that killed writers left there an hour ago or earlier are removed.

    Returns:
        False if writing is not allowed there. Shared datasets are often read-only, so each process then
        computes derived data for itself.
    """
    # No process number: on several hosts that share a disk two processes may have the same.
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob("*.part"):
            with contextlib.suppress(FileNotFoundError):  # a writer has just renamed it
                if old.is_file() and time.time() - old.stat().st_mtime > _STALE_SECONDS:
                    old.unlink()
        with _complete(partial, path), partial.open("wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in _NOT_ALLOWED:
            return False
        raise
    return True


@contextlib.contextmanager
def _complete(partial: Path, path: Path) -> Iterator[None]:
    """Rename a partial file or folder to `path` after the block, or remove it after an error."""
    try:
        yield
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink()
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            error.filename = error.filename or str(path)  # writing does not name the file
        raise


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Make a folder with a function that fills it, unless the folder exists; return the folder.

    Of several processes, one makes it and the others wait. It is built under another name and renamed when
    complete, so a folder that exists is complete. The next builder removes the remains of a killed one.
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
            with _complete(partial, folder):
                build(partial)  # after an error the lock file stays: the next process that waits builds alone
        lock.unlink(missing_ok=True)  # every process that gets a lock from now on finds the folder
    return folder


def open_derived(
    folder: Path, name: str, build: Callable[[Path], None], open_: Callable[[Path], Opened]
) -> Opened:
    """Open a folder of data that are derived from a folder's shards; build it if missing, again if damaged.

    It is stored next to the shards. If that is not allowed, since a shared dataset is often read-only, it is
    stored in the user's part of the system's temporary folder.

    Args:
        name: Name of the derived folder; includes everything that its content depends on.
        build: Fills the folder whose path it gets.
        open_: Opens the derived folder; OSError, KeyError, TypeError, and ValueError mean damage.
    """
    try:
        derived = build_once(derived_path(folder, name), build)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            raise
        place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        derived = build_once(own_temporary_folder() / place / name, build)
    try:
        return open_(derived)
    except (OSError, KeyError, TypeError, ValueError) as error:
        _LOG.warning("%s: damaged (%s), built again", derived, error)
    shutil.rmtree(derived, ignore_errors=True)  # another process may have removed it
    return open_(build_once(derived, build))


def map_array(path: Path, dtype: Any, shape: tuple[int, ...] = (-1,)) -> npt.NDArray[Any]:
    """Memory-map an array from a file of its bytes; raises ValueError if these don't fit the shape."""
    import numpy as np

    # An empty file cannot be mapped.
    array = np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
    return np.asarray(array).reshape(shape)


def own_temporary_folder(name: str = "jestlab", variable: str = "TMPDIR") -> Path:
    """Return a folder in the temporary one that only this user can write to; make it if it is missing.

    Its name is `name` with the user's id. If another user may have written to it, this raises
    PermissionError, whose message names the environment variable that sets another folder.
    """
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(
            f"{folder}: not owned by this user alone: remove it, or set {variable} to another folder"
        )
    return folder


def shard_files(folder: Path, suffixes: Sequence[str]) -> list[tuple[Path, os.stat_result]]:
    """List a dataset's files with some suffixes, such as ".tar", by path, at any depth but in hidden folders.

    Links to folders are followed; a folder with several paths is listed once.

    Returns:
        Each file's path within the folder, with its size and times.

    Raises:
        OSError: A folder cannot be read, or a link is broken.
    """

    def fail(error: OSError) -> None:
        raise error

    found: dict[Path, os.stat_result] = {}
    seen: set[tuple[int, int]] = set()
    for place, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        about = Path(place).stat()
        is_new = (about.st_dev, about.st_ino) not in seen
        seen.add((about.st_dev, about.st_ino))
        folders[:] = sorted(name for name in folders if is_new and not name.startswith("."))
        for path in (Path(place, name) for name in names if is_new and not name.startswith(".")):
            if not path.exists():
                raise FileNotFoundError(f"{path}: a broken link: restore its target or remove it")
            if path.name.lower().endswith(tuple(suffixes)) and path.is_file():
                found[path.relative_to(folder)] = path.stat()
    return sorted(found.items())


def compute_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int
) -> Generator[Result, None, None]:
    """Call a function for each item, in threads, some items ahead; yield the results in order."""
    pool = ThreadPoolExecutor(threads)
    started: deque[Future[Result]] = deque()
    try:
        for item in items:
            started.append(pool.submit(function, item))
            if len(started) > ahead:
                yield started.popleft().result()
        while started:
            yield started.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def log_progress(items: Iterable[Item], count: int, prefix: str) -> Iterator[Item]:
    """Yield `count` items, one for each shard; every ten seconds, log `prefix` and the number so far."""
    next_log = time.monotonic() + _LOG_SECONDS
    for number, item in enumerate(items, start=1):
        yield item
        if time.monotonic() > next_log:
            next_log = time.monotonic() + _LOG_SECONDS
            _LOG.info("%s %s of %s shards", prefix, f"{number:,}", f"{count:,}")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
