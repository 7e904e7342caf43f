"""Sync the folders of runs with a bucket, for a lab whose root is a bucket.

Programs work in local folders, which are lost with their machine. The bucket stores snapshots of them:

    runs/<run>/kept/<generation>-<attempt>.json      the files of the run, each a list of parts
    runs/<run>/kept/<generation>-<attempt>/<sha256>  the parts, at most 32 MiB each, named by their content
    runs/<run>/log.txt, …/events.out.tfevents.…      unchanged, for people and TensorBoard

Parts never change, and their snapshot is written after them as one object, so that a reader finds a complete
snapshot. Each attempt writes and deletes only under a new name, which sorts after existing names, and
the last name counts: an attempt that has lost its run without noticing does no harm. If a file changes, only
its changed parts are sent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_exponential

from jestlab.models.data.files import write_whole
from jestlab.platform import logs
from jestlab.platform.errors import BucketUnreachable, UserError
from jestlab.platform.lab.bucket import Bucket
from jestlab.platform.lab.lab import Lab

_LOG = logging.getLogger(__name__)

PART_BYTES = 1 << 25

SHOW_SECONDS = 60.0
"""Interval at which logs and events are sent."""

PUSH_SECONDS = 600.0
"""How long the end of a run waits for an unreachable bucket."""

_AT_ONCE = 8  # concurrent transfers
_KEPT = "kept"
_EVENTS = "events.out.tfevents."
_SPOOL = "spool-"  # start of the names of files that stay on the machine

Files = dict[str, list[str]]
"""Path in the run's folder → SHA-256 of each of its parts."""


class LocalFolder:
    """A run's folder on a permanent disk, which needs no sync."""

    def begin(self, attempt: int, check: Callable[[], None]) -> None:
        """Restore the folder as the previous attempt saved it.

        Args:
            attempt: Number of the new attempt.
            check: Raises if the attempt has lost its run.
        """

    def keep(self) -> None:
        """Save the folder, or log the error."""

    def push(self, seconds: float = 0.0) -> None:
        """Save the folder, with retries for some seconds.

        Raises:
            BucketUnreachable: The bucket is not available.
        """

    def show(self) -> None:
        """Publish the current log and events, if that is possible now."""


class _Version(NamedTuple):
    """The name of a snapshot; the greatest one counts."""

    generation: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.attempt}"

    @classmethod
    def parse(cls, name: str) -> _Version | None:
        """Parse the name of a snapshot or of the folder of its parts; None for another name."""
        numbers = name.removesuffix(".json").split("-")
        return cls(*map(int, numbers)) if len(numbers) == 2 and all(map(str.isdecimal, numbers)) else None


class SyncedFolder(LocalFolder):
    """A temporary folder of a run, saved in a bucket. `LocalFolder` describes its methods."""

    def __init__(self, bucket: Bucket, folder: str, directory: Path) -> None:
        """Create it without reading anything.

        Args:
            bucket: The lab's bucket.
            folder: The run's folder in the bucket.
            directory: The run's folder on this machine.
        """
        self._bucket = bucket
        self._folder = folder
        self._directory = directory
        self._version = _Version(0, 0)
        self._check: Callable[[], None] = lambda: None
        self._last: Files | None = None
        self._sent: set[str] = set()
        self._shown: dict[str, tuple[int, int]] = {}
        self._pushing = threading.Lock()
        self._showing = threading.Lock()

    # ---- from the bucket

    def begin(self, attempt: int, check: Callable[[], None]) -> None:
        """Restore the folder; from then on, publish the log regularly."""
        newest = self.pull()
        self._version = _Version(newest.generation + 1 if newest else 0, attempt)
        self._check = check
        threading.Thread(target=self._show_regularly, name="sync", daemon=True).start()

    def pull(self) -> _Version | None:
        """Make the local folder equal to the newest snapshot, or empty without one; return its name.

        Files that are damaged in the bucket are omitted: a program that needs one finds it missing.
        """
        while True:
            newest = self._newest()
            damaged = self._fetch(newest)
            # Another attempt may have saved a newer snapshot and deleted this one meanwhile.
            if not damaged or self._newest() == newest:
                break
        for name in damaged:
            _LOG.warning("%s/%s: %s is damaged and omitted", self._bucket.url, self._folder, name)
        return newest

    def pull_ended(self) -> None:
        """Pull the folder of a run that has ended, unless it is up to date.

        Raises:
            UserError: The bucket has no files of the run.
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
        """Write the log in the bucket to a file; return False without one."""
        try:
            content = self._bucket.read(f"{self._folder}/{logs.NAME}")
        except FileNotFoundError:
            return False
        _write(path, [content])
        return True

    def _newest(self) -> _Version | None:
        names = self._bucket.names(f"{self._folder}/{_KEPT}")
        versions = (_Version.parse(name) for name in names if name.endswith(".json"))
        return max((version for version in versions if version is not None), default=None)

    def _fetch(self, version: _Version | None) -> list[str]:
        """Make the local folder equal to a snapshot; return the names of damaged files."""
        files: Files = {}
        if version is not None:
            try:
                files = json.loads(self._bucket.read(f"{self._kept(version)}.json"))["files"]
            except FileNotFoundError:
                return [f"{version}.json"]
        self._directory.mkdir(parents=True, exist_ok=True)
        for name, path in list(self._files(shown=False)):
            if name not in files:
                path.unlink()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            fetched = pool.map(lambda name: self._fetch_file(self._kept(version), name, files[name]), files)
            return [name for name, is_complete in zip(files, fetched, strict=True) if not is_complete]

    def _fetch_file(self, kept: str, name: str, digests: list[str]) -> bool:
        path = self._directory / name
        if not path.resolve().is_relative_to(self._directory.resolve()):
            raise UserError(f"{self._bucket.url}/{kept}.json: {name!r} is outside the run's folder")
        if path.is_file() and [digest for digest, _ in _parts(path)] == digests:
            return True
        path.unlink(missing_ok=True)
        try:
            _write(path, (self._part(kept, digest) for digest in digests))
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
        """Save the folder, or log the error."""
        try:
            self.push()
        except BucketUnreachable as error:
            _LOG.warning("%s: this checkpoint is not in the bucket; the next one will be saved again", error)

    def push(self, seconds: float = 0.0) -> None:
        """Save the folder, with retries for some seconds."""
        for attempt in Retrying(
            retry=retry_if_exception_type(BucketUnreachable),
            stop=stop_after_delay(seconds),
            wait=wait_exponential(max=30),
            before_sleep=before_sleep_log(_LOG, logging.WARNING),
            reraise=True,
        ):
            with attempt, self._pushing:
                self._push()

    def _push(self) -> None:
        """Send missing parts and the snapshot, then delete obsolete objects."""
        self._check()
        own = self._kept(self._version)
        files = self._send_files(own)
        if files == self._last:
            return
        self._check()  # sending may have taken minutes
        self._bucket.write(f"{own}.json", json.dumps({"format": 1, "files": files}, indent=1).encode())
        self._last = files
        with suppress(BucketUnreachable):  # obsolete objects only cost space
            names = self._bucket.names(f"{self._folder}/{_KEPT}")
            versions = {name: _Version.parse(name) for name in names}
            before = [name for name, found in versions.items() if found is not None and found < self._version]
            before.sort(key=lambda name: not name.endswith(".json"))  # no snapshot without its parts
            self._bucket.delete(f"{self._folder}/{_KEPT}/{name}" for name in before)
            for digest in self._sent - {part for parts in files.values() for part in parts}:
                self._bucket.delete([f"{own}/{digest}"])
                self._sent.discard(digest)

    def _send_files(self, own: str) -> Files:
        """Send the parts that this attempt hasn't sent; return all files."""
        files: Files = {}
        sending: list[Future[None]] = []
        in_memory = threading.BoundedSemaphore(2 * _AT_ONCE)

        def send(digest: str, content: bytes) -> None:
            try:
                self._bucket.write(f"{own}/{digest}", content)
                self._sent.add(digest)
            finally:
                in_memory.release()

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for name, path in self._files(shown=False):
                digests = []
                try:
                    for digest, content in _parts(path):
                        digests.append(digest)
                        if digest not in self._sent:
                            in_memory.acquire()
                            sending.append(pool.submit(send, digest, content))
                except FileNotFoundError:
                    continue  # deleted meanwhile
                files[name] = digests
            for future in sending:
                future.result()
        return files

    def show(self) -> None:
        """Publish the log and events that have changed."""
        with self._showing, suppress(BucketUnreachable):
            for name, path in self._files(shown=True):
                status = path.stat()
                state = (status.st_size, status.st_mtime_ns)
                if self._shown.get(name) != state:
                    self._bucket.write(f"{self._folder}/{name}", path.read_bytes())
                    self._shown[name] = state

    def _show_regularly(self) -> None:
        while True:
            time.sleep(SHOW_SECONDS)
            try:
                self._check()
            except Exception:  # the attempt has ended or lost its run, so the log is another attempt's
                return
            self.show()

    # ---- names

    def _kept(self, version: _Version | None) -> str:
        return f"{self._folder}/{_KEPT}/{version}"

    def _files(self, shown: bool) -> Iterator[tuple[str, Path]]:
        """Yield the files of the run with their names in its folder: the log and events, or the others."""
        for path in sorted(self._directory.rglob("*")):
            is_shown = path.name.startswith(_EVENTS) or path == self._directory / logs.NAME
            if is_shown == shown and not path.name.startswith(_SPOOL) and path.is_file():
                yield path.relative_to(self._directory).as_posix(), path


def fetched(lab: Lab, folder: str) -> Path:
    """Return the local folder of a run that has ended, pulled from the lab's bucket if necessary.

    Args:
        lab: The lab.
        folder: The run's folder in it.

    Raises:
        UserError: The bucket has no files of the run.
    """
    directory = lab.inside(folder)
    if lab.remote is not None:
        SyncedFolder(Bucket(lab.remote), folder, directory).pull_ended()
    return directory


class _Damaged(Exception):
    """The content of a part doesn't match its name."""


def _parts(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of a file with their SHA-256."""
    with path.open("rb") as stream:
        while content := stream.read(PART_BYTES):
            yield hashlib.sha256(content).hexdigest(), content


def _write(path: Path, parts: Iterable[bytes]) -> None:
    if not write_whole(path, parts):
        raise UserError(f"cannot write {path}: no permission")
