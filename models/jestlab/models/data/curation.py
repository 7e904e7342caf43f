"""Choose examples by their metadata: filters, synthetic captions, repetitions, and concepts."""

from __future__ import annotations

import hashlib
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from jestlab.models.config.data import SYNTHETIC_CAPTION, Data
from jestlab.models.data.files import map_array, open_derived, shard_files
from jestlab.models.data.filters import Filter
from jestlab.models.data.metadata import (
    by_shard,
    load_metadata,
    metadata_of,
    parquet_of,
    read_table,
    without_metadata,
)
from jestlab.models.data.shards import Ints, ShardIndex

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_VALUES = 64  # of a column: the less frequent ones are counted together
_MOST_COUNTED = 2_000_000  # examples: filtering more than these takes too long for a plan
_NUMBER = "\0number"  # column for the examples' global numbers, a name that metadata cannot have
_LOG = logging.getLogger(__name__)

Columns = Mapping[str, npt.NDArray[Any]]
"""Columns in addition to the metadata, such as scores: [n] by global example number; NaN if missing."""

Derived = TypeVar("Derived")


def choose(
    index: ShardIndex,
    data: Data,
    columns: Columns | None = None,
    *,
    repeats: bool = False,
    damaged_share: float | None = None,
) -> tuple[Ints | None, Recaptions | None]:
    """Choose the examples that a run reads, and their synthetic captions.

    Args:
        data: Its filter is that of `select`, as `columns`; its recaption that of `recaptions`.
        repeats: Whether examples are repeated as `data` says: see `repeated`.
        damaged_share: See `ShardIndex.check`, which is called first; None: it is not called.

    Returns:
        int64[k], ascending, without the examples that lack the synthetic caption they need; None for all.
        And the synthetic captions, if `recaption` is given.

    Raises:
        ValueError: As in `select`, `recaptions`, `repeated`, and `ShardIndex.check`, or no example is left.
    """
    filter, recaption, repeat = data.filter, data.recaption, data.repeat if repeats else None
    if damaged_share is not None:
        names = {*([] if filter is None else Filter.parse(filter).columns), repeat} - {None}
        index.check(damaged_share, without_metadata(index) if names - {*(columns or {})} else 0)
    chosen = None if filter is None else select(index.folder, filter, columns)
    captions = None if recaption is None else recaptions(index.folder, recaption)
    if captions is not None and len(missing := captions.missing()):
        everything = np.arange(len(index)) if chosen is None else chosen
        chosen = np.setdiff1d(everything, missing, assume_unique=True)
        without = f"{index.folder}: {len(everything) - len(chosen)} examples have no synthetic caption"
        if not len(chosen):
            raise ValueError(f"recaption {recaption!r}: {without}, and no other example is chosen")
        if len(chosen) < len(everything):
            _LOG.warning("%s: left out", without)
    return chosen if repeat is None else repeated(index, chosen, repeat, columns), captions


def select(folder: Path, expression: str | None, columns: Columns | None = None) -> Ints:
    """Select the examples whose metadata satisfy a filter.

    The metadata are those of the parquet next to each tar or, without one, of the `.json` members of the tar.
    As in SQL, a missing value does not satisfy a comparison: `punsafe < 0.5` drops unrated examples, too.

    Args:
        expression: In the language of `filters`: "aesthetic > 5 and noise not in ('blank', 'vague')". None:
            every example.
        columns: Columns that the filter can read in addition to the metadata; they hide metadata columns.

    Returns:
        int64[k], global example numbers, ascending.

    Raises:
        ValueError: The expression is invalid, a column is unknown, types do not compare, or no example
            satisfies the filter.
    """
    index = ShardIndex.load(folder)
    if expression is None:
        return np.arange(len(index))
    condition = Filter.parse(expression)
    tables = by_shard(lambda shard: _satisfying(index, shard, condition, columns or {}), index, "filtered")
    selected: Ints = np.concatenate([np.zeros(0, np.int64), *(table[_NUMBER] for table in tables)])
    if not len(selected):
        raise ValueError(
            f"filter {condition.text!r}: none of the {len(index)} examples of {folder} satisfies it"
        )
    return selected


def _satisfying(index: ShardIndex, shard: int, condition: Filter, columns: Columns, *others: str) -> pa.Table:
    """Return the numbers of a tar's examples that satisfy a condition, with its columns and some others."""
    import pyarrow as pa

    examples = index.examples(shard)
    cells = {name: pa.array(columns[name][examples]) for name in condition.columns if name in columns}
    if names := [name for name in (*condition.columns, *others) if name not in cells]:
        table = read_table(index, shard, names)
        cells |= {name: table[name] for name in names}
    return condition.apply(pa.table({_NUMBER: examples, **cells}))


def count_examples(folder: Path, filter: str | None) -> int | None:
    """Count the examples of a folder of shards that satisfy a filter, or all; raises as `select`.

    Returns:
        Their number; None if counting is slow: there are millions of examples, or tars without a parquet.
    """
    index = ShardIndex.load(folder)
    if filter is None:
        return len(index)
    shards = range(len(index.tars))
    if len(index) > _MOST_COUNTED or not all(parquet_of(index, shard).exists() for shard in shards):
        return None
    return len(select(folder, filter))


def repeated(index: ShardIndex, chosen: Ints | None, column: str, columns: Columns | None = None) -> Ints:
    """Repeat chosen examples as often as a column says.

    Args:
        chosen: int64[k]; None for all.
        column: A column of the metadata or of `columns`: whole numbers from 0. A missing number counts as 0.
        columns: See `select`.

    Returns:
        int64[r], ascending: the examples that are read in an epoch, with repetitions.

    Raises:
        ValueError: The column is unknown, has other values, or no example is left.
    """
    own = (columns or {}).get(column)
    cells = load_metadata(index.folder, [column])[column] if own is None else own
    try:
        counts = np.nan_to_num(np.asarray(cells, np.float64), posinf=-1.0)  # None becomes NaN
    except (TypeError, ValueError):
        raise ValueError(f"repeat {column!r}: not a column of numbers in {index.folder}") from None
    if np.any((counts < 0) | (counts != np.floor(counts))):
        raise ValueError(f"repeat {column!r}: its values are not all whole numbers from 0")
    examples = np.arange(len(index)) if chosen is None else chosen
    result = np.repeat(examples, counts[examples].astype(np.int64))
    if not len(result):
        raise ValueError(f"repeat {column!r}: all of the {len(examples)} examples have 0 repetitions")
    return result


@dataclass(frozen=True)
class Recaptions:
    """The synthetic captions of the examples that satisfy a condition, memory-mapped.

    Attributes:
        numbers: int64[m], the examples that satisfy it, ascending.
        captions: Their m captions; null if missing.
    """

    numbers: Ints
    captions: pa.ChunkedArray

    def missing(self) -> Ints:
        """Return the examples that satisfy the condition and lack a synthetic caption, ascending."""
        missing: Ints = self.numbers[np.asarray(self.captions.is_null(), bool)]
        return missing

    def replace(self, index: Ints, captions: list[str]) -> None:
        """Replace, in place, the captions of those of k examples, int64[k], that satisfy the condition."""
        places = np.searchsorted(self.numbers, index)
        satisfies = places < len(self.numbers)
        satisfies[satisfies] = self.numbers[places[satisfies]] == index[satisfies]
        for row in np.flatnonzero(satisfies).tolist():
            captions[row] = self.captions[int(places[row])].as_py()


def recaptions(folder: Path, expression: str) -> Recaptions:
    """Load the synthetic captions of a folder's examples that satisfy a condition, as in WebLI-curated++.

    WebLI-curated++ re-captions every pair whose image–text alignment is below the threshold, and has no pairs
    that lack a synthetic caption. Captions are read once, tar by tar, and stored next to the index.

    Args:
        folder: Folder of shards whose metadata have the column `synthetic_caption`.
        expression: In the language of `filters`: "similarity < 0.3".

    Returns:
        The captions; white space alone counts as missing.

    Raises:
        ValueError: As in `select`, or the column is missing or has values other than text. It is not an error
            if no example satisfies the condition.

    Source:
        Section 4.4, "Scaling data curation".
    """
    import pyarrow as pa

    condition, index = Filter.parse(expression), ShardIndex.load(folder)
    schema = pa.schema({_NUMBER: pa.int64(), SYNTHETIC_CAPTION: pa.string()})

    def captions(shard: int) -> pa.Table:
        table = _satisfying(index, shard, condition, {}, SYNTHETIC_CAPTION)
        cells = table[SYNTHETIC_CAPTION].to_pylist()
        if any(not isinstance(cell, str | None) for cell in cells):
            tar = folder / index.tars[shard]
            raise ValueError(f"{tar}: its metadata column {SYNTHETIC_CAPTION!r} is not all text")
        texts = [(cell or "").strip() or None for cell in cells]
        return pa.table([table[_NUMBER], texts], schema)

    def build(partial: Path) -> None:
        with pa.ipc.new_file(partial / "captions.arrow", schema) as writer:
            for table in by_shard(captions, index, "recaptioned"):
                writer.write_table(table)

    def load(derived: Path) -> Recaptions:
        table = pa.ipc.open_file(pa.memory_map(str(derived / "captions.arrow"))).read_all()
        return Recaptions(table[_NUMBER].to_numpy(), table[SYNTHETIC_CAPTION])

    return _derived(index, "recaptions", condition.text, build, load)


def concepts(folder: Path, columns: Sequence[str]) -> npt.NDArray[np.int32]:
    """Load the concepts of a folder's examples. They are read once, tar by tar, and stored next to the index.

    A value of one of the columns, or each value of a list in it, is a concept of this column.

    Returns:
        int32 [n, K], memory-mapped: the numbers of each example's concepts, ascending, then −1. Concepts are
        numbered in the order of their names, "column: value".

    Raises:
        ValueError: A column is unknown, or has values that are neither text nor whole numbers.
    """
    index = ShardIndex.load(folder)

    def of_shard(shard: int) -> list[set[str]]:
        table = read_table(index, shard, columns)
        tar = folder / index.tars[shard]
        cells = [[_concepts_of(cell, name, tar) for cell in table[name].to_pylist()] for name in columns]
        return [set().union(*row) for row in zip(*cells, strict=True)]

    def build(partial: Path) -> None:
        parts = by_shard(of_shard, index, "read concepts of")
        rows = [sorted(map(sys.intern, names)) for examples in parts for names in examples]
        numbers_of = {name: number for number, name in enumerate(sorted({*itertools.chain(*rows)}))}
        numbers = np.full((len(index), max(1, *map(len, rows))), -1, np.int32)
        for example, row in enumerate(rows):
            numbers[example, : len(row)] = [numbers_of[name] for name in row]
        (partial / "numbers").write_bytes(numbers.tobytes())

    def load(derived: Path) -> npt.NDArray[np.int32]:
        return map_array(derived / "numbers", np.int32, (len(index), -1))

    return _derived(index, "concepts", columns, build, load)


def _concepts_of(cell: Any, column: str, tar: Path) -> set[str]:
    """Return the names of the concepts in a cell."""
    values = cell if isinstance(cell, list) else [cell]
    for value in values:
        if not isinstance(value, str | int | None):
            raise ValueError(
                f"{tar}: metadata column {column!r} holds {value!r}, which is not a concept: name columns of "
                "text, of whole numbers, or of lists of them in selection.concepts"
            )
    return {f"{column}: {value}" for value in values if value is not None}


def _derived(
    index: ShardIndex, kind: str, key: object, build: Callable[[Path], None], load: Callable[[Path], Derived]
) -> Derived:
    """Load data derived from metadata; build them unless shards, metadata, and key are the same as before."""
    tables = [
        (str(path), stat.st_size, stat.st_mtime_ns) for path, stat in shard_files(index.folder, (".parquet",))
    ]
    state = hashlib.sha256(repr((key, index.signature, tables)).encode()).hexdigest()[:16]
    return open_derived(index.folder, f"{kind}-{state}", build, load)


def shares_by_value(
    source: ShardIndex, columns: Sequence[str], examples: Mapping[str, Ints]
) -> dict[str, dict[str, dict[str, float]]]:
    """Count examples by the values of metadata columns, as shares.

    Args:
        examples: Names of groups of examples → their global numbers, int64[k].

    Returns:
        Column → value → group → share. Beyond the most frequent values of a column, values are counted as
        "others"; missing values as "missing". Columns without any value are left out.
    """
    shares: dict[str, dict[str, dict[str, float]]] = {}
    for column, cells in metadata_of(source, np.concatenate([*examples.values()]), columns).items():
        if all(cell is None for cell in cells):
            continue
        values = ["missing" if cell is None else str(cell) for cell in cells]
        frequent = {value for value, _ in Counter(values).most_common(_MOST_VALUES)}
        values = [value if value in frequent else "others" for value in values]
        left = iter(values)
        counts = {group: Counter(itertools.islice(left, len(numbers))) for group, numbers in examples.items()}
        shares[column] = {
            value: {group: count[value] / len(examples[group]) for group, count in counts.items()}
            for value in dict.fromkeys(values)
        }
    return shares
