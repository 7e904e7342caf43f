"""One split of a CLIP_benchmark dataset: where its images lie in the tars, and what belongs to each."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import derived_path, write_whole
from jestlab.models.data.lazy_images import LazyImages
from jestlab.models.data.tars import members

_FORMAT = 1  # of the index file; another number is rebuilt
_IMAGES = ("webp", "png", "jpg", "jpeg")  # in CLIP_benchmark's order, should an example have several

Ints = npt.NDArray[np.int64]


class Split(NamedTuple):
    """n examples in the order of the shards' numbers."""

    images: LazyImages  # n of them
    targets: list[bytes]  # content of each example's `.cls` or `.txt`, n of them


def read_split(folder: Path, target: Literal["cls", "txt"], image_size: int) -> Split:
    """A split as CLIP_benchmark's exporter writes it: `nshards.txt`, and tars `0.tar`, `1.tar`, ….

    All headers are scanned once; what was found is kept beside the tars (in memory alone where that is not
    allowed), since those of a large train split take minutes.

    Args:
        folder: The split's folder.
        target: Extension of what goes with an image: a label (`cls`) or captions (`txt`).
        image_size: Side to which images are resized, in pixels.

    Returns:
        Its examples, of which no image is read yet.

    Raises:
        FileNotFoundError: `nshards.txt` or one of the shards that it counts is missing.
        ValueError: It holds no number, a tar is damaged, or an example lacks a part.
    """
    tars = _shards(folder)
    stats = np.array([(stat.st_size, stat.st_mtime_ns) for stat in (tar.stat() for tar in tars)], np.int64)
    state: dict[str, Any] = {"format": np.int64(_FORMAT), "tar_stats": stats}
    kept_at = derived_path(folder, f"{target}-index.npz")
    index = _kept(kept_at, state)
    if index is None:
        index = _scan(tars, target)
        if not len(index["shard"]):
            raise ValueError(f"{folder}: its shards hold no examples")
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **state, **index)
        write_whole(kept_at, file.getvalue())
    ends = np.cumsum(index["target_sizes"])
    content = index["targets"].tobytes()
    targets = [content[end - size : end] for end, size in zip(ends, index["target_sizes"], strict=True)]
    return Split(LazyImages(tars, index["shard"], index["keys"], index["spans"], image_size), targets)


def _shards(folder: Path) -> tuple[Path, ...]:
    """The shards that `nshards.txt` counts."""
    counted = folder / "nshards.txt"
    if not counted.exists():
        raise FileNotFoundError(f"{counted}: missing, and CLIP_benchmark's form asks for it")
    text = counted.read_text().strip()
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{counted}: {text!r} is no number of shards")
    tars = tuple(folder / f"{number}.tar" for number in range(int(text)))
    for tar in tars:
        if not tar.exists():
            raise FileNotFoundError(f"{tar}: missing, and nshards.txt counts {text} shards: fetch it")
    return tars


def _kept(path: Path, state: dict[str, Any]) -> dict[str, npt.NDArray[Any]] | None:
    """The index of an earlier scan, unless the tars have changed since; a damaged one counts as none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if all(np.array_equal(file[name], value) for name, value in state.items()):
                names = ("shard", "keys", "spans", "targets", "target_sizes")
                return {name: file[name] for name in names}
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile):
        return None
    return None


def _scan(tars: tuple[Path, ...], target: str) -> dict[str, npt.NDArray[Any]]:
    """The index of a split.

    Returns:
        shard int64[n]; keys bytes[n]; spans int64[n, 2], of the images; targets uint8[s], their contents one
        after the other; target_sizes int64[n], which sum to s.
    """
    shard: list[int] = []
    keys: list[bytes] = []
    spans: list[tuple[int, int]] = []
    targets: list[bytes] = []
    for number, tar in enumerate(tars):
        with tar.open("rb") as file:
            for key, files in _examples(tar).items():
                where = f"{tar}, example {key!r}"
                offset, size = _part(files, (target,), where)
                file.seek(offset)
                shard.append(number)
                keys.append(key.encode())
                targets.append(file.read(size))
                spans.append(_part(files, _IMAGES, where))
    return {
        "shard": np.array(shard, np.int64),
        "keys": np.array(keys, np.bytes_),
        "spans": np.array(spans, np.int64).reshape(-1, 2),
        "targets": np.frombuffer(b"".join(targets), np.uint8),
        "target_sizes": np.array([len(content) for content in targets], np.int64),
    }


def _examples(tar: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """Key → extension → offset and size, keys as webdataset cuts them: up to the base name's first dot."""
    examples: dict[str, dict[str, tuple[int, int]]] = {}
    for member in members(tar):
        head, slash, base = member.name.rpartition("/")
        stem, dot, extension = base.partition(".")
        if not stem or not dot:
            continue  # hidden files, as macOS adds them, are no examples to webdataset either
        files = examples.setdefault(head + slash + stem, {})
        if extension.lower() in files:
            raise ValueError(f"{tar}: holds {member.name!r} twice")
        files[extension.lower()] = (member.offset, member.size)
    return examples


def _part(files: dict[str, tuple[int, int]], extensions: tuple[str, ...], where: str) -> tuple[int, int]:
    """Offset and size of an example's file with one of some extensions."""
    for extension in extensions:
        if extension in files:
            return files[extension]
    raise ValueError(f"{where}: no .{' or .'.join(extensions)} among its files: {sorted(files)}")
