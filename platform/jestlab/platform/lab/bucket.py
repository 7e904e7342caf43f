"""Objects in a bucket, through fsspec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jestlab.platform.errors import BucketUnreachable, UserError
from jestlab.platform.logs import one_line


class Bucket:
    """Objects below a URL, each complete or missing. Methods are thread-safe."""

    def __init__(self, url: str) -> None:
        """Open a folder of an object store, `gs://bucket/folder` or the like, without connecting to it.

        Raises:
            UserError: The kind of address is unknown, or the package for it is not installed.
        """
        import fsspec

        self.url = url
        try:
            # Listings must include what other machines have written since.
            fs, self._path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:  # such as "Please install gcsfs to access Google Storage"
            raise UserError(f"{url}: {one_line(str(error))}") from None
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
            text = one_line(f"{self.url}/{name}: {type(error).__name__}: {error}")
            raise BucketUnreachable(text) from error

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"
