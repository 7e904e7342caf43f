"""Benchmarks in CLIP_benchmark's webdataset format, as its `build_wds_dataset` reads them; and their prompts.

    wds_vtab-pets/{test,train}/{nshards.txt, 0.tar, 1.tar, …}      .jpg, .png or .webp with .cls or .txt
    wds_vtab-pets/{classnames.txt, zeroshot_classification_templates.txt, dataset_type.txt}

Images stay on disk. Damaged examples are errors: without them, scores would not be comparable.
"""

import hashlib
import os
import re
import shutil
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from jestlab.models.data.files import open_derived
from jestlab.models.data.images import LazyImages
from jestlab.models.data.shards import Ints, find_examples
from jestlab.models.data.tars import SPECIAL

_INDEX_FORMAT = 3  # of the index file: raise it if the file changes
_COLUMNS = ("shard", "key", "offset", "size", "target")  # of the index; offset and size are the image's
_IMAGE_EXTENSIONS = ("webp", "png", "jpg", "jpeg")  # in CLIP_benchmark's order of preference


@dataclass(frozen=True)
class ClassificationSet:
    """A classification dataset: n test images of C classes, m training images for few-shot probes.

    Attributes:
        images: n, of the test split.
        labels: int64[n], into `class_names`.
        train_images: m; 0 if the dataset has no train split.
        train_labels: int64[m].
        class_names: C names.
        templates: Prompts with `{c}` (or `{}`) in place of the class.
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
        image_of_caption: int64[t], the image of each caption, ascending.
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

    Images are resized to squares with sides of `image_size` pixels.

    Raises:
        FileNotFoundError: The folder has no dataset, or a dataset lacks a file.
        ValueError: A damaged tar, an invalid label or template, or as in `datasets_in`.
    """
    datasets = datasets_in(folder)
    return Benchmark(
        {name: classification(path, image_size) for path, name, retrieves in datasets if not retrieves},
        {name: retrieval(path, image_size) for path, name, retrieves in datasets if retrieves},
    )


def datasets_in(folder: Path) -> list[tuple[Path, str, bool]]:
    """Find the datasets in a folder, without reading them.

    A dataset is a subfolder with a `test` split. If its `dataset_type.txt` is missing, it is for
    classification. Its name is that of the subfolder, without a leading `wds_` and a trailing
    `_classification`.

    Returns:
        For each dataset: path, name, and whether it is for retrieval.

    Raises:
        FileNotFoundError: The folder has no dataset.
        ValueError: Two datasets have the same name, or one is for another task, such as "multilabel".
    """
    datasets: dict[tuple[str, bool], Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (path / "test").is_dir():
            continue
        key = name_and_task(path)
        if datasets.setdefault(key, path) != path:
            raise ValueError(f"{path}: a second dataset named {key[0]!r}: rename one of the folders")
    if not datasets:
        hint = f": give its parent, {folder.parent}" if (folder / "test").is_dir() else ""
        raise FileNotFoundError(
            f"{folder}: holds no dataset, which is a folder with test/0.tar (CLIP_benchmark's form){hint}"
        )
    return [(path, *key) for key, path in datasets.items()]


def name_and_task(folder: Path) -> tuple[str, bool]:
    """Return the name of a dataset, and whether it is for retrieval.

    Raises:
        ValueError: It is for another task, such as "multilabel".
    """
    kind_path = folder / "dataset_type.txt"
    kind = read_text(kind_path).strip().lower() if kind_path.exists() else "classification"
    if kind not in ("classification", "retrieval"):
        raise ValueError(
            f"{kind_path}: type {kind!r} is not scored here, only classification and retrieval: "
            "move the dataset out of the benchmark's folder"
        )
    name = folder.name.removeprefix("wds_")
    return (name, True) if kind == "retrieval" else (name.removesuffix("_classification"), False)


def classification(folder: Path, image_size: int) -> ClassificationSet:
    """Load a classification dataset; `train/` is optional; see `load_benchmark`.

    Raises:
        FileNotFoundError: One of the files is missing.
        ValueError: A damaged tar, an invalid label, classes as in `check_class_names`, or a template without
            a place for the class.
    """
    path = folder / "classnames.txt"
    class_names = _lines(path)
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
        FileNotFoundError, ValueError: As in `read_split`.
    """
    split = read_split(folder / "test", "txt", image_size)
    captions: list[str] = []
    image_of_caption: list[int] = []
    for image, content in enumerate(split.targets):
        lines = [line.removesuffix("\r") for line in content.decode().split("\n") if line.strip()]
        captions += lines
        image_of_caption += [image] * len(lines)
    return RetrievalSet(split.images, tuple(captions), np.array(image_of_caption, np.int64))


def _labels(split: "Split", classes: int) -> Ints:
    """Return int64[n], the labels of a split."""
    labels = [_number(content) for content in split.targets]
    for i, (label, content) in enumerate(zip(labels, split.targets, strict=True)):
        if label is None or label >= classes:
            text = content[:40].decode(errors="replace")
            raise ValueError(f"{split.images.describe(i)}: label {text!r} is not from 0 to {classes - 1}")
    return np.array(labels, np.int64)


def _lines(path: Path) -> tuple[str, ...]:
    """Return the lines of a text file, without empty ones at its end."""
    text = read_text(path).rstrip()
    if not text:
        raise ValueError(f"{path}: empty file")
    return tuple(line.strip() for line in text.split("\n"))


def read_text(path: Path) -> str:
    """Return the text of a file; raises ValueError if it isn't UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8: save it in this encoding") from None


def _number(content: bytes) -> int | None:
    """Return the whole number in a file of one to nine digits; None for other content."""
    digits = content.strip()
    return int(digits) if digits.isdigit() and len(digits) < 10 else None


# ---- splits


class Split(NamedTuple):
    """The n examples of a split, in the order of the shards' numbers."""

    images: LazyImages  # n images
    targets: list[bytes]  # n contents of the examples' `.cls` or `.txt`


def read_split(folder: Path, target: Literal["cls", "txt"], image_size: int) -> Split:
    """Read a split, except its images.

    All headers are scanned once. The index is stored, since scanning a large train split takes minutes.

    Args:
        folder: Folder as CLIP_benchmark's exporter writes it: `nshards.txt`, and tars `0.tar`, `1.tar`, ….
        target: Extension of an image's label (`cls`) or captions (`txt`).

    Raises:
        FileNotFoundError: `nshards.txt` or one of its shards is missing.
        ValueError: `nshards.txt` has no number, a tar has a damaged part, or links, whose content is missing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tars = _shards(folder)
    stats = [(stat.st_size, stat.st_mtime_ns) for stat in (tar.stat() for tar in tars)]
    state = hashlib.sha256(repr((_INDEX_FORMAT, stats)).encode()).hexdigest()[:16]

    def build(partial: Path) -> None:
        rows: list[tuple[int, bytes, int, int, bytes]] = []
        for shard, tar in enumerate(tars):
            examples, damaged, uses = find_examples(tar, _IMAGE_EXTENSIONS, target, metadata="")
            if damaged:
                reason, place = damaged[0]
                raise ValueError(f"{tar}, {place}: {reason}: fetch the shard again, or repair it")
            if uses[SPECIAL]:
                raise ValueError(f"{tar}: has a {SPECIAL}: store copies (tar -h --hard-dereference)")
            with tar.open("rb") as file:
                for key, (image, (offset, size), _) in examples.items():
                    content = os.pread(file.fileno(), size, offset)
                    rows.append((shard, key.encode(errors="surrogateescape"), *image, content))
        if not rows:
            raise ValueError(f"{folder}: its shards hold no examples")
        table = pa.table([[*column] for column in zip(*rows, strict=True)], names=_COLUMNS)
        pq.write_table(table, partial / "index.parquet")
        for stale in partial.parent.glob(f"{target}-*"):
            shutil.rmtree(stale, ignore_errors=True)

    index = open_derived(
        folder, f"{target}-{state}", build, lambda derived: pq.read_table(derived / "index.parquet")
    )
    keys = np.array(index["key"].to_pylist(), np.bytes_)
    spans = np.column_stack([index["offset"], index["size"]])
    images = LazyImages(tars, index["shard"].to_numpy(), keys, spans, image_size)
    return Split(images, index["target"].to_pylist())


def _shards(folder: Path) -> tuple[Path, ...]:
    """Return the paths of the shards that `nshards.txt` counts."""
    path = folder / "nshards.txt"
    if not (count := _number(path.read_bytes())):
        raise ValueError(f"{path}: not a number of shards")
    tars = []
    for number in range(count):
        tars.append(folder / f"{number}.tar")
        if not tars[-1].exists():
            raise FileNotFoundError(f"{tars[-1]}: missing, and nshards.txt counts {count} shards: fetch it")
    return tuple(tars)


# ---- prompts

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def prompts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Put every class into every template, class by class; names and templates are made canonical first.

    Args:
        class_names: C names; only the first of several names separated by commas is used.
        templates: T templates with `{c}` (CLIP_benchmark) or `{}` (big_vision) in place of the name.

    Returns:
        C × T prompts.
    """
    forms = [canonical(template.replace("{c}", "{}"), keep="{}") for template in templates]
    return [form.replace("{}", _in_prompts(name)) for name in class_names for form in forms]


def canonical(text: str, keep: str) -> str:
    """Make a text canonical as big_vision does.

    Replace `_` by space, strip punctuation except the string `keep`, lower the case, collapse spaces.
    """
    parts = text.replace("_", " ").split(keep)
    text = keep.join(part.translate(_NO_PUNCTUATION) for part in parts)
    return re.sub(r"\s+", " ", text.lower()).strip()


def _in_prompts(class_name: str) -> str:
    """Return the form of a class's name in prompts."""
    return canonical(class_name, keep=",").split(",")[0]


def check_class_names(class_names: Iterable[str], source: Path) -> None:
    """Check that different class names have different prompts, as sentencepiece reads them.

    The same name twice is accepted: CLIP_benchmark's ImageNet has two classes "missile" and two "sunglasses".

    Raises:
        ValueError: A name is empty in prompts, or has the prompts of another name: "C#" and "C++".
    """
    from sentencepiece import SentencePieceNormalizer

    normalize = SentencePieceNormalizer(rule_name="nmt_nfkc").normalize
    known: dict[str, str] = {}
    for number, name in enumerate(class_names, 1):
        form = normalize(_in_prompts(name))
        if not form:
            raise ValueError(f"{source}: class {number}, {name!r}, is empty in prompts: name the class")
        if (other := known.setdefault(form, name)) != name:
            raise ValueError(
                f"{source}: classes {other!r} and {name!r} are both {_in_prompts(name)!r} in prompts, which "
                "have no punctuation, capitals, or text after a comma: rename one of them"
            )
