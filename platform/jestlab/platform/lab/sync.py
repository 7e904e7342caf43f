"""Sync the folders of runs with a bucket, for a lab whose root is a bucket.

Programs work in folders of their machine, which are lost with it. What a run goes on from, and what others
read of it, is kept as snapshots:

    runs/<run>/kept/<generation>-<attempt>.json      the run's files, each a list of parts
    runs/<run>/kept/<generation>-<attempt>/<sha256>  the parts, of at most 32 MiB, named by what they hold
    runs/<run>/log.txt, …/events.out.tfevents.…      as they are, for people and TensorBoard

Parts never change, and the snapshot that names them is written after them, as one object: whoever reads finds
the old snapshot or the new one, never half of one. An attempt writes and deletes under a name of its own that
comes after those that it found, and the last name counts: an attempt that was given up and does not know it
yet harms nobody. A file that grows, or is written in place, costs the parts that have changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from jestlab.models.data.files import write_whole
from jestlab.platform import logs
from jestlab.platform.errors import BucketUnreachable, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line

_LOG = logging.getLogger(__name__)

_PACKAGES = {"gs": "jestlab[gcs]", "gcs": "jestlab[gcs]", "s3": "s3fs"}

PART_BYTES = 1 << 25

SHOW_SECONDS = 60.0
"""How often logs and events are sent."""

PUSH_SECONDS = 600.0
"""How long the end of a run waits for a bucket that cannot be reached."""

_AT_ONCE = 8  # parts on their way
_KEPT = "kept"
_EVENTS = "events.out.tfevents."
_OF_THE_MACHINE = "spool-"

Files = dict[str, list[str]]
"""Path in the run's folder → SHA-256 of each of its parts."""


class Bucket:
    """Objects below a URL, each whole or absent. Methods may be called from any thread."""

    def __init__(self, url: str) -> None:
        """Open a folder of an object store, `gs://bucket/folder` or the like, without connecting to it yet.

        Raises:
            UserError: There is no such kind of address, or what reads it is not installed.
        """
        import fsspec

        self.url = url
        protocol = url.partition("://")[0]
        try:
            # What others have written since is to be seen.
            fs, self._path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError:
            package = _PACKAGES.get(protocol, f"fsspec[{protocol}]")
            raise UserError(f"{url}: reading it needs a package: pip install '{package}'") from None
        except ValueError as error:
            raise UserError(f"{url}: {error}: write gs://BUCKET/FOLDER") from None
        self._fs: Any = fs

    def names(self, folder: str) -> list[str]:
        """List the names of the objects and folders in a folder; none if there is no such folder."""
        try:
            with self._asked(folder):
                found = self._fs.ls(self._at(folder), detail=False)
        except FileNotFoundError:
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def read(self, name: str) -> bytes:
        """Return an object's bytes; FileNotFoundError if there is no such object."""
        with self._asked(name):
            content: bytes = self._fs.cat_file(self._at(name))
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write an object atomically: readers see the old bytes or the new ones."""
        try:
            with self._asked(name):
                self._fs.pipe_file(self._at(name), content, **self._options(content))
        except FileNotFoundError as error:
            raise BucketUnreachable(f"{self.url}: no such bucket") from error

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, and folders with their content; missing ones are ignored."""
        for name in names:
            with suppress(FileNotFoundError), self._asked(name):
                self._fs.rm(self._at(name), recursive=True)

    def _options(self, content: bytes) -> dict[str, Any]:
        """Choose options by which every byte arrives, or its loss is an error.

        gcsfs sends a small object as part of a MIME message and ends it by a bare line feed: a last byte that
        is a carriage return is taken for half of that line's end, and lost (gcsfs 2026.10.1, against the
        emulator that tests run). An object no shorter than a chunk is sent by itself.
        """
        if "gs" not in self._fs.protocol:
            return {}
        return {"chunksize": max(len(content), 1), "consistency": "md5"}

    @contextmanager
    def _asked(self, name: str) -> Iterator[None]:
        """Context in which every failure of a store becomes BucketUnreachable."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.url}/{name}: no such object") from error
        except Exception as error:
            said = one_line(f"{self.url}/{name}: {type(error).__name__}: {error}")
            raise BucketUnreachable(said) from error

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"


# ---- folders of runs


class LocalFolder:
    """A run's folder that lasts by itself, so that there is nothing to sync."""

    def begin(self, attempt: int, sure: Callable[[], None]) -> None:
        """Bring the folder to where earlier attempts left it.

        Args:
            attempt: Number of the attempt that begins.
            sure: Returns once it is sure that the attempt still has its run; raises if it has not.
        """

    def keep(self) -> None:
        """Make the folder's files durable, or log why that failed and go on."""

    def push(self, seconds: float = 0.0) -> None:
        """Make the folder's files durable, trying for some seconds.

        Raises:
            BucketUnreachable: The bucket did not take them.
        """

    def show(self) -> None:
        """Let others read what the run has printed so far, if that is possible now."""


class _Version(NamedTuple):
    """A snapshot's name; the greatest counts."""

    generation: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.attempt}"

    @classmethod
    def parse(cls, name: str) -> _Version | None:
        """None for what is no such name."""
        numbers = name.split("-")
        return cls(*map(int, numbers)) if len(numbers) == 2 and all(n.isdecimal() for n in numbers) else None


class SyncedFolder(LocalFolder):
    """A run's folder on this machine, synced with the bucket that keeps it."""

    def __init__(self, bucket: Bucket, folder: str, directory: Path) -> None:
        """Name the folder, in the lab's bucket and on this machine, without reading anything yet."""
        self._bucket = bucket
        self._folder = folder
        self._directory = directory
        self._version = _Version(0, 0)
        self._sure: Callable[[], None] = lambda: None
        self._last: Files | None = None
        self._sent: set[str] = set()
        self._shown: dict[str, tuple[int, int]] = {}
        self._pushing = threading.Lock()
        self._showing = threading.Lock()

    # ---- from the bucket

    def begin(self, attempt: int, sure: Callable[[], None]) -> None:
        """See `LocalFolder`. From now on the log and events are sent now and then."""
        newest = self.pull()
        self._version = _Version(newest.generation + 1 if newest else 0, attempt)
        self._sure = sure
        threading.Thread(target=self._show_now_and_then, name="sync", daemon=True).start()

    def pull(self) -> _Version | None:
        """Make the folder what the newest snapshot says, empty if there is none; return the snapshot's name.

        Files that are damaged in the bucket are left out: whoever needs one will see that it is missing.
        """
        while True:
            newest = self._newest()
            damaged = self._fetch(newest)
            # Another attempt may have kept a newer one just now, and deleted this one.
            if not damaged or self._newest() == newest:
                break
        for name in damaged:
            _LOG.warning("%s/%s: %s is damaged: left out", self._bucket.url, self._folder, name)
        return newest

    def pull_ended(self) -> None:
        """Make the folder that of a run that has ended, unless it is already.

        Raises:
            UserError: The bucket has nothing of the run.
        """
        newest = self._newest()
        if newest is None:
            raise UserError(f"{self._bucket.url}/{self._folder} has no files of that run: launch it again")
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        marker = self._directory.with_name(f".{self._directory.name}.pulled")
        with FileLock(marker.with_suffix(".lock")):
            if not self._directory.is_dir() or not marker.exists() or marker.read_text() != str(newest):
                marker.unlink(missing_ok=True)
                marker.write_text(str(self.pull()))

    def fetch_log(self, path: Path) -> bool:
        """Write the log, as the bucket has it, to a file; return whether it has one."""
        try:
            content = self._bucket.read(f"{self._folder}/{logs.NAME}")
        except FileNotFoundError:
            return False
        _write(path, [content])
        return True

    def _newest(self) -> _Version | None:
        names = self._bucket.names(f"{self._folder}/{_KEPT}")
        found = (_Version.parse(name.removesuffix(".json")) for name in names if name.endswith(".json"))
        return max((version for version in found if version is not None), default=None)

    def _fetch(self, version: _Version | None) -> list[str]:
        """Make the folder what a snapshot says; return the names of files that are damaged in the bucket."""
        files: Files = {}
        if version is not None:
            try:
                files = json.loads(self._bucket.read(f"{self._kept(version)}.json"))["files"]
            except FileNotFoundError:
                return [f"{version}.json"]
        self._directory.mkdir(parents=True, exist_ok=True)
        for name, path in list(self._kept_files()):
            if name not in files:
                path.unlink()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            whole = pool.map(lambda name: self._fetch_file(self._kept(version), name, files[name]), files)
            return [name for name, is_whole in zip(files, whole, strict=True) if not is_whole]

    def _fetch_file(self, kept: str, name: str, parts: list[str]) -> bool:
        path = self._directory / name
        if not path.resolve().is_relative_to(self._directory.resolve()):
            raise UserError(f"{self._bucket.url}/{kept}.json: {name!r} is outside the run's folder")
        if path.is_file() and [digest for digest, _ in _parts(path)] == parts:
            return True
        path.unlink(missing_ok=True)
        try:
            _write(path, (self._part(kept, digest) for digest in parts))
        except (FileNotFoundError, _Damaged):
            return False
        return True

    def _part(self, kept: str, digest: str) -> bytes:
        content = self._bucket.read(f"{kept}/{digest}")
        if hashlib.sha256(content).hexdigest() != digest:
            raise _Damaged
        return content

    # ---- to the bucket

    def keep(self) -> None:
        """Push, or log why that failed and go on, as of `LocalFolder`."""
        try:
            self.push()
        except BucketUnreachable as error:
            _LOG.warning("%s: this checkpoint is not in the bucket; the next one will be tried again", error)

    def push(self, seconds: float = 0.0) -> None:
        """Write a snapshot to the bucket, as of `LocalFolder`."""
        deadline, pause = time.monotonic() + seconds, 1.0
        while True:
            try:
                with self._pushing:
                    self._push()
                return
            except BucketUnreachable as error:
                if time.monotonic() > deadline:
                    raise
                _LOG.warning("%s: trying again", error)
            time.sleep(pause)
            pause = min(2 * pause, 30.0)

    def _push(self) -> None:
        """Send what the bucket lacks, then the snapshot, then delete what it no longer needs."""
        self._sure()
        own = self._kept(self._version)
        files = self._send_files(own)
        if files == self._last:
            return
        self._sure()  # sending may have taken minutes
        content = json.dumps({"format": 1, "files": files}, indent=1).encode()
        self._bucket.write(f"{own}.json", content)
        self._last = files
        with suppress(BucketUnreachable):  # what stays costs room, and nothing else
            names = self._bucket.names(f"{self._folder}/{_KEPT}")
            versions = {name: _Version.parse(name.removesuffix(".json")) for name in names}
            before = [name for name, found in versions.items() if found is not None and found < self._version]
            # Snapshots before their parts: of one that is there, nothing shall be missing.
            before.sort(key=lambda name: not name.endswith(".json"))
            self._bucket.delete(f"{self._folder}/{_KEPT}/{name}" for name in before)
            for digest in self._sent - {part for parts in files.values() for part in parts}:
                self._bucket.delete([f"{own}/{digest}"])
                self._sent.discard(digest)

    def _send_files(self, own: str) -> Files:
        """Send the parts that are not there yet."""
        files: Files = {}
        waiting: list[Future[None]] = []
        places = threading.BoundedSemaphore(2 * _AT_ONCE)  # in memory at a time

        def send(digest: str, content: bytes) -> None:
            try:
                self._bucket.write(f"{own}/{digest}", content)
                self._sent.add(digest)
            finally:
                places.release()

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for name, path in self._kept_files():
                parts = []
                try:
                    for digest, content in _parts(path):
                        parts.append(digest)
                        if digest not in self._sent:
                            places.acquire()
                            waiting.append(pool.submit(send, digest, content))
                except FileNotFoundError:
                    continue  # deleted just now
                files[name] = parts
            for sending in waiting:
                sending.result()
        return files

    # ---- for people

    def show(self) -> None:
        """Send the log and the events that changed, as of `LocalFolder`."""
        with self._showing, suppress(BucketUnreachable):
            for name, path in self._files(shown=True):
                found = path.stat()
                state = (found.st_size, found.st_mtime_ns)
                if self._shown.get(name) != state:
                    self._bucket.write(f"{self._folder}/{name}", path.read_bytes())
                    self._shown[name] = state

    def _show_now_and_then(self) -> None:
        while True:
            time.sleep(SHOW_SECONDS)
            try:
                self._sure()
            except Exception:  # the attempt is over, or lost: the log is another's now
                return
            self.show()

    # ---- the folder

    def _kept(self, version: _Version | None) -> str:
        return f"{self._folder}/{_KEPT}/{version}"

    def _kept_files(self) -> Iterator[tuple[str, Path]]:
        return self._files(shown=False)

    def _files(self, shown: bool) -> Iterator[tuple[str, Path]]:
        """Yield the run's files by their names in its folder: those to show, or those to keep."""
        for path in sorted(self._directory.rglob("*")):
            is_shown = path.name.startswith(_EVENTS) or path == self._directory / logs.NAME
            if is_shown == shown and not path.name.startswith(_OF_THE_MACHINE) and path.is_file():
                yield path.relative_to(self._directory).as_posix(), path


def fetched(lab: Lab, folder: str) -> Path:
    """Return the folder of a run that has ended, on this machine, by its folder in the lab.

    Raises:
        UserError: The bucket has nothing of the run.
    """
    directory = lab.inside(folder)
    if lab.remote is not None:
        SyncedFolder(Bucket(lab.remote), folder, directory).pull_ended()
    return directory


class _Damaged(Exception):
    """A part is not what its name says."""


def _parts(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield a file's parts with their SHA-256."""
    with path.open("rb") as stream:
        while content := stream.read(PART_BYTES):
            yield hashlib.sha256(content).hexdigest(), content


def _write(path: Path, parts: Iterable[bytes]) -> None:
    if not write_whole(path, parts):
        raise UserError(f"cannot write {path}: no permission")
