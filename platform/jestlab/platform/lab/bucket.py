"""A folder in an object store, or in any other file system that fsspec knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jestlab.platform.errors import BucketUnreachable, UserError
from jestlab.platform.launch.logs import one_line

_PACKAGES = {"gs": "jestlab[gcs]", "gcs": "jestlab[gcs]", "s3": "s3fs"}


class Bucket:
    """Objects below a URL. An object appears whole or not at all. Methods may be called from any thread.

    Attributes:
        url: Of the folder.
    """

    def __init__(self, url: str) -> None:
        """Open a folder of an object store, without connecting to it yet.

        Args:
            url: `gs://bucket/folder`, or whatever else fsspec takes.

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
        """Names of the objects and folders in a folder; none where there is no such folder.

        Raises:
            BucketUnreachable: It does not answer.
        """
        try:
            with self._asked(folder):
                found = self._fs.ls(self._at(folder), detail=False)
        except FileNotFoundError:
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def read(self, name: str) -> bytes:
        """An object's bytes.

        Raises:
            FileNotFoundError: There is none.
            BucketUnreachable: It does not answer.
        """
        with self._asked(name):
            content: bytes = self._fs.cat_file(self._at(name))
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write an object; whoever reads it sees the old bytes or the new ones.

        Raises:
            BucketUnreachable: It does not take it.
        """
        try:
            with self._asked(name):
                self._fs.pipe_file(self._at(name), content, **self._options(content))
        except FileNotFoundError as error:
            raise BucketUnreachable(f"{self.url}: no such bucket") from error

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, and folders with what is in them; what is not there does not matter."""
        for name in names:
            with suppress(FileNotFoundError), self._asked(name):
                self._fs.rm(self._at(name), recursive=True)

    def _options(self, content: bytes) -> dict[str, Any]:
        """How to send an object so that every byte arrives, and that one which did not is an error.

        gcsfs sends a small object as part of a MIME message and ends it by a bare line feed: a last byte that
        is a carriage return is taken for half of that line's end, and lost (gcsfs 2026.10.1, against the
        emulator that tests run). An object no shorter than a chunk is sent by itself.
        """
        if "gs" not in self._fs.protocol:
            return {}
        return {"chunksize": max(len(content), 1), "consistency": "md5"}

    @contextmanager
    def _asked(self, name: str) -> Iterator[None]:
        """Context in which whatever goes wrong is one kind of error: each store has its own."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.url}/{name}: no such object") from error
        except Exception as error:
            said = one_line(f"{self.url}/{name}: {type(error).__name__}: {error}")
            raise BucketUnreachable(said) from error

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"
