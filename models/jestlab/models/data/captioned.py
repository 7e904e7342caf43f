"""Pack a folder of images, with a CSV file that describes them, as shards or as a benchmark dataset."""

from __future__ import annotations

import csv
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jestlab.models.data.benchmarks import check_class_names
from jestlab.models.data.images import decode
from jestlab.models.data.packing import Target, encoded, write_classification, write_retrieval, write_shards
from jestlab.models.data.shards import fits_a_table

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

Progress = Callable[[int], None]
"""Called with the number of rows that were just packed."""


@dataclass(frozen=True)
class Row:
    """A row of a CSV file.

    Attributes:
        where: File and line of the row, for errors.
        path: Of the image, with links resolved, so that an image has one path.
        columns: Column → value; None if the cell is empty.
    """

    where: str
    path: Path
    columns: dict[str, Any]

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
    """

    def __init__(self, images: Path, captions: Path, skip_damaged: bool = False) -> None:
        """Read the CSV file.

        Args:
            images: The folder.
            captions: A CSV file with a header: a column of `FILE_COLUMNS`, and others.
            skip_damaged: Leave out images that cannot be read; otherwise they are errors.

        Raises:
            ValueError: The file isn't CSV with rows, lacks a column, or names images outside the folder.
        """
        self._captions, self._skip = captions, skip_damaged
        self._names, table = _read(captions)
        self._file = self._one_of(FILE_COLUMNS)
        self.rows: list[Row] = []
        self.damaged: list[str] = []
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
            self.rows.append(Row(where, images / path.relative_to(folder), columns))
        if missing:
            also = f", and in {len(missing) - 1:,} more rows" if len(missing) > 1 else ""
            raise ValueError(f"{missing[0]}{also}")
        if not self.rows:
            raise ValueError(f"{captions}: has a header and no rows")

    def write_shards(self, folder: Path, progress: Progress = lambda rows: None) -> None:
        """Write all pairs as shards; columns but the caption's are metadata, `file` the image's path."""
        column = self._one_of(CAPTION_COLUMNS)
        others = [name for name in self._names if name not in (column, self._file)]
        if taken := {"key", "image"}.intersection(others):
            raise ValueError(f"{self._captions}: column {min(taken)!r} has a name that shards use: rename it")

        def examples() -> Iterator[dict[str, Any]]:
            for row, content, _ in self._read_images(self.rows, progress):
                metadata = {name: row.columns[name] for name in others}
                yield {
                    "image": content,
                    "caption": row.text(column),
                    "file": row.text(self._file),
                    **metadata,
                }

        write_shards(folder, examples(), str(self._captions))

    def write_retrieval(self, folder: Path, progress: Progress = lambda rows: None) -> None:
        """Write a retrieval dataset; an image's captions are those of all rows with it."""
        column = self._one_of(CAPTION_COLUMNS)
        captions: dict[Path, list[str]] = defaultdict(list)
        for row in self.rows:
            captions[row.path].append(row.line(column))
        images = self._read_images(self._images(), progress)
        targets = ((content, suffix, "\n".join(captions[row.path])) for row, content, suffix in images)
        write_retrieval(folder, targets)

    def write_classification(
        self, folder: Path, templates: Sequence[str], progress: Progress = lambda rows: None
    ) -> None:
        """Write a classification dataset by the rows' labels, in the split of each row; by default in test.

        Labels that differ only in white space are one class. Rows of the same image are one image, with one
        label and split. At least one image must be in test, and prompts must tell the classes apart.

        Args:
            folder: Of the dataset.
            templates: Prompts with `{c}` in place of the class.
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
        for row, content, suffix in self._read_images(self._images(), progress):
            split, name = targets[row.path]
            splits[split].append((content, suffix, str(classes.index(name))))
        if "test" not in splits:
            raise ValueError(f"{self._captions}: no row is of the split 'test'")
        write_classification(folder, splits, classes, templates)

    def _images(self) -> list[Row]:
        """Return the first row of each image."""
        first: dict[Path, Row] = {}
        for row in self.rows:
            first.setdefault(row.path, row)
        return list(first.values())

    def _read_images(self, rows: Collection[Row], progress: Progress) -> Iterator[tuple[Row, bytes, str]]:
        """Yield rows with the bytes of their images and the suffix of their format."""
        for row in rows:
            content = row.path.read_bytes()
            progress(1)
            try:
                decode(content, _SIDE)
                yield row, content, encoded(content)[0]
            except ValueError as error:
                problem = f"{row.where}: {row.path}: {error}"
                if not self._skip:
                    raise ValueError(f"{problem}: fix it, or leave out such rows: --skip-damaged") from None
                self.damaged.append(problem)
        progress(len(self.rows) - len(rows))
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
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            names = reader.fieldnames or ()
            for row in reader:
                if None in row or None in row.values():
                    raise csv.Error(f"expected {len(names)} values")
                rows.append((reader.line_num, row))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8: save it in this encoding") from None
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
