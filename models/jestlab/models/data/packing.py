"""Write images and captions: shards in the format of img2dataset, test sets in that of CLIP_benchmark.

`Captioned` packs a folder of images, with a CSV file that describes them, in either format.
"""

import csv
import io
import itertools
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jestlab.models.data.benchmarks import check_class_names, read_text
from jestlab.models.data.images import decode
from jestlab.models.data.shards import fits_a_table
from jestlab.models.data.tars import TarWriter

EXAMPLES_A_SHARD = 4_096
_FORMATS = {"jpg": b"\xff\xd8\xff", "png": b"\x89PNG", "webp": b"RIFF"}


def write_shards(folder: Path, examples: Iterable[Mapping[str, Any]], source: str) -> None:
    """Write examples as img2dataset writes them: tars, and parquets with the metadata.

    Args:
        folder: Where they are written; created if missing.
        examples: Mappings with `image` (bytes of a JPEG, PNG, or WebP file, a `PIL.Image.Image`, or uint8
            [h, w, 3]), `caption`, and metadata for filters and diagnostics under any name but `key`.
        source: Their origin, for errors, such as "reader my_code:pairs".

    Raises:
        ValueError: An example is missing or invalid; the message contains the number of the example.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    columns: dict[str, None] = {}
    remaining = iter(examples)
    for shard, first in enumerate(remaining):
        batch = itertools.chain([first], itertools.islice(remaining, EXAMPLES_A_SHARD - 1))
        rows: list[dict[str, Any]] = []
        write_tar(folder / f"{shard:05d}.tar", _checked_all(batch, shard, rows, source))
        columns |= dict.fromkeys(name for row in rows for name in row)
        try:
            table = pa.table({name: [row.get(name) for row in rows] for name in columns})
            pq.write_table(table, folder / f"{shard:05d}.parquet")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"{source}: metadata of one name must be of one type: {error}") from None
    if not columns:
        raise ValueError(f"{source} yields no examples")
    empty = pa.table({name: pa.nulls(0) for name in columns})
    for path in folder.glob("*.parquet"):  # add the columns that only later shards have
        if len(pq.read_schema(path)) < len(columns):
            table = pa.concat_tables([pq.read_table(path), empty], promote_options="default")
            pq.write_table(table, path)


def write_tar(path: Path, examples: Iterable[tuple[tuple[str, bytes], Mapping[str, Any]]]) -> None:
    """Write a shard: images, as suffix and bytes, with metadata, of which `key` and `caption` are two."""
    with TarWriter(path) as tar:
        for (suffix, content), row in examples:
            tar.add(f"{row['key']}.{suffix}", content)
            tar.add(f"{row['key']}.json", json.dumps(row).encode())
            tar.add(f"{row['key']}.txt", row["caption"].encode())


def _checked_all(
    examples: Iterable[Any], shard: int, rows: list[dict[str, Any]], source: str
) -> Iterator[tuple[tuple[str, bytes], dict[str, Any]]]:
    """Yield the image and the metadata of each example, and add the metadata to `rows`."""
    for i, example in enumerate(examples):
        try:
            image, row = _checked(example, f"{shard:05d}{i:04d}")
        except ValueError as error:
            raise ValueError(f"{source}: example {shard * EXAMPLES_A_SHARD + i} {error}") from None
        rows.append(row)
        yield image, row


def _checked(example: Any, key: str) -> tuple[tuple[str, bytes], dict[str, Any]]:
    """Return suffix and bytes of an example's image, and its metadata; a ValueError names the problem."""
    if not isinstance(example, Mapping) or not {"image", "caption"} <= example.keys():
        raise ValueError("must be a mapping with `image`, `caption`, and metadata")
    if not isinstance(example["caption"], str):
        raise ValueError("must have a str as `caption`")
    if "key" in example or not all(isinstance(name, str) for name in example):
        raise ValueError("has metadata 'key', which shards use, or a name that isn't a str: rename it")
    row = {"key": key, "caption": example["caption"], **example}
    image = row.pop("image")
    for name, value in row.items():
        plain = row[name] = value.item() if isinstance(value, np.generic) else value
        if not (isinstance(plain, str | int | float | None) and fits_a_table([name, plain])):
            raise ValueError(
                f"has metadata {name[:40]!r} that no table can store: expected a text without surrogates, "
                "a number of at most 64 bits, true, or false"
            )
    return encoded(image), row


def encoded(image: Any) -> tuple[str, bytes]:
    """Return the suffix and the bytes of an image file; pixels become PNG, which is lossless.

    Raises:
        ValueError: It isn't an image.
    """
    if isinstance(image, bytes):
        for suffix, magic in _FORMATS.items():
            if image.startswith(magic):
                return suffix, image
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape[2:] == (3,):
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        raise ValueError(
            "has no valid image: expected bytes of a JPEG, PNG, or WebP file, a PIL image, or uint8 [h, w, 3]"
        )
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG")
    return "png", file.getvalue()


Target = tuple[bytes, str, str]
"""An image of a test set: bytes, their suffix ("jpg", "png", "webp"), and the label or captions."""


def write_classification(
    folder: Path, splits: Mapping[str, Iterable[Target]], class_names: Sequence[str], templates: Sequence[str]
) -> None:
    """Write a classification dataset in CLIP_benchmark's format.

    Args:
        folder: Created if missing.
        splits: "test", and "train" for few-shot probes → images with the numbers of their classes.
        class_names: C names.
        templates: Prompts with `{c}` in place of the class.
    """
    for split, images in splits.items():
        _write_split(folder / split, images, "cls")
    (folder / "classnames.txt").write_text("\n".join(class_names) + "\n", encoding="utf-8")
    (folder / "zeroshot_classification_templates.txt").write_text("\n".join(templates) + "\n", "utf-8")


def write_retrieval(folder: Path, images: Iterable[Target]) -> None:
    """Write a retrieval dataset in CLIP_benchmark's format: images with one caption per line."""
    _write_split(folder / "test", images, "txt")
    (folder / "dataset_type.txt").write_text("retrieval\n")


def _write_split(folder: Path, images: Iterable[Target], extension: str) -> None:
    """Write `0.tar` and `nshards.txt` of one split, with keys as CLIP_benchmark's exporter writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    with TarWriter(folder / "0.tar") as tar:
        for i, (content, suffix, target) in enumerate(images):
            tar.add(f"s{i:07d}.{extension}", target.encode())
            tar.add(f"s{i:07d}.{suffix}", content)
    (folder / "nshards.txt").write_text("1\n")


# ---- a folder of images with a CSV file

FILE_COLUMNS = ("file", "image", "filename", "filepath", "path")
"""Names of the column with the image's path within the folder; the first one that exists is used."""

CAPTION_COLUMNS = ("caption", "text", "title")
LABEL_COLUMNS = ("label", "class")
SPLIT_COLUMN = "split"
_TEXTS = (*FILE_COLUMNS, *CAPTION_COLUMNS, *LABEL_COLUMNS, SPLIT_COLUMN)
_SPLITS = ("test", "train")
_SIDE = 8  # pixels: side of images that are decoded only to check them
# Numbers with leading zeros, or with more digits than a float has, are names.
_TYPES: dict[str, Callable[[str], Any]] = {
    r"0|-?[1-9][0-9]{0,18}": int,
    r"-?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|nan|-?inf": float,
    r"true|false": lambda text: text.lower() == "true",
}


@dataclass(frozen=True)
class _Row:
    """A row of a CSV file."""

    where: str  # file and line, for errors
    path: Path  # of the image, with links resolved, so that an image has one path
    columns: dict[str, Any]  # column → value; None if the cell is empty

    def text(self, column: str) -> str:
        """Return the text in a column; raises ValueError if it is empty."""
        text = str(self.columns[column] or "")
        if not text.strip():
            raise ValueError(f"{self.where}: has no {column}")
        return text

    def line(self, column: str) -> str:
        """Return `text` in one line, with single spaces."""
        return " ".join(self.text(column).split())


class Captioned:
    """The rows of a CSV file about the images in a folder. Each image is checked when it is read.

    Each method that writes raises ValueError with the line of a missing value or a damaged image.

    Attributes:
        rows: The rows.
        damaged: Rows that were left out, with the reason.
        progress: Called with the number of rows that were just packed.
    """

    def __init__(self, images: Path, captions: Path, skip_damaged: bool = False) -> None:
        """Read the CSV file.

        Args:
            captions: A CSV file with a header: a column of `FILE_COLUMNS`, and others.
            skip_damaged: Leave out images that cannot be read; otherwise they are errors.

        Raises:
            ValueError: The file isn't CSV with rows, lacks a column, or names images outside the folder.
        """
        self._captions, self._skip = captions, skip_damaged
        self._names, table = _read(captions)
        self._file = self._one_of(FILE_COLUMNS)
        self.rows: list[_Row] = []
        self.damaged: list[str] = []
        self.progress: Callable[[int], None] = lambda rows: None
        folder = os.path.realpath(images)
        missing: list[str] = []
        for line, columns in table:
            where, name = f"{captions}, line {line}", columns[self._file] or ""
            if not os.path.isfile(images / name):  # noqa: PTH113, since Path raises if a name is too long
                missing.append(f"{where}: no image {name!r} in {images}")
                continue
            path = Path(os.path.realpath(images / name))
            if not path.is_relative_to(folder):
                raise ValueError(f"{where}: {name} is {path}, outside {images}: copy it into the folder")
            self.rows.append(_Row(where, images / path.relative_to(folder), columns))
        if missing:
            also = f", and in {len(missing) - 1:,} more rows" if len(missing) > 1 else ""
            raise ValueError(f"{missing[0]}{also}")
        if not self.rows:
            raise ValueError(f"{captions}: has a header and no rows")

    def write_shards(self, folder: Path) -> None:
        """Write all pairs as shards; columns but the caption's are metadata, `file` the image's path."""
        column = self._one_of(CAPTION_COLUMNS)
        others = [name for name in self._names if name not in (column, self._file)]
        if taken := {"key", "image"}.intersection(others):
            raise ValueError(f"{self._captions}: column {min(taken)!r} has a name that shards use: rename it")

        def examples() -> Iterator[dict[str, Any]]:
            for row, content, _ in self._read_images(self.rows):
                texts = {"caption": row.text(column), "file": row.text(self._file)}
                yield {"image": content, **texts, **{name: row.columns[name] for name in others}}

        write_shards(folder, examples(), str(self._captions))

    def write_retrieval(self, folder: Path) -> None:
        """Write a retrieval dataset; an image's captions are those of all rows with it."""
        column = self._one_of(CAPTION_COLUMNS)
        captions: dict[Path, list[str]] = defaultdict(list)
        for row in self.rows:
            captions[row.path].append(row.line(column))
        images = self._read_images(self._images())
        targets = ((content, suffix, "\n".join(captions[row.path])) for row, content, suffix in images)
        write_retrieval(folder, targets)

    def write_classification(self, folder: Path, templates: Sequence[str]) -> None:
        """Write a classification dataset by the rows' labels, in the split of each row; by default in test.

        Labels that differ only in white space are one class. Rows of the same image are one image, with one
        label and split. At least one image must be in test, and prompts must tell the classes apart. Each
        template has `{c}` in place of the class.
        """
        templates = [" ".join(template.split()) for template in templates]
        for template in templates:
            if "{c}" not in template:
                raise ValueError(f"template {template!r}: has no {{c}} in place of the class's name")
        label = self._one_of(LABEL_COLUMNS)
        targets: dict[Path, tuple[str, str]] = {}
        for row in self.rows:
            target = (str(row.columns.get(SPLIT_COLUMN) or "test"), row.line(label))
            if target[0] not in _SPLITS:
                raise ValueError(f"{row.where}: split {target[0]!r} must be one of {', '.join(_SPLITS)}")
            if targets.setdefault(row.path, target) != target:
                raise ValueError(f"{row.where}: {row.path} has another label or split in an earlier row")
        classes = sorted({name for _, name in targets.values()})
        check_class_names(classes, self._captions)
        splits: dict[str, list[Target]] = defaultdict(list)
        for row, content, suffix in self._read_images(self._images()):
            split, name = targets[row.path]
            splits[split].append((content, suffix, str(classes.index(name))))
        if "test" not in splits:
            raise ValueError(f"{self._captions}: no row is of the split 'test'")
        write_classification(folder, splits, classes, templates)

    def _images(self) -> list[_Row]:
        """Return the first row of each image."""
        first: dict[Path, _Row] = {}
        for row in self.rows:
            first.setdefault(row.path, row)
        return list(first.values())

    def _read_images(self, rows: Collection[_Row]) -> Iterator[tuple[_Row, bytes, str]]:
        """Yield rows with the bytes of their images and the suffix of their format."""
        for row in rows:
            content = row.path.read_bytes()
            self.progress(1)
            try:
                decode(content, _SIDE)
                yield row, content, encoded(content)[0]
            except ValueError as error:
                problem = f"{row.where}: {row.path}: {error}"
                if not self._skip:
                    raise ValueError(f"{problem}: fix it, or leave out such rows: --skip-damaged") from None
                self.damaged.append(problem)
        self.progress(len(self.rows) - len(rows))
        if len(self.damaged) == len(rows):
            raise ValueError(f"{self._captions}: every image is damaged: {self.damaged[0]}")

    def _one_of(self, names: Sequence[str]) -> str:
        """Return the first of some columns that the file has."""
        for name in names:
            if name in self._names:
                return name
        known = ", ".join(map(repr, self._names))
        raise ValueError(f"{self._captions}: has no column {' or '.join(map(repr, names))}: it has {known}")


def _read(path: Path) -> tuple[Sequence[str], list[tuple[int, dict[str, Any]]]]:
    """Read a CSV file; return its columns, and the last line and the values of each row."""
    csv.field_size_limit(sys.maxsize)
    rows: list[tuple[int, dict[str, Any]]] = []
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        names = reader.fieldnames or ()
        for row in reader:
            if None in row or None in row.values():
                raise csv.Error(f"expected {len(names)} values")
            rows.append((reader.line_num, row))
    except csv.Error as error:
        where = f"{path}: not a CSV file with a header: after line {rows[-1][0] if rows else 1}"
        raise ValueError(f"{where}: {error}: close each quote, and double those within a text") from None
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: two columns have the same name")
    for name in names:
        convert = str if name in _TEXTS else _type_of([row[name] for _, row in rows if row[name]])
        for _, row in rows:
            row[name] = convert(row[name]) if row[name] else None
    return names, rows


def _type_of(cells: Sequence[str]) -> Callable[[str], Any]:
    """Return the first type that all cells have and that loses nothing: int, float, bool, or str."""
    for pattern, convert in _TYPES.items():
        if all(re.fullmatch(pattern, cell, re.IGNORECASE) and fits_a_table(convert(cell)) for cell in cells):
            return convert
    return str
