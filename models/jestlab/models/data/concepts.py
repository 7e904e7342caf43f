"""The concepts of examples, for rules that choose batches by them: values of metadata columns as numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import map_array, open_derived, shard_files, write_whole
from jestlab.models.data.metadata import by_shard, read_table
from jestlab.models.data.shards import ShardIndex, ShardSource


@dataclass(frozen=True)
class Concepts:
    """The concepts of a folder's examples, memory-mapped.

    Attributes:
        names: Every concept there is, as "column: value"; its place is its number.
        numbers: int32 [n, K], the numbers of each example's concepts, ascending, then −1.
    """

    names: tuple[str, ...]
    numbers: npt.NDArray[np.int32]

    def of(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return int32 [B, K], the rows of examples, int64 [B]."""
        return np.asarray(self.numbers[index])


def concepts(folder: Path, columns: Sequence[str]) -> Concepts:
    """Load the concepts of a folder's examples: read once, tar by tar, and kept beside the index.

    Args:
        folder: A folder of shards.
        columns: Columns of metadata. A value, or each of a list of values, is a concept of its column; a
            missing value is none.

    Raises:
        ValueError: An unknown column, or one with values that are no names: neither texts nor whole numbers.
    """
    index = ShardIndex.load(folder)
    source = ShardSource(folder, index)
    columns = tuple(dict.fromkeys(columns))

    def of_shard(shard: int) -> list[list[str]]:
        table = read_table(source, shard, columns)
        cells = {name: table[name].to_pylist() for name in columns}
        tar = folder / index.tars[shard]

        def of_row(row: int) -> list[str]:
            return sorted({text for name in columns for text in _names(cells[name][row], name, tar)})

        return [of_row(row) for row in range(len(table))]

    def build(partial: Path) -> None:
        vocabulary: dict[str, int] = {}  # in the order of their first examples, until all are known
        coded = [
            np.array([vocabulary.setdefault(name, len(vocabulary)) for name in names], np.int32)
            for found in by_shard(of_shard, index, "read concepts of")
            for names in found
        ]
        names = sorted(vocabulary)
        places = np.empty(len(names), np.int32)
        places[[vocabulary[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        numbers = np.full((len(index), max(1, *map(len, coded))), -1, np.int32)
        for example, codes in enumerate(coded):
            numbers[example, : len(codes)] = np.sort(places[codes])
        (partial / "numbers").write_bytes(numbers.tobytes())
        write_whole(partial / "names.json", json.dumps(names).encode())

    def load(kept: Path) -> Concepts:
        names = tuple(json.loads((kept / "names.json").read_text()))
        numbers = map_array(kept / "numbers", np.int32).reshape(len(index), -1)
        return Concepts(names, numbers)

    state = hashlib.sha256(f"{json.dumps(columns)}\n{index.signature}\n".encode())
    for path, stat in shard_files(folder, (".parquet",)):
        state.update(f"{path.as_posix()} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return open_derived(folder, f"concepts-{state.hexdigest()[:16]}", build, load)


def _names(cell: Any, column: str, tar: Path) -> list[str]:
    """Return the names of the concepts in a cell."""
    values = cell if isinstance(cell, list) else [cell]
    for value in values:
        if not isinstance(value, str | int | None):
            raise ValueError(
                f"{tar}: metadata column {column!r} holds {value!r}, which names no concept: name columns of "
                "texts, of whole numbers, or of lists of them in selection.concepts"
            )
    return [f"{column}: {value}" for value in values if value is not None]
