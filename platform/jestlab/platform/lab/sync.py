"""Sync the folders of runs with a bucket, for a lab whose root is a bucket.

Programs work in local folders, which are lost with their machine. The bucket stores snapshots of them:

    runs/<run>/kept/<generation>-<attempt>.json      the files of the run, each a list of parts
    runs/<run>/kept/<generation>-<attempt>/<sha256>  the parts, at most 32 MiB each, named by their content
    runs/<run>/log.txt, …/events.out.tfevents.…      unchanged, for people and TensorBoard

Parts never change, and their snapshot is written after them as one object, so that a reader finds a complete
snapshot. Each attempt writes under its own name, which sorts after all existing names, and deletes only older
snapshots. Readers use the last name, so an attempt that hasn't noticed the loss of its run does no harm. If a
file changes, only its changed parts are sent.
"""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_exponential

from jestlab.models.data.files import write_whole
from jestlab.platform import logs
from jestlab.platform.dependencies import check
from jestlab.platform.errors import BucketUnreachable, UserError
from jestlab.platform.lab.lab import Lab

_LOG = logging.getLogger(__name__)

PART_BYTES = 1 << 25

SHOW_SECONDS = 60.0
"""Interval at which logs and events are sent."""

PUSH_SECONDS = 600.0
"""How long a run that has ended retries to reach its bucket."""

_AT_ONCE = 8  # files that are sent or fetched concurrently
_EVENTS = "events.out.tfevents."
_SPOOL = "spool-"  # start of the names of files that stay on the machine

Files = dict[str, list[str]]
"""Path in the run's folder → SHA-256 of each of its parts."""


class Bucket:
    """Objects in a folder of an object store. Each is complete or missing. Methods are thread-safe."""

    def __init__(self, url: str) -> None:
        """Open a folder of an object store by its URL, such as `gs://bucket/folder`, without a request.

        Raises:
            UserError: The kind of address is unknown, or `jestlab[gcs]` is not installed.
        """
        check("gcs")
        import fsspec

        self.url = url
        try:
            # Listings must include what other machines have written since.
            fs, self._path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UserError(f"{url}: {logs.one_line(str(error))}") from None
        self._fs: Any = fs

    def names(self, folder: str) -> list[str]:
        """List the objects and folders in a folder; empty if the folder is missing."""
        try:
            with self._requesting(folder):
                found = self._fs.ls(self._at(folder), detail=False)
        except FileNotFoundError:
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def read(self, name: str) -> bytes:
        """Return the content of an object; FileNotFoundError if it is missing."""
        with self._requesting(name):
            content: bytes = self._fs.cat_file(self._at(name))
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write an object atomically."""
        options: dict[str, Any] = {}
        if "gs" in self._fs.protocol:
            # gcsfs sends small objects in a MIME message and ends them with a line feed, which drops a last
            # byte that is a carriage return (gcsfs 2026.10.1). Objects of at least one chunk stay unchanged.
            options = {"chunksize": max(len(content), 1), "consistency": "md5"}
        try:
            with self._requesting(name):
                self._fs.pipe_file(self._at(name), content, **options)
        except FileNotFoundError as error:
            raise BucketUnreachable(f"{self.url}: no such bucket") from error

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, and folders with their content; missing ones are ignored."""
        for name in names:
            with suppress(FileNotFoundError), self._requesting(name):
                self._fs.rm(self._at(name), recursive=True)

    @contextmanager
    def _requesting(self, name: str) -> Iterator[None]:
        """Convert the errors of object stores to BucketUnreachable, except FileNotFoundError."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.url}/{name}: no such object") from error
        except Exception as error:
            text = logs.one_line(f"{self.url}/{name}: {type(error).__name__}: {error}")
            raise BucketUnreachable(text) from error

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"


class LocalFolder:
    """A run's folder on a permanent disk. Its methods do nothing; `SyncedFolder` implements them."""

    def begin(self, attempt: int, check: Callable[[], None]) -> None:
        """Restore the folder for an attempt; `check` raises if the attempt has lost its run."""

    def keep(self) -> None:
        """Save the folder; if the bucket is unreachable, log a warning."""

    def push(self, seconds: float = 0.0) -> None:
        """Save the folder, with retries for some seconds; BucketUnreachable if that fails."""


class SyncedFolder(LocalFolder):
    """A temporary folder of a run, saved in a bucket. `LocalFolder` describes its methods."""

    def __init__(self, bucket: Bucket, folder: str, directory: Path) -> None:
        """Open the folder without a request to the bucket.

        Args:
            bucket: The lab's bucket.
            folder: The run's folder in the bucket.
            directory: The run's folder on this machine.
        """
        self._bucket = bucket
        self._folder = folder
        self._kept = f"{folder}/kept"
        self._directory = directory
        self._name = ""  # name of this attempt's snapshots
        self._check: Callable[[], None] = lambda: None
        self._last: Files | None = None  # the last snapshot
        self._sent: set[str] = set()  # digests of the parts that this attempt has sent
        self._shown: dict[str, tuple[int, int]] = {}  # published file → its size and modification time
        self._pushing = threading.Lock()
        self._showing = threading.Lock()

    # ---- from the bucket

    def begin(self, attempt: int, check: Callable[[], None]) -> None:
        """Restore the folder; from then on, publish the log regularly."""
        newest = self.pull()
        generation = int(newest.partition("-")[0]) + 1 if newest else 0
        self._name = f"{generation:09}-{attempt:09}"
        self._check = check
        threading.Thread(target=self._show_regularly, name="sync", daemon=True).start()

    def newest(self) -> str | None:
        """Return the name of the newest snapshot."""
        names = (name for name in self._bucket.names(self._kept) if name.endswith(".json"))
        return max((name.removesuffix(".json") for name in names), default=None)

    def pull(self) -> str | None:
        """Make the local folder equal to the newest snapshot, or empty without one. Return its name.

        Files that are damaged in the bucket are omitted: a program that needs one finds it missing.
        """
        while True:
            newest = self.newest()
            damaged = self._fetch(newest)
            # Another attempt may have saved a newer snapshot and deleted this one meanwhile.
            if not damaged or self.newest() == newest:
                break
        for name in damaged:
            _LOG.warning("%s/%s: %s is damaged and omitted", self._bucket.url, self._folder, name)
        return newest

    def fetch_log(self, path: Path) -> bool:
        """Download the log from the bucket to a file; return False if the bucket has no log."""
        try:
            content = self._bucket.read(f"{self._folder}/{logs.NAME}")
        except FileNotFoundError:
            return False
        _write(path, [content])
        return True

    def _fetch(self, snapshot: str | None) -> list[str]:
        """Make the local folder equal to a snapshot; return the names of damaged files."""
        files: Files = {}
        if snapshot is not None:
            try:
                files = json.loads(self._bucket.read(f"{self._kept}/{snapshot}.json"))["files"]
            except FileNotFoundError:
                return [f"{snapshot}.json"]
        self._directory.mkdir(parents=True, exist_ok=True)
        for name, path in list(self._files(shown=False)):
            if name not in files:
                path.unlink()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            fetched = pool.map(partial(self._fetch_file, f"{self._kept}/{snapshot}"), files, files.values())
            return [name for name, is_complete in zip(files, fetched, strict=True) if not is_complete]

    def _fetch_file(self, snapshot: str, name: str, digests: list[str]) -> bool:
        """Make a local file equal to the snapshot's; return False if a part is missing or damaged."""
        path = self._directory / name
        if not path.resolve().is_relative_to(self._directory.resolve()):
            raise UserError(f"{self._bucket.url}/{snapshot}.json: {name!r} is outside the run's folder")
        if path.is_file() and [digest for digest, _ in _parts(path)] == digests:
            return True
        path.unlink(missing_ok=True)
        try:
            _write(path, (self._fetch_part(f"{snapshot}/{digest}", digest) for digest in digests))
        except FileNotFoundError:
            return False
        return True

    def _fetch_part(self, name: str, digest: str) -> bytes:
        content = self._bucket.read(name)
        if hashlib.sha256(content).hexdigest() != digest:
            raise FileNotFoundError(f"{name} is damaged")
        return content

    # ---- to the bucket

    def keep(self) -> None:
        """Save the folder; if the bucket is unreachable, log a warning."""
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
        paths = dict(self._files(shown=False))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            parts = pool.map(self._send_file, paths.values())
            files = {name: digests for name, digests in zip(paths, parts, strict=True) if digests is not None}
        if files == self._last:
            return
        self._check()  # sending may have taken minutes
        content = json.dumps({"format": 1, "files": files}, indent=1).encode()
        self._bucket.write(f"{self._kept}/{self._name}.json", content)
        self._last = files
        with suppress(BucketUnreachable):  # obsolete objects only cost space
            before = [name for name in self._bucket.names(self._kept) if name < self._name]
            before.sort(key=lambda name: not name.endswith(".json"))  # no snapshot may lack its parts
            self._bucket.delete(f"{self._kept}/{name}" for name in before)
            for digest in self._sent.difference(*files.values()):
                self._bucket.delete([f"{self._kept}/{self._name}/{digest}"])
                self._sent.discard(digest)

    def _send_file(self, path: Path) -> list[str] | None:
        """Send the parts that this attempt hasn't sent. Return all digests; None if the file is missing."""
        digests = []
        try:
            for digest, content in _parts(path):
                digests.append(digest)
                if digest not in self._sent:
                    self._bucket.write(f"{self._kept}/{self._name}/{digest}", content)
                    self._sent.add(digest)
        except FileNotFoundError:
            return None
        return digests

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

    def _files(self, shown: bool) -> Iterator[tuple[str, Path]]:
        """Yield name and path of the run's files: if `shown`, the log and the events, else all others."""
        for path in sorted(self._directory.rglob("*")):
            is_shown = path.name.startswith(_EVENTS) or path == self._directory / logs.NAME
            if is_shown == shown and not path.name.startswith(_SPOOL) and path.is_file():
                yield path.relative_to(self._directory).as_posix(), path


def fetched(lab: Lab, folder: str) -> Path:
    """Return the local folder of a run that has ended, pulled from the lab's bucket if necessary.

    Args:
        lab: The lab.
        folder: The run's folder, relative to the root of the lab.

    Raises:
        UserError: The bucket has no files of the run.
    """
    directory = lab.inside(folder)
    if lab.remote is None:
        return directory
    synced = SyncedFolder(Bucket(lab.remote), folder, directory)
    if (newest := synced.newest()) is None:
        raise UserError(f"{lab.remote}/{folder} has no files of that run: launch it again")
    directory.parent.mkdir(parents=True, exist_ok=True)
    marker = directory.with_name(f".{directory.name}.pulled")
    with FileLock(marker.with_suffix(".lock")):
        if not directory.is_dir() or not marker.exists() or marker.read_text() != newest:
            marker.unlink(missing_ok=True)
            marker.write_text(str(synced.pull()))
    return directory


def _parts(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the parts of a file with their SHA-256."""
    with path.open("rb") as stream:
        while content := stream.read(PART_BYTES):
            yield hashlib.sha256(content).hexdigest(), content


def _write(path: Path, parts: Iterable[bytes]) -> None:
    if not write_whole(path, parts):
        raise UserError(f"cannot write {path}: no permission")
