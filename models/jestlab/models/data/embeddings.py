"""A reference's embeddings of a folder of shards: stored on disk and looked up by example.

Selection needs the contrastive matrix of a super-batch, whose composition is unknown in advance. Therefore
embeddings are stored, not scores (paper, appendix, "Caching reference model scores").

Letters: n examples of the unfiltered folder, E width of the embedding space, B examples looked up.

Files, in `embeddings/` of a run's folder:
    images.npy, texts.npy    float32 or float16 [n, E]; rows of examples that are not embedded are holes
    status.npy               uint8 [n]: absent, embedded, or damaged
    about.json               `About`; written after the rows that it counts
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jestlab.models.config import Data
from jestlab.models.data import datasets
from jestlab.models.data.curation import Columns, choose
from jestlab.models.data.files import write_whole
from jestlab.models.data.shards import Ints, ShardIndex

FOLDER = "embeddings"
_SMALL_BYTES = 2**25  # of a file: it stays in the page cache
_PARTS = ("images", "texts", "status")
_ABSENT, _EMBEDDED, _DAMAGED = range(3)

Rows = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class About:
    """The source and the progress of a set of embeddings.

    Attributes:
        digest: The digest of the data's content.
        filter: The condition that the examples satisfy; None if all are embedded.
        recaption: The condition for reading an example with its synthetic caption.
        examples: The number n of examples.
        selected: The number of examples that satisfy the filter.
        width: The width E of the embedding space.
        precision: Data type of the stored rows, "float32" or "float16".
        temperature: t of the reference, in the logits z_img · z_txt · t + b.
        bias: b of the reference.
        done: The number of selected examples that are written, in ascending order.
        damaged: The number of these that could not be read.
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
    done: int = 0
    damaged: int = 0


def content_digest(data: Data, folder: Path) -> str:
    """Return the digest of a folder of training data: the recorded and checked one, or a new one."""
    return getattr(data.train, "digest", None) or datasets.digest(folder)


class EmbeddingCache:
    """The embeddings of a finished run, looked up by example. Thread-safe; rows are read on demand.

    Attributes:
        about: Their source.
    """

    def __init__(self, directory: Path) -> None:
        """Open the embeddings in a finished run's folder.

        Raises:
            FileNotFoundError: The folder has no embeddings.
            ValueError: They are incomplete.
        """
        self._directory = directory
        self.about = about = _load_about(directory)
        if about.done < about.selected:
            raise ValueError(
                f"{directory}: only {about.done} of {about.selected} examples are embedded: finish the run"
            )
        files = [_RowFile(directory / FOLDER / f"{part}.npy", "rb") for part in _PARTS]
        self._images, self._texts, self._status = *files[:2], np.asarray(files[2].array)

    def check(self, data: Data, folder: Path, columns: Columns | None = None) -> None:
        """Check that every example of a run's data, in a folder of shards, has an embedding.

        Args:
            columns: See `curation.select`.

        Raises:
            ValueError: The embeddings are of other data or of captions that were chosen differently, or they
                lack an example that their filter excluded.
        """
        for key, mine, theirs in (
            ("data.train", self.about.digest, content_digest(data, folder)),
            ("data.recaption", self.about.recaption, data.recaption),
        ):
            if mine != theirs:
                raise ValueError(
                    f"{self._directory}: embeddings with another {key} ({mine}) than the run that selects "
                    f"({theirs}): embed with the same {key}"
                )
        chosen, _ = choose(ShardIndex.load(folder), data, columns)
        wanted = np.arange(self.about.examples) if chosen is None else chosen
        if len(absent := wanted[self._status[wanted] == _ABSENT]):
            raise ValueError(f"{self._problem(absent[0])} ({len(absent)} of the run's examples are missing)")

    def embedded(self) -> Ints:
        """Return the numbers of all examples that have an embedding, int64 [k], ascending."""
        return np.flatnonzero(self._status == _EMBEDDED)

    def images(self, index: Ints) -> Rows:
        """Read the image embeddings, float32[B, E], of examples, int64[B], in any order.

        Raises:
            ValueError: An example was not embedded.
        """
        return self._images.read(self._checked(index))

    def texts(self, index: Ints) -> Rows:
        """Read text embeddings; see `images`."""
        return self._texts.read(self._checked(index))

    def _checked(self, index: Ints) -> Ints:
        """Return the examples; raise ValueError if one was not embedded."""
        if len(missing := index[self._status[index] != _EMBEDDED]):
            raise ValueError(self._problem(missing[0]))
        return index

    def _problem(self, example: int) -> str:
        """Explain why an example has no embedding, and how to fix that."""
        if self._status[example] == _DAMAGED:
            return f"{self._directory}: example {example} was damaged when it was embedded: repair its shard"
        return (
            f"{self._directory}: example {example} was not embedded: it does not satisfy "
            f"{self.about.filter!r}: embed without a filter (data.filter: null)"
        )


class EmbeddingWriter:
    """Writes embeddings. Rows counted by `save` survive a crash; later ones are written again.

    Attributes:
        about: The source of the embeddings and their progress, including rows that are not saved yet.
    """

    def __init__(self, directory: Path, about: About) -> None:
        """Start in a run's folder, or resume from the last save of an earlier writer.

        Raises:
            ValueError: The folder has embeddings with another source.
        """
        self._folder = directory / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        if (self._folder / "about.json").exists():
            self.about = _load_about(directory)
            if dataclasses.replace(self.about, done=0, damaged=0) != about:
                raise ValueError(
                    f"{self._folder}: has embeddings of other data, or from another reference or precision: "
                    "delete it to embed again"
                )
        else:
            self.about = about
            rows = (about.precision, (about.examples, about.width))
            for part, (dtype, shape) in zip(_PARTS, (rows, rows, ("uint8", (about.examples,))), strict=True):
                # A file of zeros, sparse if the file system supports it.
                np.lib.format.open_memmap(self._folder / f"{part}.npy", "w+", np.dtype(dtype), shape).flush()
            self._save_about()
        self._files = [_RowFile(self._folder / f"{part}.npy", "r+b") for part in _PARTS]

    def write(self, index: Ints, images: Rows, texts: Rows, damaged: npt.NDArray[np.bool_]) -> None:
        """Write the next selected examples.

        Args:
            index: int64[k], ascending.
            images: float32[k, E], as `texts`.
            damaged: bool[k], the unreadable ones: their embeddings are not written.
        """
        for file, rows in zip(self._files, (images, texts), strict=False):
            file.write(index[~damaged], rows[~damaged])
        self._files[2].write(index, np.where(damaged, _DAMAGED, _EMBEDDED))
        done, unreadable = self.about.done + len(index), self.about.damaged + int(damaged.sum())
        self.about = dataclasses.replace(self.about, done=done, damaged=unreadable)

    def save(self) -> None:
        """Make all written rows durable, then count them."""
        for rows in self._files:
            rows.file.flush()
            os.fsync(rows.file.fileno())
        self._save_about()

    def close(self) -> None:
        """Close the files without saving."""
        for rows in self._files:
            rows.file.close()

    def _save_about(self) -> None:
        write_whole(
            self._folder / "about.json", json.dumps(dataclasses.asdict(self.about), indent=1).encode()
        )


class _RowFile:
    """The rows of a `.npy` file: read through a memory map, written in place.

    Rows are not written through the memory map: on a full disk, this would kill the process silently.
    """

    def __init__(self, path: Path, mode: str) -> None:
        self.array: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        self._row = self.array[:1].nbytes
        self.file = path.open(mode)

    def read(self, index: Ints) -> Rows:
        """Read rows as float32; all reads are announced first, which is five times as fast on a cold disk."""
        if self.array.nbytes > _SMALL_BYTES and hasattr(os, "posix_fadvise"):
            for start in (self.array.offset + index * self._row).tolist():
                os.posix_fadvise(self.file.fileno(), start, self._row, os.POSIX_FADV_WILLNEED)
        return np.asarray(self.array[index], np.float32)

    def write(self, index: Ints, rows: npt.NDArray[Any]) -> None:
        """Write rows at ascending numbers, each contiguous stretch at once."""
        gaps = np.flatnonzero(np.diff(index) != 1) + 1
        for numbers, stretch in zip(np.split(index, gaps), np.split(rows, gaps), strict=True):
            if len(numbers):
                self.file.seek(self.array.offset + int(numbers[0]) * self._row)
                self.file.write(stretch.astype(self.array.dtype).tobytes())


def _load_about(directory: Path) -> About:
    """Load the description of the embeddings in a run's folder."""
    path = directory / FOLDER / "about.json"
    if not path.exists():
        raise FileNotFoundError(f"{directory}: has no embeddings: name a finished run of program embed")
    return About(**json.loads(path.read_text()))
