"""Write to a store in a shared folder: see `jestlab.analysis.shared` for its files.

A write transaction changes this machine's copy, and its statements are recorded. Before the copy is
committed, they are published as the file with the next number. `link` makes that file appear whole, and fails
if another process has published that number: then the transaction is rolled back, and the caller tries again.
So a process that is killed at any line, or that stops for an hour and continues, loses and damages nothing.

The lock only keeps processes from trying at the same time. It is a file that names its holder, who changes it
every few seconds; others remove it once it hasn't changed for `STALE_SECONDS`.
"""

import errno
import os
import random
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from jestlab.analysis.shared import (
    LOCK_SECONDS,
    PER_FOLDER,
    CopyDiffers,
    LocalCopy,
    Transaction,
    connected,
    read,
    set_number,
)
from jestlab.platform.errors import StoreError, StoreMissing, StoreUnreachable, sentence
from jestlab.platform.processes import identity

STALE_SECONDS = 15.0
"""A lock that hasn't changed for this long belongs to a process that was killed, or is out of reach."""

_RENEW_SECONDS = 4.0
_PAUSE_SECONDS = 0.02
_LINK_ATTEMPTS = 5
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)
_BASE_EVERY = 1_000  # transactions between two copies of the whole store, at least
_BYTES_PER_TRANSACTION = 50_000  # a large store is copied less often
_CHECK_EVERY = 50  # transactions between two checks whether a copy of the whole store is due


class PendingTransaction:
    """A transaction that is being made, and becomes the one with its number when it is published."""

    def __init__(self, copy: LocalCopy, number: int) -> None:
        self._copy = copy
        self._number = number
        self._content = Transaction(f"{identity()} {uuid.uuid4().hex}")

    def record(self, sql: str, values: Any, many: bool) -> None:
        """Record a statement that is executed on the copy, unless it only reads."""
        if not sql.lstrip().upper().startswith(("SELECT", "PRAGMA", "BEGIN")):
            self._content.statements.append((sql, values, many))

    def publish(self, connection: Connection) -> None:
        """Publish the recorded statements, before the copy is committed.

        Raises:
            StoreUnreachable: Another process has published a transaction since this one began, or the folder
                can't be written to now.
            StoreError: This user may not write there.
        """
        if not self._content.statements:
            return
        raw: Any = connection.connection.dbapi_connection
        set_number(raw, self._number)
        path = self._copy.path(self._number)
        with plain_errors(self._copy.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _unpublished(path.parent, self._content.to_bytes()) as partial:
                # NFS repeats a request whose answer was lost: the first one may have succeeded.
                if not _link(partial, path) and self._content.author.encode() not in (read(path) or b""):
                    raise self._conflict()
            if max([*self._copy.bases(), 0]) >= self._number:  # this number is long past, its file deleted
                path.unlink(missing_ok=True)
                raise self._conflict()
            with suppress(OSError):  # it is published: after an error, it would be written twice
                _sync_folder(path.parent)

    def _conflict(self) -> StoreUnreachable:
        return StoreUnreachable(
            f"store {self._copy.folder}: another process wrote at the same time: try again"
        )


@contextmanager
def transaction(folder: Path) -> Iterator[PendingTransaction]:
    """Bring this machine's copy up to date, and keep other processes from writing.

    Raises:
        StoreMissing: The folder is missing.
        StoreUnreachable: Another process is writing for longer than `LOCK_SECONDS`, or the folder can't be
            read now.
        StoreError: This user may not write there, or the copy is damaged.
    """
    copy = LocalCopy(folder)
    with ExitStack() as held:
        with plain_errors(folder):
            held.enter_context(copy.locked(LOCK_SECONDS))
            held.enter_context(_lock(copy.folder))
            number = copy.catch_up()
            if number and number % _CHECK_EVERY == 0:
                _save_base(copy, number)
        yield PendingTransaction(copy, number + 1)


def follow(folder: Path) -> LocalCopy:
    """Bring this machine's copy of a shared store up to date, to read it; raises errors as `transaction`."""
    copy = LocalCopy(folder)
    with plain_errors(folder):
        copy.follow()
    return copy


def create(folder: Path) -> None:
    """Make the folder of a shared store, unless it exists. The umask decides who else may write to it.

    Raises:
        StoreError: It can't be made.
    """
    with plain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "id").exists():
            with _unpublished(folder, uuid.uuid4().hex.encode()) as partial:
                _link(partial, folder / "id")  # unless another process was faster


@contextmanager
def plain_errors(folder: Path) -> Iterator[None]:
    """Convert errors of the file system and of the copy to errors of the store."""
    try:
        yield
    except FileNotFoundError as error:
        if folder.is_dir():
            raise StoreUnreachable(f"store {folder}: {sentence(error)}") from error
        raise StoreMissing(f"no store at {folder}: launch a study first, or use --root or --store") from error
    except NoLinks as error:
        raise StoreError(
            f"store {folder}: no hard links can be made there ({sentence(error)}): give --store "
            "postgresql://user@host/database, or a --root on another file system"
        ) from error
    except PermissionError as error:
        raise StoreError(f"store {folder}: no permission: {sentence(error)}") from error
    except BlockingIOError as error:
        raise StoreUnreachable(f"store {folder}: another process of this machine is writing to it") from error
    except (OSError, sqlite3.Error) as error:
        raise StoreUnreachable(f"store {folder}: {sentence(error)}") from error
    except CopyDiffers as error:
        raise StoreError(f"store {folder}: {error}") from error


# ---- the lock


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a shared store, which at most one process does unless it is silent.

    Raises:
        StoreUnreachable: Another process holds it for longer than `LOCK_SECONDS`.
        OSError: The folder can't be written to.
    """
    path, name = folder / "lock", f"{identity()} {uuid.uuid4().hex}\n".encode()
    with _unpublished(folder, name, synced=False) as partial:
        _take(partial, path, name)
    began, is_over = time.monotonic(), threading.Event()
    renewing = threading.Thread(
        target=_renew, args=(path, name, is_over), name="lock of the store", daemon=True
    )
    renewing.start()
    try:
        yield
    finally:
        is_over.set()
        with suppress(OSError):  # then others wait until it is stale
            # After a pause of this process, another one may hold it.
            if time.monotonic() < began + STALE_SECONDS / 2 or (read(path) or b"").startswith(name):
                path.unlink(missing_ok=True)


def _take(partial: Path, path: Path, name: bytes) -> None:
    """Link a file to the path of the lock, once no other process holds it."""
    seen, since = b"", time.monotonic()
    deadline = since + LOCK_SECONDS
    while not _link(partial, path):
        holder = read(path) or b""
        if holder.startswith(name):  # the answer to the request was lost
            return
        if holder != seen:
            seen, since = holder, time.monotonic()
        elif time.monotonic() > since + STALE_SECONDS:
            removed = path.with_name(f".{uuid.uuid4().hex}")
            with suppress(FileNotFoundError):
                path.rename(removed)  # at most one of several waiting processes removes it
                removed.unlink()
        if time.monotonic() > deadline:
            who = holder.decode(errors="replace").partition(" ")[0]
            raise StoreUnreachable(f"store {path.parent}: {who} is writing to it: try again")
        time.sleep(_PAUSE_SECONDS * random.uniform(0.25, 1.0))


def _renew(path: Path, name: bytes, is_over: threading.Event) -> None:
    """Change the content of this process's lock every few seconds, until it is over."""
    while not is_over.wait(_RENEW_SECONDS):
        with suppress(OSError), path.open("r+b") as stream:
            if stream.read(len(name)) == name:
                stream.seek(0, os.SEEK_END)
                stream.write(b".")


# ---- files


class NoLinks(OSError):
    """The file system has no hard links, or this user may not make any."""


def _link(partial: Path, path: Path) -> bool:
    """Give a file its name, unless the name exists; return whether this process did.

    Raises:
        OSError: The file system has no links, or the file can't be made for another reason.
    """
    for left in reversed(range(_LINK_ATTEMPTS)):
        try:
            os.link(partial, path)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            # SFTP has one error for all reasons; the file may have been deleted since. After a lost
            # connection, the link may exist.
            with suppress(OSError):
                if read(path) is not None:
                    return False
            if not left:
                if error.errno in _NO_LINKS:
                    raise NoLinks(error.errno, error.strerror, str(path)) from error
                raise
        time.sleep(_PAUSE_SECONDS)
    return False


@contextmanager
def _unpublished(folder: Path, content: bytes, *, synced: bool = True) -> Iterator[Path]:
    """Write a hidden file, to be linked to its name, and delete it at the end."""
    partial = folder / f".{uuid.uuid4().hex}"
    try:
        with partial.open("xb") as stream:
            stream.write(content)
            if synced:
                stream.flush()
                os.fsync(stream.fileno())
        yield partial
    finally:
        with suppress(OSError):  # whatever it was for has been done
            partial.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, on the machine whose disk has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _save_base(copy: LocalCopy, number: int) -> None:
    """If many transactions were published since the last time, save the whole store, and delete old ones.

    The last two bases stay, and all transactions since the older one: other machines may be far behind.
    """
    bases = copy.bases()
    due = max(_BASE_EVERY, copy.file.stat().st_size // _BYTES_PER_TRANSACTION)
    if number < max([*bases, 0]) + due:
        return
    whole, target = copy.file.with_name("base.db"), copy.base(number)
    whole.unlink(missing_ok=True)
    with closing(connected(copy.file)) as source, closing(sqlite3.connect(whole)) as saved:
        source.backup(saved)
        saved.execute("PRAGMA journal_mode = DELETE")
    target.parent.mkdir(exist_ok=True)
    with _unpublished(target.parent, whole.read_bytes()) as partial:
        _link(partial, target)  # another process whose lock was removed may have done the same
    whole.unlink()
    *old, first_kept, _ = [0, *bases, number]
    for base in old:
        copy.base(base).unlink(missing_ok=True)
    for folder in (copy.folder / "log").iterdir():
        if folder.name.isdigit() and (int(folder.name) + 1) * PER_FOLDER <= first_kept:
            removed = folder.rename(folder.with_name(f".{folder.name}"))
            shutil.rmtree(removed, ignore_errors=True)
