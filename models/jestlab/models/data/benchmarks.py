"""Test sets in CLIP_benchmark's webdataset form, as its `build_wds_dataset` reads them; images stay on disk.

    wds_vtab-pets/{test,train}/{nshards.txt, 0.tar, 1.tar, …}      .jpg, .png or .webp with .cls or .txt
    wds_vtab-pets/{classnames.txt, zeroshot_classification_templates.txt, dataset_type.txt}

A benchmark is read whole or not at all: nothing damaged is skipped, since scores would no longer compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jestlab.models.data.lazy_images import LazyImages
from jestlab.models.data.splits import Split, read_split

Ints = npt.NDArray[np.int64]


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
        captions: t of them.
        image_of_caption: int64[t], the image that each describes, ascending.
    """

    images: LazyImages
    captions: tuple[str, ...]
    image_of_caption: Ints


@dataclass(frozen=True)
class Benchmark:
    """The datasets of a folder, by name."""

    classification: dict[str, ClassificationSet]
    retrieval: dict[str, RetrievalSet]


def load_benchmark(folder: Path, image_size: int) -> Benchmark:
    """Every dataset of a folder: labels and captions are read, images are only found.

    A dataset is a subfolder with a `test` split: of retrieval where its `dataset_type.txt` says so, else of
    classification. It is named after its folder, without a leading `wds_` and a trailing `_classification`.

    Args:
        folder: The folder of dataset folders.
        image_size: Side to which images are resized, in pixels.

    Raises:
        FileNotFoundError: No dataset there, or one that lacks a file.
        ValueError: A damaged tar, a bad label or template, two datasets of one name, or one of another type.
    """
    found = Benchmark({}, {})
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (path / "test").is_dir():
            continue
        name = path.name.removeprefix("wds_")
        if is_retrieval(path):
            _require_new(name, found.retrieval, path)
            found.retrieval[name] = retrieval(path, image_size)
        else:
            name = name.removesuffix("_classification")
            _require_new(name, found.classification, path)
            found.classification[name] = classification(path, image_size)
    if not found.classification and not found.retrieval:
        remedy = f": give its parent, {folder.parent}" if (folder / "test").is_dir() else ""
        raise FileNotFoundError(
            f"{folder}: holds no dataset, which is a folder with test/0.tar (CLIP_benchmark's form){remedy}"
        )
    return found


def is_retrieval(folder: Path) -> bool:
    """Whether a dataset folder says that it is for retrieval.

    Raises:
        ValueError: It is for something else again, such as "multilabel".
    """
    path = folder / "dataset_type.txt"
    kind = path.read_text().strip().lower() if path.exists() else "classification"
    if kind not in ("classification", "retrieval"):
        raise ValueError(
            f"{path}: type {kind!r} is not scored here, only classification and retrieval: "
            "move the dataset out of the benchmark's folder"
        )
    return kind == "retrieval"


def classification(folder: Path, image_size: int) -> ClassificationSet:
    """A classification dataset.

    Args:
        folder: The dataset's folder: `classnames.txt`, `zeroshot_classification_templates.txt`, `test/`, and
            `train/` if there is one.
        image_size: Side to which images are resized, in pixels.

    Raises:
        FileNotFoundError: One of the files is missing.
        ValueError: A damaged tar, a bad label, or a template without a place for the class.
    """
    class_names = _lines(folder / "classnames.txt")
    templates = _lines(folder / "zeroshot_classification_templates.txt")
    for template in templates:
        if "{c}" not in template and "{}" not in template:
            raise ValueError(
                f"{folder / 'zeroshot_classification_templates.txt'}: no {{c}} in {template!r}, "
                "where the class's name would go"
            )
    test = read_split(folder / "test", "cls", image_size)
    labels = _labels(test, len(class_names))
    if (folder / "train").is_dir():
        train = read_split(folder / "train", "cls", image_size)
        train_images, train_labels = train.images, _labels(train, len(class_names))
    else:
        none = np.empty(0, np.int64)
        train_images, train_labels = test.images.take(none), none
    return ClassificationSet(test.images, labels, train_images, train_labels, class_names, templates)


def retrieval(folder: Path, image_size: int) -> RetrievalSet:
    """A retrieval dataset; a caption is a line of an image's `.txt` that is not empty.

    Args:
        folder: The dataset's folder, with `test/`.
        image_size: Side to which images are resized, in pixels.

    Raises:
        FileNotFoundError: `nshards.txt` or a shard is missing.
        ValueError: A damaged tar, or an image without caption.
    """
    split = read_split(folder / "test", "txt", image_size)
    captions: list[str] = []
    image_of_caption: list[int] = []
    for image, content in enumerate(split.targets):
        try:
            lines = [line for line in content.decode().splitlines() if line.strip()]
        except UnicodeDecodeError:
            raise ValueError(f"{split.images.describe(image)}: its captions are not UTF-8") from None
        if not lines:
            raise ValueError(f"{split.images.describe(image)}: it has no caption")
        captions += lines
        image_of_caption += [image] * len(lines)
    return RetrievalSet(split.images, tuple(captions), np.array(image_of_caption, np.int64))


def _require_new(
    name: str, known: dict[str, ClassificationSet] | dict[str, RetrievalSet], path: Path
) -> None:
    """ValueError where two folders would give one dataset's name."""
    if name in known:
        raise ValueError(f"{path}: a second dataset named {name!r}: rename one of the folders")


def _labels(split: Split, classes: int) -> Ints:
    """int64[n], a split's labels."""
    labels = np.empty(len(split.targets), np.int64)
    for i, content in enumerate(split.targets):
        text = content.decode(errors="replace").strip()
        if not text.isdecimal() or int(text) >= classes:
            raise ValueError(
                f"{split.images.describe(i)}: label {text!r} is not a number from 0 to {classes - 1}"
            )
        labels[i] = int(text)
    return labels


def _lines(path: Path) -> tuple[str, ...]:
    """The lines of a text file that are not empty."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: missing, and CLIP_benchmark's form asks for it")
    lines = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    if not lines:
        raise ValueError(f"{path}: is empty")
    return lines
