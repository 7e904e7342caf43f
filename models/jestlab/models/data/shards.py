"""Random access to the examples of a folder of webdataset tars: an index of offsets, and a reader."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import derived_path, write_whole
from jestlab.models.data.tars import members

_FORMAT = 1  # of the index file; another number is rebuilt
_IMAGES = ("jpg", "jpeg", "png", "webp")
_OPEN_FILES = 128

Ints = npt.NDArray[np.int64]


class RawExample(NamedTuple):
    """An image–text pair as it lies in its shard."""

    jpeg: bytes
    caption: str


@dataclass(frozen=True)
class ShardIndex:
    """Where each example's image, caption and metadata lie. Examples are counted over the tars in name order.

    n examples in s tars.

    Attributes:
        folder: The folder of tars.
        tars: Names of the tars, sorted, s of them.
        tar_stats: int64[s, 2], size in bytes and modification time in ns: a change makes the index stale.
        shard: int64[n], the tar of each example.
        keys: bytes[n], webdataset keys, unique within a tar.
        image: int64[n, 2], offset and size of the image file.
        text: int64[n, 2], the same of the caption.
        meta: int64[n, 2], the same of the JSON metadata; (0, 0) where there is none.
    """

    folder: Path
    tars: tuple[str, ...]
    tar_stats: Ints
    shard: Ints
    keys: npt.NDArray[np.bytes_]
    image: Ints
    text: Ints
    meta: Ints

    def __len__(self) -> int:
        return len(self.shard)

    @property
    def signature(self) -> str:
        """Changes whenever a tar of the folder does; cheap, and no measure of content as `digest` is."""
        state = hashlib.sha256(repr(self.tars).encode())
        state.update(np.ascontiguousarray(self.tar_stats).tobytes())
        return state.hexdigest()

    def describe(self, example: int) -> str:
        """Shard and member of an example, for messages."""
        return f"{self.folder / self.tars[self.shard[example]]}, example {self.keys[example].decode()!r}"

    @classmethod
    def load(cls, folder: Path) -> ShardIndex:
        """The index kept beside the shards, or a new one where it is missing or stale.

        Args:
            folder: A folder with tars.

        Raises:
            FileNotFoundError: No such folder, or no tar in it.
            ValueError: A damaged tar, or an example that lacks its image or caption.
        """
        tars, stats = _stat(folder)
        path = derived_path(folder, "index.npz")
        try:
            with np.load(path, allow_pickle=False) as file:
                if (
                    int(file["format"]) == _FORMAT
                    and file["tars"].tolist() == list(tars)
                    and np.array_equal(file["tar_stats"], stats)
                ):
                    parts = {name: file[name] for name in ("shard", "keys", "image", "text", "meta")}
                    return cls(folder, tars, stats, **parts)
        except FileNotFoundError:
            pass  # never built
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile):
            pass  # damaged: what is derived can be derived again
        return cls.build(folder)

    @classmethod
    def build(cls, folder: Path) -> ShardIndex:
        """Scan the tars' headers and keep the index beside them (in memory alone where that is not allowed).

        Args:
            folder: A folder with tars.

        Raises:
            FileNotFoundError: No such folder, or no tar in it.
            ValueError: A damaged tar, or an example that lacks its image or caption.
        """
        tars, stats = _stat(folder)
        shard: list[int] = []
        keys: list[bytes] = []
        spans: list[tuple[int, ...]] = []
        for number, name in enumerate(tars):
            for key, image, text, meta in _examples(folder / name):
                shard.append(number)
                keys.append(key.encode())
                spans.append((*image, *text, *meta))
        table = np.array(spans, np.int64).reshape(-1, 3, 2)
        parts: dict[str, npt.NDArray[Any]] = {
            "shard": np.array(shard, np.int64),
            "keys": np.array(keys, np.bytes_),
            "image": table[:, 0],
            "text": table[:, 1],
            "meta": table[:, 2],
        }
        file = io.BytesIO()
        np.savez(
            file, allow_pickle=False, format=np.int64(_FORMAT), tars=np.array(tars), tar_stats=stats, **parts
        )
        write_whole(derived_path(folder, "index.npz"), file.getvalue())
        return cls(folder, tars, stats, **parts)


def _stat(folder: Path) -> tuple[tuple[str, ...], Ints]:
    """Names of the tars, and their sizes and times."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder of shards")
    tars = tuple(sorted(path.name for path in folder.glob("*.tar")))
    if not tars:
        raise FileNotFoundError(
            f"{folder}: holds no .tar shards (img2dataset writes them with output_format=webdataset)"
        )
    stats = [(folder / name).stat() for name in tars]
    return tars, np.array([(stat.st_size, stat.st_mtime_ns) for stat in stats], np.int64)


Span = tuple[int, int]


def _examples(path: Path) -> list[tuple[str, Span, Span, Span]]:
    """Key (what precedes the first dot) and spans of image, caption and metadata of a tar's examples."""
    groups: dict[str, dict[str, Span]] = {}
    for member in members(path):
        head, _, base = member.name.rpartition("/")
        stem, _, extension = base.partition(".")
        key = f"{head}/{stem}" if head else stem
        groups.setdefault(key, {})[extension.lower()] = (member.offset, member.size)
    examples = []
    for key, files in groups.items():
        image = next((files[extension] for extension in _IMAGES if extension in files), None)
        if image is None or "txt" not in files:
            missing = "caption (.txt)" if image else f"image (.{', .'.join(_IMAGES)})"
            raise ValueError(f"{path}, example {key!r}: no {missing} among its files: {sorted(files)}")
        examples.append((key, image, files["txt"], files.get("json", (0, 0))))
    return examples


class _OpenFile:
    """A file descriptor, closed when its last user lets go of it."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        os.close(self.descriptor)


class ShardSource:
    """Reads examples by their number. Safe in threads, cheap to pickle; files are opened when first read."""

    def __init__(self, folder: Path) -> None:
        self.index = ShardIndex.load(folder)
        self._files: OrderedDict[int, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.index)

    def __getstate__(self) -> Path:
        return self.index.folder

    def __setstate__(self, folder: Path) -> None:
        self.__init__(folder)  # type: ignore[misc]

    def read(self, indices: npt.NDArray[np.integer[Any]]) -> list[RawExample]:
        """Read examples.

        Args:
            indices: int[k], global example numbers, in any order.

        Returns:
            The k pairs, in that order.

        Raises:
            ValueError: A tar has become shorter than its index says, or a caption is not UTF-8.
        """
        images = self._read(indices, self.index.image)
        captions = self.captions(indices)
        return [RawExample(image, caption) for image, caption in zip(images, captions, strict=True)]

    def captions(self, indices: npt.NDArray[np.integer[Any]]) -> list[str]:
        """The captions alone."""
        texts = self._read(indices, self.index.text)
        try:
            return [text.decode() for text in texts]
        except UnicodeDecodeError:
            bad = next(i for i, text in zip(indices, texts, strict=True) if not _is_utf8(text))
            raise ValueError(f"{self.index.describe(bad)}: its caption is not UTF-8") from None

    def metadata(self, indices: npt.NDArray[np.integer[Any]]) -> list[bytes]:
        """The JSON metadata, unparsed; empty where an example has none."""
        return self._read(indices, self.index.meta)

    def _read(self, indices: npt.NDArray[np.integer[Any]], spans: Ints) -> list[bytes]:
        """The bytes of one part of each example."""
        contents = []
        shards = self.index.shard[indices].tolist()
        for position, (shard, (offset, size)) in enumerate(zip(shards, spans[indices].tolist(), strict=True)):
            file = self._file(shard)  # held here, so that it cannot be closed by another thread's eviction
            content = os.pread(file.descriptor, size, offset)
            if len(content) != size:
                raise ValueError(
                    f"{self.index.describe(indices[position])}: cut short, {len(content)} of {size} bytes: "
                    "fetch the shard again"
                )
            contents.append(content)
        return contents

    def _file(self, shard: int) -> _OpenFile:
        """An open tar; the least recently used one is let go when too many are open."""
        with self._lock:
            file = self._files.get(shard)
            if file is None:
                file = _OpenFile(self.index.folder / self.index.tars[shard])
                self._files[shard] = file
                if len(self._files) > _OPEN_FILES:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(shard)
            return file


def _is_utf8(text: bytes) -> bool:
    """Whether bytes decode."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
