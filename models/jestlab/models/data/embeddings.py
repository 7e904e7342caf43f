"""A reference's embeddings of a folder of shards: stored on disk and looked up by example.

Selection needs the whole contrastive matrix of a super-batch, whose composition nobody knows beforehand; so
embeddings are kept and no scores (paper, appendix, "Caching reference model scores").

Letters: n examples of the unfiltered folder, E width of the embedding space, B examples asked for.

Files, in `embeddings/` of a run's folder:
    images.npy, texts.npy    float32 or float16 [n, E]; rows of examples that are not embedded are holes
    status.npy               uint8 [n]: absent, embedded, or damaged
    about.json               `About`: what they are of, and how far they are; written after what it counts
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.config import Data
from jestlab.models.data import datasets
from jestlab.models.data.curation import Columns, choose
from jestlab.models.data.files import write_whole
from jestlab.models.data.shards import ShardIndex

FOLDER = "embeddings"
_FORMAT = 1  # of the files; another number is refused
_ABSENT, _EMBEDDED, _DAMAGED = range(3)

Index = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class About:
    """What a set of embeddings was made from.

    Attributes:
        digest: The digest of the data's content.
        filter: The condition that the examples satisfy; None if all are embedded.
        recaption: The condition for reading an example with its synthetic caption.
        examples: The number n of examples.
        selected: How many examples satisfy the filter.
        width: The width E of the embedding space.
        precision: Of the stored rows, "float32" or "float16".
        temperature: t of the model that embedded, in the logits z_img · z_txt · t + b.
        bias: b of the model.
    """

    digest: str
    filter: str | None
    recaption: str | None
    examples: int
    selected: int
    width: int
    precision: str
    temperature: float
    bias: float


class Progress(NamedTuple):
    """How far an embedding run is.

    Attributes:
        done: How many of the selected examples, in ascending order, are written.
        damaged: How many of these could not be read.
    """

    done: int = 0
    damaged: int = 0


def content_digest(data: Data, folder: Path) -> str:
    """Return the digest of a folder of training data: the recorded one, which `ensure_web` has checked, or a
    new one."""
    return getattr(data.train, "digest", None) or datasets.digest(folder)


class EmbeddingCache:
    """The embeddings that a finished run has made, read by example. Thread-safe; rows are read on demand.

    Attributes:
        about: What they were made from.
    """

    def __init__(self, directory: Path) -> None:
        """Open the embeddings in a finished run's folder.

        Raises:
            FileNotFoundError: It holds no embeddings.
            ValueError: They are not finished, or of another format.
        """
        self._directory = directory
        self.about, progress = _load_about(directory)
        if progress.done < self.about.selected:
            raise ValueError(
                f"{directory}: only {progress.done} of {self.about.selected} examples are embedded: "
                "finish the run first"
            )
        self._images, self._texts = (
            _RowReader(directory / FOLDER / f"{part}.npy") for part in ("images", "texts")
        )
        self._status = np.asarray(_load(directory / FOLDER / "status.npy"))

    def check(self, data: Data, folder: Path, columns: Columns | None = None) -> None:
        """Check that every example of a run's data has an embedding.

        Args:
            data: The run's.
            folder: The folder of their shards.
            columns: What the data's filter can read beside the metadata.

        Raises:
            ValueError: The embeddings are of other data, of captions that were chosen differently, or lack an
                example of the data that was filtered out.
        """
        mine = self.about
        if mine.digest != (theirs := content_digest(data, folder)):
            raise ValueError(
                f"{self._directory}: embeddings of other data (digest {mine.digest[:12]}) than {folder} "
                f"(digest {theirs[:12]}): embed with the same data.train as the run that selects"
            )
        if mine.recaption != data.recaption:
            raise ValueError(
                f"{self._directory}: embeddings of captions by recaption {mine.recaption!r}, the run reads "
                f"them by {data.recaption!r}: set data.recaption alike"
            )
        chosen, _ = choose(ShardIndex.load(folder), data.filter, data.recaption, columns)
        wanted = np.arange(mine.examples) if chosen is None else chosen
        absent = wanted[self._status[wanted] == _ABSENT]
        if len(absent):
            raise ValueError(
                f"{self._complaint(int(absent[0]))} ({len(absent)} of the run's examples are missing)"
            )

    def embedded(self) -> Index:
        """Return the numbers of all examples that have an embedding, int64 [k], ascending."""
        return np.flatnonzero(self._status == _EMBEDDED)

    def images(self, index: Index) -> Rows:
        """Read the image embeddings, float32[B, E], of examples, int64[B], in any order.

        Raises:
            ValueError: An example was not embedded; names it.
        """
        return self._read(self._images, index)

    def texts(self, index: Index) -> Rows:
        """Read text embeddings; see `images`."""
        return self._read(self._texts, index)

    def _read(self, rows: _RowReader, index: Index) -> Rows:
        index = np.asarray(index, np.int64)
        outside = index[(index < 0) | (index >= self.about.examples)]
        missing = outside if len(outside) else index[self._status[index] != _EMBEDDED]
        if len(missing):
            raise ValueError(self._complaint(int(missing[0])))
        return rows.read(index)

    def _complaint(self, example: int) -> str:
        """Explain why an example has no embedding, and what to do about it."""
        if not 0 <= example < self.about.examples:
            return (
                f"{self._directory}: no example {example}, the data hold {self.about.examples}: embed the "
                "same data.train as the run that selects"
            )
        if self._status[example] == _DAMAGED:
            return f"{self._directory}: example {example} was damaged when it was embedded: repair its shard"
        return (
            f"{self._directory}: example {example} was not embedded: it does not satisfy "
            f"{self.about.filter!r}: embed without a filter (data.filter: null)"
        )


_HELD_BYTES = 2**25  # of a file: a smaller one is read whole


class _RowReader:
    """Reads rows of a `.npy` file."""

    def __init__(self, path: Path) -> None:
        self._array = _load(path)
        self._held = np.array(self._array, np.float32) if self._array.nbytes <= _HELD_BYTES else None
        self._row = self._array.itemsize * self._array.shape[1]
        self._file = path.open("rb")

    def read(self, index: Index) -> Rows:
        """Read rows as float32.

        Of a large file, all reads are announced first, so that a cold disk fetches many at once, which is
        five times as fast as one page fault after another.
        """
        if self._held is not None:
            return self._held[index]
        if hasattr(os, "posix_fadvise"):
            descriptor, start = self._file.fileno(), self._array.offset
            for number in index.tolist():
                os.posix_fadvise(descriptor, start + number * self._row, self._row, os.POSIX_FADV_WILLNEED)
        return np.asarray(self._array[index], np.float32)


def _load(path: Path) -> np.memmap[Any, Any]:
    """Memory-map an array."""
    array: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


class EmbeddingWriter:
    """Writes embeddings. What `save` has counted survives a crash; the rest is written again.

    Attributes:
        progress: How far they are, with what is not saved yet.
    """

    def __init__(self, directory: Path, what: About) -> None:
        """Resume in a run's folder where an earlier writer of the same embeddings has saved, or begin.

        Raises:
            ValueError: The folder holds others.
        """
        self._directory = directory
        self._about = what
        self.progress = Progress()
        folder = directory / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        shapes: dict[str, tuple[tuple[int, ...], str]] = {
            "images": ((what.examples, what.width), what.precision),
            "texts": ((what.examples, what.width), what.precision),
            "status": ((what.examples,), "uint8"),
        }
        if (folder / "about.json").exists():
            theirs, self.progress = _load_about(directory)
            _require_same(directory, theirs, what)
        else:
            for part, (shape, precision) in shapes.items():
                # A file of zeros, sparse where the file system has such.
                path = folder / f"{part}.npy"
                np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(precision), shape=shape).flush()
            _save_about(directory, what, self.progress)
        self._images, self._texts, self._status = (_RowWriter(folder / f"{part}.npy") for part in shapes)

    def write(self, index: Index, images: Rows, texts: Rows, damaged: npt.NDArray[np.bool_]) -> None:
        """Write the next of the selected examples.

        Args:
            index: int64[k], ascending.
            images: float32[k, E].
            texts: float32[k, E].
            damaged: bool[k], which of them could not be read: their embeddings are not written.
        """
        self._status.write(index, np.where(damaged, _DAMAGED, _EMBEDDED).astype(np.uint8))
        whole = ~damaged
        for file, rows in ((self._images, images), (self._texts, texts)):
            file.write(index[whole], rows[whole].astype(self._about.precision))
        done, unreadable = self.progress
        self.progress = Progress(done + len(index), unreadable + int(damaged.sum()))

    def save(self) -> None:
        """Make everything written so far durable, then count it."""
        for file in (self._images, self._texts, self._status):
            file.sync()
        _save_about(self._directory, self._about, self.progress)

    def close(self) -> None:
        """Close the files without saving."""
        for file in (self._images, self._texts, self._status):
            file.close()


class _RowWriter:
    """Writes rows of a `.npy` file in place.

    Uses writes instead of a memory map, because on a full disk a memory map would kill the process silently.
    """

    def __init__(self, path: Path) -> None:
        array = _load(path)
        self._start = array.offset
        self._row = array.itemsize * int(np.prod(array.shape[1:]))
        self._file = path.open("r+b")

    def write(self, index: Index, rows: npt.NDArray[Any]) -> None:
        """Write rows at ascending numbers, each contiguous stretch at once."""
        gaps = np.flatnonzero(np.diff(index) != 1) + 1
        for numbers, stretch in zip(np.split(index, gaps), np.split(rows, gaps), strict=True):
            if len(numbers):
                self._file.seek(self._start + int(numbers[0]) * self._row)
                self._file.write(np.ascontiguousarray(stretch).tobytes())

    def sync(self) -> None:
        """Wait until everything is on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file without syncing it."""
        self._file.close()


def _save_about(directory: Path, what: About, progress: Progress) -> None:
    written = {"format": _FORMAT, **dataclasses.asdict(what), **progress._asdict()}
    write_whole(directory / FOLDER / "about.json", json.dumps(written, indent=1).encode())


def _load_about(directory: Path) -> tuple[About, Progress]:
    """Load what the embeddings in a run's folder were made from, and how far they are."""
    path = directory / FOLDER / "about.json"
    if not path.exists():
        raise FileNotFoundError(f"{directory}: holds no embeddings: name a finished run of program embed")
    written = json.loads(path.read_text())
    if written.pop("format") != _FORMAT:
        raise ValueError(f"{path}: unknown format: delete {path.parent} and embed again")
    progress = Progress(**{name: written.pop(name) for name in Progress._fields})
    return About(**written), progress


def _require_same(directory: Path, theirs: About, what: About) -> None:
    """Raise ValueError unless two sets of embeddings are made from the same."""
    for field in dataclasses.fields(About):
        if (old := getattr(theirs, field.name)) != (new := getattr(what, field.name)):
            raise ValueError(
                f"{directory / FOLDER}: holds other embeddings ({field.name} {old!r}, now {new!r}): "
                "delete it to embed again"
            )
