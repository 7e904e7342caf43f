"""Pairs of one's own: a folder of images, and a CSV file that says what each shows."""

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
"""Names of the column with the image's path within the folder: the first of these that the file has."""

CAPTION_COLUMNS = ("caption", "text", "title")
LABEL_COLUMNS = ("label", "class")
SPLIT_COLUMN = "split"
_SPLITS = ("test", "train")
_SIDE = 8  # pixels; to see that an image is whole
# Numbers with leading zeros, or of more digits than a float has, are names rather than numbers.
_TYPES: dict[str, Callable[[str], Any]] = {
    r"0|-?[1-9][0-9]{0,18}": int,
    r"-?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|nan|-?inf": float,
    r"true|false": lambda text: text.lower() == "true",
}

Progress = Callable[[int], None]
"""Called with the number of rows that were just done with."""


@dataclass(frozen=True)
class Row:
    """A row of a file of captions.

    Attributes:
        where: File and number of the row, for errors; the header is row 1.
        path: Of the image, with links followed, so that an image has one path.
        columns: What the row says.
    """

    where: str
    path: Path
    columns: dict[str, Any]


class Captioned:
    """The rows of a CSV file about the images in a folder, each image checked as it is read.

    Attributes:
        rows: They.
        damaged: What was left out, and why.
    """

    def __init__(self, images: Path, captions: Path, skip_damaged: bool = False) -> None:
        """Read the file of captions; no image is read yet.

        Args:
            images: The folder.
            captions: A CSV file with a header: a column of `FILE_COLUMNS`, and others.
            skip_damaged: Whether images that cannot be read are left out; else they are errors.

        Raises:
            FileNotFoundError: There is no such folder or file.
            ValueError: It is no CSV file with rows, lacks a column, or names images that are not in
                the folder.
        """
        if not images.is_dir():
            raise FileNotFoundError(f"{images}: no such folder of images")
        self._captions, self._skip = captions, skip_damaged
        numbers, columns = _read(captions)
        self._names = tuple(columns)
        self._file = file = self._one_of(FILE_COLUMNS)
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        if not rows:
            raise ValueError(f"{captions}: has a header and no rows")
        folder = os.path.realpath(images)
        self.rows: list[Row] = []
        self._images: dict[Path, Row] = {}  # the first row of each
        missing: list[str] = []
        for number, row in zip(numbers, rows, strict=True):
            where, name = f"{captions}, row {number}", row[file] or ""
            if not os.path.isfile(images / name):  # noqa: PTH113, since Path raises where a name is too long
                missing.append(f"{where}: no image {name!r} in {images}")
                continue
            path = Path(os.path.realpath(images / name))
            if not path.is_relative_to(folder):
                raise ValueError(f"{where}: {name} is {path}, outside {images}: copy it into the folder")
            self.rows.append(Row(where, images / path.relative_to(folder), row))
            self._images.setdefault(self.rows[-1].path, self.rows[-1])
        if missing:
            also = f", and in {len(missing) - 1:,} more rows" if len(missing) > 1 else ""
            raise ValueError(f"{missing[0]}{also}")
        self.damaged: list[str] = []

    def write_shards(self, folder: Path, progress: Progress = lambda rows: None) -> None:
        """Write all pairs as shards; columns but the caption's are metadata, `file` the image's path.

        Raises:
            ValueError: There is no column of captions, a caption is missing, an image is damaged, or a column
                has a name that shards use.
        """
        column = self._one_of(CAPTION_COLUMNS)
        others = [name for name in self._names if name not in (column, self._file)]
        if taken := {"key", "image"}.intersection(others):
            raise ValueError(f"{self._captions}: column {min(taken)!r} has a name that shards use: rename it")

        def examples() -> Iterator[dict[str, Any]]:
            for row, content in self._read_images(self.rows, progress):
                metadata = {"file": row.columns[self._file], **{name: row.columns[name] for name in others}}
                yield {"image": content, "caption": _text(row, column), **metadata}

        write_shards(folder, examples(), str(self._captions))

    def write_retrieval(self, folder: Path, progress: Progress = lambda rows: None) -> None:
        """Write a retrieval dataset: the captions of rows with the same image are all its captions.

        Raises:
            ValueError: As `write_shards`.
        """
        column = self._one_of(CAPTION_COLUMNS)
        captions: dict[Path, list[str]] = defaultdict(list)
        for row in self.rows:
            captions[row.path].append(_words(row, column))

        def targets() -> Iterator[Target]:
            for row, content in self._read_images(self._images.values(), progress):
                suffix, image = encoded(content)
                yield image, suffix, "\n".join(captions[row.path])

        write_retrieval(folder, targets())

    def write_classification(
        self, folder: Path, templates: Sequence[str], progress: Progress = lambda rows: None
    ) -> None:
        """Write a classification dataset by the rows' labels, in the splits that they name, else all to test.

        Labels that differ in white space alone are one class; rows of the same image are one image.

        Args:
            folder: Of the dataset.
            templates: Prompts with `{c}` in the place of the class.

        Raises:
            ValueError: A label is missing or differs for the same image, two classes are the same in prompts,
                a split is none, nothing is left to test on, a template has no place for the class, or as
                `write_shards`.
        """
        templates = [" ".join(template.split()) for template in templates]
        for template in templates:
            if "{c}" not in template:
                raise ValueError(f"template {template!r}: no {{c}}, where the class's name goes")
        label = self._one_of(LABEL_COLUMNS)
        targets: dict[Path, tuple[str, str]] = {}
        for row in self.rows:
            name, split = _words(row, label), str(row.columns.get(SPLIT_COLUMN) or "test")
            if split not in _SPLITS:
                raise ValueError(f"{row.where}: split {split!r} is none of {', '.join(_SPLITS)}")
            if (known := targets.setdefault(row.path, (name, split))) != (name, split):
                earlier = f"{known[0]!r} in {known[1]} by an earlier row"
                raise ValueError(f"{row.where}: {row.path} is {earlier}: give it one label and one split")
        classes = sorted({name for name, _ in targets.values()})
        check_class_names(classes, self._captions)
        number = {name: str(at) for at, name in enumerate(classes)}
        splits: dict[str, list[Target]] = {split: [] for split in _SPLITS}
        for row, content in self._read_images(self._images.values(), progress):
            suffix, image = encoded(content)
            name, split = targets[row.path]
            splits[split].append((image, suffix, number[name]))
        if not splits["test"]:
            raise ValueError(f"{self._captions}: no row is of the split 'test'")
        write_classification(folder, {split: of for split, of in splits.items() if of}, classes, templates)

    def _read_images(self, rows: Collection[Row], progress: Progress) -> Iterator[tuple[Row, bytes]]:
        """Yield rows with the bytes of their images."""
        for row in rows:
            content = row.path.read_bytes()
            progress(1)
            try:
                decode(content, _SIDE)
                encoded(content)
            except ValueError as error:
                what = str(error) if str(error).startswith("has ") else f"is {error}"
                said = f"{row.where}: {row.path} {what}"
                if not self._skip:
                    raise ValueError(f"{said}: mend it, or leave such rows out: --skip-damaged") from None
                self.damaged.append(said)
                continue
            yield row, content
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


def _text(row: Row, column: str) -> str:
    """Return a text of a row; raises ValueError if it is empty."""
    text = str(row.columns[column] or "")
    if not text.strip():
        raise ValueError(f"{row.where}: has no {column}")
    return text


def _words(row: Row, column: str) -> str:
    """Return a text of a row in one line, with single spaces; raises ValueError if it is empty."""
    return " ".join(_text(row, column).split())


def _read(path: Path) -> tuple[list[int], dict[str, list[Any]]]:
    """Read a CSV file: numbers of its rows, and columns typed by what they hold; empty cells are None."""
    usual_limit = csv.field_size_limit(sys.maxsize)
    rows: list[list[str]] = []
    header: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for row in csv.reader(file, strict=True):
                header = header or row
                if row and len(row) != len(header):
                    raise csv.Error(f"{len(row)} values for {len(header)} columns")
                rows.append(row)
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8: save it in this encoding") from None
    except csv.Error as error:
        where = f"{path}: not a CSV file with a header: row {len(rows) + 1}"
        raise ValueError(f"{where}: {error}: close each quote, and double those within a text") from None
    finally:
        csv.field_size_limit(usual_limit)
    if len(set(header)) < len(header):
        raise ValueError(f"{path}: two columns have the same name")
    numbers = [number for number, row in enumerate(rows, 1) if row]
    texts = (*FILE_COLUMNS, *CAPTION_COLUMNS, *LABEL_COLUMNS, SPLIT_COLUMN)
    return numbers[1:], {
        name: [cell or None for cell in column] if name in texts else _typed(column)
        for name, *column in zip(*filter(None, rows), strict=True)
    }


def _typed(cells: Sequence[str]) -> list[Any]:
    """Convert cells to whole numbers, numbers, or true and false, if all are of one kind and lose nothing."""
    for pattern, convert in _TYPES.items():
        if all(re.fullmatch(pattern, cell, re.IGNORECASE) for cell in cells if cell):
            values = [convert(cell) if cell else None for cell in cells]
            if all(map(fits_a_table, values)):
                return values
    return [cell or None for cell in cells]
