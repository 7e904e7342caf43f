"""Test sets in CLIP_benchmark's webdataset form, as its `build_wds_dataset` reads them; images stay on disk.

    wds_vtab-pets/{test,train}/{nshards.txt, 0.tar, 1.tar, …}      .jpg, .png or .webp with .cls or .txt
    wds_vtab-pets/{classnames.txt, zeroshot_classification_templates.txt, dataset_type.txt}

A benchmark is read whole or not at all: nothing damaged is skipped, since scores would no longer compare.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.data.class_names import check_class_names
from jestlab.models.data.files import derived_path, write_whole
from jestlab.models.data.images import LazyImages
from jestlab.models.data.tars import members

_INDEX_FORMAT = 2  # of the index file; another number is rebuilt
_IMAGE_EXTENSIONS = ("webp", "png", "jpg", "jpeg")  # in CLIP_benchmark's order, where there are several

Ints = npt.NDArray[np.int64]


class Split(NamedTuple):
    """The n examples of a split, in the order of the shards' numbers."""

    images: LazyImages  # n images
    targets: list[bytes]  # n contents of the examples' `.cls` or `.txt`


def read_split(folder: Path, target: Literal["cls", "txt"], image_size: int) -> Split:
    """Read a split as CLIP_benchmark's exporter writes it: `nshards.txt`, and tars `0.tar`, `1.tar`, ….

    All headers are scanned once; what was found is kept beside the tars (in memory alone where that is not
    allowed), since scanning a large train split takes minutes.

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
    state: dict[str, Any] = {"format": np.int64(_INDEX_FORMAT), "tar_stats": stats}
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
    """Return the paths of the shards that `nshards.txt` counts."""
    counted = folder / "nshards.txt"
    text = _text(counted).strip()
    if not (count := _number(text)):
        raise ValueError(f"{counted}: {text[:40]!r} is not a number of shards")
    tars: list[Path] = []
    for number in range(count):
        tars.append(folder / f"{number}.tar")
        if not tars[-1].exists():
            raise FileNotFoundError(f"{tars[-1]}: missing, and nshards.txt counts {text} shards: fetch it")
    return tuple(tars)


def _number(text: str) -> int | None:
    """Return the whole number that a text is; None if it is none, or one of more than nine digits."""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _text(path: Path) -> str:
    """Return the text of a file that CLIP_benchmark's format requires."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: missing: CLIP_benchmark's format requires it") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8: save it in this encoding") from None


def _kept(path: Path, state: dict[str, Any]) -> dict[str, npt.NDArray[Any]] | None:
    """Return the index of an earlier scan; None if it is missing, damaged, or of other tars."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if all(np.array_equal(file[name], value) for name, value in state.items()):
                names = ("shard", "keys", "spans", "targets", "target_sizes")
                return {name: file[name] for name in names}
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile):
        return None
    return None


def _scan(tars: tuple[Path, ...], target: str) -> dict[str, npt.NDArray[Any]]:
    """Scan the shards, and return the index of the split.

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
                if more := [extension for extension in files if extension.endswith(f".{target}")]:
                    raise ValueError(f"{where}: {more[0]!r} isn't read: names are split at their first dot")
                offset, size = _part(files, (target,), where)
                file.seek(offset)
                shard.append(number)
                keys.append(key.encode(errors="surrogateescape"))
                targets.append(file.read(size))
                spans.append(_part(files, _IMAGE_EXTENSIONS, where))
    return {
        "shard": np.array(shard, np.int64),
        "keys": np.array(keys, np.bytes_),
        "spans": np.array(spans, np.int64).reshape(-1, 2),
        "targets": np.frombuffer(b"".join(targets), np.uint8),
        "target_sizes": np.array([len(content) for content in targets], np.int64),
    }


def _examples(tar: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """Return key → extension → offset and size; a key ends at the first dot of the base name."""
    examples: dict[str, dict[str, tuple[int, int]]] = {}
    for member in members(tar):
        head, slash, base = member.name.rpartition("/")
        stem, dot, extension = base.partition(".")
        if not stem or not dot:
            continue  # hidden files, as macOS adds them, are not examples for webdataset either
        files = examples.setdefault(head + slash + stem, {})
        if extension.lower() in files:
            raise ValueError(f"{tar}: holds {member.name!r} twice")
        files[extension.lower()] = (member.offset, member.size)
    return examples


def _part(files: dict[str, tuple[int, int]], extensions: tuple[str, ...], where: str) -> tuple[int, int]:
    """Return offset and size of an example's file with one of some extensions."""
    for extension in extensions:
        if extension in files:
            return files[extension]
    raise ValueError(f"{where}: no .{' or .'.join(extensions)} among its files: {sorted(files)}")


@dataclass(frozen=True)
class ClassificationSet:
    """A classification dataset: n test images of C classes, m training images for few-shot probes.

    Attributes:
        images: n, of the test split.
        labels: int64[n], into `class_names`.
        train_images: m; none where the dataset has no train split.
        train_labels: int64[m].
        class_names: C names.
        templates: Prompts with `{c}` (or `{}`) in the class's place.
    """

    images: LazyImages
    labels: Ints
    train_images: LazyImages
    train_labels: Ints
    class_names: tuple[str, ...]
    templates: tuple[str, ...]


@dataclass(frozen=True)
class RetrievalSet:
    """A retrieval dataset: n images and t captions, each of one image.

    Attributes:
        images: n.
        captions: The t captions.
        image_of_caption: int64[t], the image that each describes, ascending.
    """

    images: LazyImages
    captions: tuple[str, ...]
    image_of_caption: Ints


@dataclass(frozen=True)
class Benchmark:
    """The datasets of a benchmark folder, by name."""

    classification: dict[str, ClassificationSet]
    retrieval: dict[str, RetrievalSet]


def load_benchmark(folder: Path, image_size: int) -> Benchmark:
    """Load every dataset of a folder: labels and captions are read, images are only located.

    A dataset is a subfolder with a `test` split: for retrieval if its `dataset_type.txt` says so, else for
    classification. It is named after its folder, without a leading `wds_` and a trailing `_classification`.

    Args:
        folder: The folder of dataset folders.
        image_size: Side to which images are resized, in pixels.

    Raises:
        FileNotFoundError: No dataset there, or one that lacks a file.
        ValueError: A damaged tar, a bad label or template, two datasets of one name, or one of another type.
    """
    found = Benchmark({}, {})
    for (name, for_retrieval), path in dataset_folders(folder).items():
        if for_retrieval:
            found.retrieval[name] = retrieval(path, image_size)
        else:
            found.classification[name] = classification(path, image_size)
    return found


def dataset_folders(folder: Path) -> dict[tuple[str, bool], Path]:
    """Find the datasets of a benchmark, by name and whether they are for retrieval; nothing in them is read.

    Raises:
        FileNotFoundError: There is none.
        ValueError: Two have one name, or one is of another type.
    """
    found: dict[tuple[str, bool], Path] = {}
    for path, name, for_retrieval in datasets_in(folder):
        if (name, for_retrieval) in found:
            raise ValueError(f"{path}: a second dataset named {name!r}: rename one of the folders")
        found[name, for_retrieval] = path
    if not found:
        remedy = f": give its parent, {folder.parent}" if (folder / "test").is_dir() else ""
        raise FileNotFoundError(
            f"{folder}: holds no dataset, which is a folder with test/0.tar (CLIP_benchmark's form){remedy}"
        )
    return found


def datasets_in(folder: Path) -> Iterator[tuple[Path, str, bool]]:
    """Yield the datasets in a folder: where each is, its name, and whether it is for retrieval.

    Raises:
        ValueError: One is of another type; see `is_retrieval`.
    """
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (path / "test").is_dir():
            name, for_retrieval = path.name.removeprefix("wds_"), is_retrieval(path)
            yield path, name if for_retrieval else name.removesuffix("_classification"), for_retrieval


def is_retrieval(folder: Path) -> bool:
    """Return whether a dataset folder says that it is for retrieval.

    Raises:
        ValueError: It is for something else again, such as "multilabel".
    """
    path = folder / "dataset_type.txt"
    kind = _text(path).strip().lower() if path.exists() else "classification"
    if kind not in ("classification", "retrieval"):
        raise ValueError(
            f"{path}: type {kind!r} is not scored here, only classification and retrieval: "
            "move the dataset out of the benchmark's folder"
        )
    return kind == "retrieval"


def classification(folder: Path, image_size: int) -> ClassificationSet:
    """Load a classification dataset.

    Args:
        folder: The dataset's folder: `classnames.txt`, `zeroshot_classification_templates.txt`, `test/`, and
            `train/` if there is one.
        image_size: Side to which images are resized, in pixels.

    Raises:
        FileNotFoundError: One of the files is missing.
        ValueError: A damaged tar, a bad label, a class without a name or with the prompts of another, or a
            template without a place for the class.
    """
    path = folder / "classnames.txt"
    class_names = _lines(path)
    if "" in class_names:
        raise ValueError(
            f"{path}, line {class_names.index('') + 1}: no name, although labels count lines: name the "
            "class, or remove the line if no label counts it"
        )
    check_class_names(class_names, path)
    path = folder / "zeroshot_classification_templates.txt"
    templates = tuple(filter(None, _lines(path)))
    for template in templates:
        if "{c}" not in template and "{}" not in template:
            raise ValueError(f"{path}: no {{c}} in {template!r}, where the class's name would go")
    test = read_split(folder / "test", "cls", image_size)
    train = Split(test.images.take(np.empty(0, np.int64)), [])
    if (folder / "train").is_dir():
        train = read_split(folder / "train", "cls", image_size)
    labels, train_labels = (_labels(split, len(class_names)) for split in (test, train))
    return ClassificationSet(test.images, labels, train.images, train_labels, class_names, templates)


def retrieval(folder: Path, image_size: int) -> RetrievalSet:
    """Load a retrieval dataset; every line of an image's `.txt` that is not empty is a caption.

    Raises:
        FileNotFoundError: `nshards.txt` or a shard is missing.
        ValueError: A damaged tar, or an image without caption.
    """
    split = read_split(folder / "test", "txt", image_size)
    captions: list[str] = []
    image_of_caption: list[int] = []
    for image, content in enumerate(split.targets):
        try:
            lines = [line.removesuffix("\r") for line in content.decode().split("\n") if line.strip()]
        except UnicodeDecodeError:
            raise ValueError(f"{split.images.describe(image)}: its captions are not UTF-8") from None
        if not lines:
            raise ValueError(f"{split.images.describe(image)}: it has no caption")
        captions += lines
        image_of_caption += [image] * len(lines)
    return RetrievalSet(split.images, tuple(captions), np.array(image_of_caption, np.int64))


def _labels(split: Split, classes: int) -> Ints:
    """Return int64[n], the labels of a split."""
    labels = np.empty(len(split.targets), np.int64)
    for i, content in enumerate(split.targets):
        text = content.decode(errors="replace").strip()
        if (label := _number(text)) is None or label >= classes:
            raise ValueError(
                f"{split.images.describe(i)}: label {text[:40]!r} is not a number from 0 to {classes - 1}"
            )
        labels[i] = label
    return labels


def _lines(path: Path) -> tuple[str, ...]:
    """Return the lines of a text file, without empty ones at its end."""
    text = _text(path).rstrip()
    if not text:
        raise ValueError(f"{path}: empty file")
    return tuple(line.strip() for line in text.split("\n"))
