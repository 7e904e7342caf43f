"""A store in a folder that several machines share, such as one on NFS, without a database server.

The folder holds the store's transactions, in order. Each machine applies them to a SQLite file on a local
disk, and reads that copy. Only the platform writes: see `jestlab.platform.store.shared`.

    results.shared/
        id                          random; a store that replaces this one has another id
        lock                        the process that is writing now
        log/000000004/4711.json     transaction 4711: see `Transaction`
        base/4000.db                the store after transaction 4000, as one SQLite file

The file system has to guarantee two things: a file that is closed on one machine and then opened on another
has its whole content (NFS's close-to-open consistency), and `link` fails if the name exists. A new file may
become visible late on other machines: readers then see an older state of the store, and writers try again.
"""

import base64
import errno
import fcntl
import hashlib
import json
import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

SUFFIX = ".shared"
"""End of the names of these folders."""

NAME = f"results{SUFFIX}"
"""Name of the folder in a lab."""

SCRATCH = "JESTLAB_SCRATCH"
"""Environment variable with a folder on a local disk, instead of the temporary one."""

PER_FOLDER = 1_000
"""Number of transactions in each folder of the log."""

LOCK_SECONDS = 30.0
"""How long a process waits for another one of this machine."""

_PAUSE_SECONDS = 0.002
_MOST_AT_ONCE = 500  # transactions that are applied together
_DENIED = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA)


def is_shared(path: Path | None) -> bool:
    """Return whether the path of a store is such a folder, by its name."""
    return path is not None and path.suffix == SUFFIX


def store_in(root: Path) -> Path:
    """Return the path of the store in a lab's folder; a lab without a store gets a SQLite file."""
    shared = root / NAME
    return shared if shared.is_dir() else root / "results.db"


@dataclass
class Transaction:
    """What one transaction changed: SQL statements with their parameters, in order.

    Attributes:
        author: Unique name of the attempt to publish it.
        statements: SQL; parameters of one execution, or a list with those of each execution; and whether
            it is such a list.
    """

    author: str
    statements: list[tuple[str, Any, bool]] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """Return the content of its file: JSON."""
        content = {"author": self.author, "statements": self.statements}
        return json.dumps(content, separators=(",", ":"), default=_from_bytes).encode()

    @classmethod
    def parse(cls, content: bytes) -> "Transaction":
        """Parse a file; ValueError if it is damaged."""
        read = json.loads(content, object_hook=_to_bytes)
        if not isinstance(read, dict) or read.keys() != {"author", "statements"}:
            raise ValueError("it isn't a transaction")
        return cls(read["author"], [(sql, values, bool(many)) for sql, values, many in read["statements"]])

    def apply(self, connection: sqlite3.Connection) -> None:
        """Execute the statements, within a transaction of a connection."""
        for sql, values, many in self.statements:
            if many:
                connection.executemany(sql, values)
            else:
                connection.execute(sql, values or ())


def _from_bytes(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"a {type(value).__name__} can't be written to the log of a shared store")


def _to_bytes(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["base64"]) if value.keys() == {"base64"} else value


class LocalCopy:
    """This machine's copy of a shared store.

    All processes of one user on a machine use the same copy. Its number is that of the last transaction that
    was applied (`PRAGMA user_version`).

    Attributes:
        folder: The shared folder.
        file: The SQLite file on a local disk.
    """

    def __init__(self, folder: Path) -> None:
        """Name the files, without creating any."""
        self.folder = folder.absolute()
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        self._place = scratch() / f"store-{digest}"
        self.file = self._place / "results.db"

    def path(self, number: int) -> Path:
        """Return the path of a transaction."""
        return self.folder / "log" / f"{number // PER_FOLDER:09}" / f"{number}.json"

    def base(self, number: int) -> Path:
        """Return the path of the whole store after a transaction."""
        return self.folder / "base" / f"{number}.db"

    def bases(self) -> list[int]:
        """Return the numbers of the transactions after which the whole store was saved, in order."""
        try:
            paths = list((self.folder / "base").iterdir())
        except FileNotFoundError:
            return []
        return sorted(int(path.stem) for path in paths if path.suffix == ".db" and path.stem.isdigit())

    def follow(self) -> None:
        """Apply all visible transactions, unless another process of this machine is doing so.

        Raises:
            FileNotFoundError: The shared folder is missing.
            OSError: It can't be read, or no copy can be written.
            sqlite3.Error: The copy can't be written; see also `CopyDiffers`.
            CopyDiffers: A transaction can't be applied.
        """
        try:
            with self.locked(0.0 if self.file.exists() else LOCK_SECONDS):
                self.catch_up()
        except BlockingIOError:
            (self.folder / "id").stat()

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """Hold the lock of the copy, which only processes of this machine see.

        Raises:
            BlockingIOError: Another process has it for longer than these seconds.
        """
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        deadline = time.monotonic() + seconds
        with (self._place / "lock").open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(_PAUSE_SECONDS)
            yield

    def catch_up(self) -> int:
        """Apply all visible transactions, as the process that holds the lock of the copy.

        Returns:
            The number of the last transaction; 0 for an empty store.

        Raises:
            The same errors as `follow`.
        """
        self._forget_other_store()
        with closing(connected(self.file)) as connection:
            number = number_of(connection)
            while True:
                while applied := self._apply(connection, number):
                    number += applied
                # The next transaction isn't published yet, or it was deleted.
                if (newer := self._load_base(connection, number)) == number:
                    return number
                number = newer

    def _forget_other_store(self) -> None:
        """Delete the copy if it is one of another store that had the same path."""
        id_ = (self.folder / "id").read_text()
        of_copy = self._place / "id"
        if not of_copy.exists() or of_copy.read_text() != id_:
            for suffix in ("", "-wal", "-shm"):
                self.file.with_name(f"{self.file.name}{suffix}").unlink(missing_ok=True)
            of_copy.write_text(id_)

    def _load_base(self, connection: sqlite3.Connection, number: int) -> int:
        """Replace the copy's content by a newer state, since transactions before it may be deleted."""
        newest = max([*self.bases(), 0])
        if newest <= number:
            return number
        address = f"file:{quote(str(self.base(newest)))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as base:
            base.backup(connection)
        return number_of(connection)

    def _apply(self, connection: sqlite3.Connection, number: int) -> int:
        """Apply the transactions after this one, and return how many."""
        count = 0
        try:
            while count < _MOST_AT_ONCE and (content := read(self.path(number + count + 1))) is not None:
                if not count:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.set_authorizer(_authorize)
                Transaction.parse(content).apply(connection)
                count += 1
            if count:
                connection.set_authorizer(None)
                set_number(connection, number + count)
                connection.execute("COMMIT")
        except (sqlite3.Error, ValueError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING:
                raise
            raise CopyDiffers(
                f"{self.path(number + count + 1)} can't be applied to the copy {self.file} ({error}): delete "
                f"{self._place} to make a new copy, or restore a backup"
            ) from error
        return count


def _authorize(action: int, *_: str | None) -> int:
    """Allow no statement of a transaction, which another user may have written, to touch other files."""
    return sqlite3.SQLITE_DENY if action in _DENIED else sqlite3.SQLITE_OK


class CopyDiffers(ValueError):
    """A transaction can't be applied to this machine's copy of a shared store."""


_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def connected(file: Path) -> sqlite3.Connection:
    """Open a copy for writing; the connection begins no transactions by itself."""
    connection = sqlite3.connect(file, timeout=30.0, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def number_of(connection: sqlite3.Connection) -> int:
    """Return the number of the last transaction that was applied to a copy."""
    [[number]] = connection.execute("PRAGMA user_version")
    return int(number)


def set_number(connection: sqlite3.Connection, number: int) -> None:
    """Record the number of the last transaction, within the transaction that applies it."""
    connection.execute(f"PRAGMA user_version = {number}")


def read(path: Path) -> bytes | None:
    """Return the content of a file; None if it doesn't exist.

    The folder is opened first: then NFS clients forget that the file was missing earlier.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        descriptor = os.open(path.name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    finally:
        os.close(folder)
    try:
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read()
    except OSError as error:
        if error.errno == errno.ESTALE:  # another NFS client has deleted it since it was opened
            return None
        raise


def scratch() -> Path:
    """Return the local folder for copies; PermissionError if other users can write to it.

    `jestlab.models.data.files`, which analysis can't import, makes another folder in the same way.
    """
    if given := os.environ.get(SCRATCH):
        return Path(given).absolute()
    folder = Path(tempfile.gettempdir()) / f"jestlab-scratch-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(
            f"{folder}: not owned by this user alone: remove it, or set {SCRATCH} to another folder"
        )
    return folder
