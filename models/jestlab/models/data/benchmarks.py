"""Test sets in CLIP_benchmark's webdataset form: `{split}/N.tar` of images with `.cls` or `.txt`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jestlab.models.data.images import Pixels, decode
from jestlab.models.data.tars import members

_IMAGES = ("jpg", "jpeg", "png", "webp")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassificationSet:
    """A classification dataset: n test images of C classes, m training images for few-shot probes.

    Attributes:
        images: uint8[n, h, w, 3], of the test split.
        labels: int64[n], into `class_names`.
        train_images: uint8[m, h, w, 3]; m = 0 where the dataset has no train split.
        train_labels: int64[m].
        class_names: C names.
        templates: Prompts with `{c}` in the class's place.
    """

    images: Pixels
    labels: Ints
    train_images: Pixels
    train_labels: Ints
    class_names: tuple[str, ...]
    templates: tuple[str, ...]


@dataclass(frozen=True)
class RetrievalSet:
    """A retrieval dataset: n images and t captions, each of one image.

    Attributes:
        images: uint8[n, h, w, 3].
        captions: t of them.
        image_of_caption: int64[t], the image that each describes.
    """

    images: Pixels
    captions: tuple[str, ...]
    image_of_caption: Ints


@dataclass(frozen=True)
class Benchmark:
    """The datasets of a folder, by name."""

    classification: dict[str, ClassificationSet]
    retrieval: dict[str, RetrievalSet]


def load_benchmark(folder: Path, image_size: int) -> Benchmark:
    """Every dataset of a folder.

    A dataset is a subfolder with a `test` split: of retrieval where its `dataset_type.txt` says so, else of
    classification. It is named after its folder, without a leading `wds_` and a trailing `_classification`.

    Args:
        folder: The folder of dataset folders.
        image_size: Side to which images are resized, in pixels.

    Raises:
        FileNotFoundError: No dataset there, or one that lacks a file.
        ValueError: A damaged tar, image or label.
    """
    found = Benchmark({}, {})
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (path / "test").is_dir():
            continue
        name = path.name.removeprefix("wds_")
        if is_retrieval(path):
            found.retrieval[name] = retrieval(path, image_size)
        else:
            found.classification[name.removesuffix("_classification")] = classification(path, image_size)
    if not found.classification and not found.retrieval:
        raise FileNotFoundError(
            f"{folder}: holds no dataset, which is a folder with test/0.tar (CLIP_benchmark's form)"
        )
    return found


def is_retrieval(folder: Path) -> bool:
    """Whether a dataset folder says that it is for retrieval."""
    kind = folder / "dataset_type.txt"
    return kind.exists() and kind.read_text().strip().lower() == "retrieval"


def classification(folder: Path, image_size: int) -> ClassificationSet:
    """A classification dataset.

    Args:
        folder: The dataset's folder: `classnames.txt`, `zeroshot_classification_templates.txt`, `test/`, and
            `train/` if there is one.
        image_size: Side to which images are resized, in pixels.

    Raises:
        FileNotFoundError: One of the files is missing.
        ValueError: A damaged tar, image or label.
    """
    class_names = _lines(folder / "classnames.txt")
    images, labels = _labelled(folder / "test", image_size, len(class_names))
    if (folder / "train").is_dir():
        train_images, train_labels = _labelled(folder / "train", image_size, len(class_names))
    else:
        train_images, train_labels = images[:0], labels[:0]
    templates = _lines(folder / "zeroshot_classification_templates.txt")
    return ClassificationSet(images, labels, train_images, train_labels, class_names, templates)


def retrieval(folder: Path, image_size: int) -> RetrievalSet:
    """A retrieval dataset; a caption is a line of an image's `.txt`.

    Args:
        folder: The dataset's folder, with `test/`.
        image_size: Side to which images are resized, in pixels.

    Raises:
        FileNotFoundError: There are no tars.
        ValueError: A damaged tar or image, or an image without caption.
    """
    images: list[Pixels] = []
    captions: list[str] = []
    image_of_caption: list[int] = []
    for where, files in _examples(folder / "test"):
        lines = [line for line in _part(files, ("txt",), where).decode().splitlines() if line.strip()]
        if not lines:
            raise ValueError(f"{where}: it has no caption")
        captions += lines
        image_of_caption += [len(images)] * len(lines)
        images.append(_image(files, where, image_size))
    return RetrievalSet(np.stack(images), tuple(captions), np.array(image_of_caption, np.int64))


def _labelled(split: Path, image_size: int, classes: int) -> tuple[Pixels, Ints]:
    """Images and labels of a split."""
    images, labels = [], []
    for where, files in _examples(split):
        text = _part(files, ("cls",), where).decode(errors="replace").strip()
        if not text.isdecimal() or int(text) >= classes:
            raise ValueError(f"{where}: label {text!r} is not a number from 0 to {classes - 1}")
        labels.append(int(text))
        images.append(_image(files, where, image_size))
    return np.stack(images), np.array(labels, np.int64)


def _image(files: dict[str, bytes], where: str, image_size: int) -> Pixels:
    """An example's image."""
    try:
        return decode(_part(files, _IMAGES, where), image_size)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _part(files: dict[str, bytes], extensions: tuple[str, ...], where: str) -> bytes:
    """An example's file with one of some extensions."""
    for extension in extensions:
        if extension in files:
            return files[extension]
    raise ValueError(f"{where}: no .{' or .'.join(extensions)} among its files: {sorted(files)}")


def _examples(split: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Description and files by extension of each example of a split, in the order of the shards' numbers."""
    tars = sorted(split.glob("*.tar"), key=lambda path: (len(path.name), path.name))
    if not tars:
        raise FileNotFoundError(f"{split}: holds no .tar shards")
    for path in tars:
        examples: dict[str, dict[str, bytes]] = {}
        with path.open("rb") as file:
            for member in members(path):
                stem, _, extension = member.name.rpartition("/")[2].partition(".")
                file.seek(member.offset)
                examples.setdefault(stem, {})[extension.lower()] = file.read(member.size)
        for key, files in examples.items():
            yield f"{path}, example {key!r}", files


def _lines(path: Path) -> tuple[str, ...]:
    """The lines of a text file that are not empty."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: missing, and CLIP_benchmark's form asks for it")
    return tuple(line for line in path.read_text().splitlines() if line.strip())
