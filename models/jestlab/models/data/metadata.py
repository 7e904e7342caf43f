"""The metadata of examples: columns of the parquet next to each tar, or of the `.json` members of a tar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import compute_ahead, log_progress
from jestlab.models.data.filters import missing_column
from jestlab.models.data.shards import ShardIndex, ShardSource, parse_metadata

if TYPE_CHECKING:
    import pyarrow as pa

_SHARDS_AT_ONCE = 4

Part = TypeVar("Part")


def load_metadata(folder: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Load metadata columns of a folder of shards: for each a list of n values, None where missing.

    Raises:
        ValueError: An unknown column.
    """
    source = ShardSource(folder)
    tables = [*by_shard(lambda shard: read_table(source, shard, columns), source.index, "read metadata of")]
    return {name: [cell for table in tables for cell in table[name].to_pylist()] for name in columns}


def metadata_of(
    source: ShardSource, examples: npt.NDArray[np.int64], columns: Sequence[str]
) -> dict[str, list[Any]]:
    """Look up metadata of some examples anywhere, such as those of a batch.

    Args:
        source: The folder.
        examples: int64[k], global example numbers, in any order.
        columns: Their names.

    Returns:
        Column → k values, None where missing; also where the column itself is missing.
    """
    cells: dict[str, list[Any]] = {name: [None] * len(examples) for name in columns}
    shards = source.index.shard(examples)
    for shard in np.unique(shards).tolist():
        rows = np.flatnonzero(shards == shard)
        table = read_table(source, shard, columns, examples[rows], skip_unknown=True)
        for name in set(columns).intersection(table.column_names):
            for row, cell in zip(rows.tolist(), table[name].to_pylist(), strict=True):
                cells[name][row] = cell
    return cells


def metadata_columns(folder: Path) -> list[str]:
    """Return the names of the metadata columns in the first shard; none if its examples have no metadata."""
    source = ShardSource(folder)
    first = int(source.index.shard(np.array(0)))
    return _columns(source, first, source.index.examples(first))[0]


def by_shard(function: Callable[[int], Part], index: ShardIndex, done: str) -> Iterator[Part]:
    """Call a function for each tar with examples, for a few at once; yield its results in order."""
    shards = np.flatnonzero(np.diff(index.starts)).tolist()
    parts = compute_ahead(function, shards, _SHARDS_AT_ONCE, _SHARDS_AT_ONCE)
    return log_progress(parts, len(shards), f"{index.folder}: {done}")


def without_metadata(index: ShardIndex) -> int:
    """Count the examples that have no row in the parquet of their tar or, without one, no `.json`."""

    def missing(shard: int) -> int:
        if not parquet_of(index, shard).exists():
            return int((index.meta[index.examples(shard), 1] == 0).sum())
        return int(read_table(ShardSource(index.folder, index), shard, [])["key"].null_count)

    return sum(by_shard(missing, index, "looked for metadata in"))


def read_table(
    source: ShardSource,
    shard: int,
    columns: Sequence[str],
    examples: npt.NDArray[np.int64] | None = None,
    skip_unknown: bool = False,
) -> pa.Table:
    """Read the key and other columns of a tar's metadata.

    Args:
        source: The folder.
        shard: Number of the tar.
        columns: Names of the columns.
        examples: int64[k], global numbers of some of the tar's examples; None: all of them.
        skip_unknown: Leave out columns that do not exist.

    Returns:
        A row for each example: null where it has no metadata.

    Raises:
        ValueError: A column is unknown, or the metadata cannot be read as a table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    index, parquet = source.index, parquet_of(source.index, shard)
    numbers = index.examples(shard) if examples is None else examples
    known, rows = _columns(source, shard, numbers)
    from_parquet = parquet.exists()
    place = parquet if from_parquet else index.folder / index.tars[shard]
    names = sorted({"key", *(name for name in columns if name in known or not skip_unknown)})
    if missing := missing_column(names, known):
        raise ValueError(f"{place}: no metadata {missing}")
    try:
        if not from_parquet:
            return pa.table({name: [row.get(name) for row in rows] for name in names})
        table = pq.read_table(parquet, columns=names, use_threads=False)
        return table.take(_rows_of(index, shard, numbers, table["key"].combine_chunks()))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{place}: its metadata cannot be read as a table: {error}") from error


def _columns(
    source: ShardSource, shard: int, examples: npt.NDArray[np.int64]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the names of a tar's metadata columns and, without a parquet, the rows of some examples."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = parquet_of(source.index, shard)
    if parquet.exists():
        try:
            return list(pq.read_schema(parquet).names), []
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{parquet}: not a readable parquet file ({error})") from error
    keys = source.index.keys(shard)
    first = int(source.index.starts[shard])
    rows = [
        {**(parse_metadata(content or b"{}") or {}), "key": keys[example - first].rpartition("/")[2]}
        for example, content in zip(examples.tolist(), source.metadata(examples), strict=True)
    ]
    return sorted({name for row in rows for name in row}), rows


def _rows_of(index: ShardIndex, shard: int, examples: npt.NDArray[np.int64], known: pa.Array) -> pa.Array:
    """Return the row of each example among the keys of a table; null if it has none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Keys in metadata lack the folders within the tar.
    names = [key.rpartition("/")[2] for key in index.keys(shard)]
    if pa.types.is_floating(known.type) or pa.types.is_decimal(known.type):  # of whole numbers
        known = known.cast(pa.int64(), safe=False)
    if pa.types.is_integer(known.type):  # which lack the leading zeros of a name
        names = [name.lstrip("0") or "0" for name in names]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{index.folder / index.tars[shard]}: two examples have the same key in metadata, which lacks "
            "folders and, if keys are numbers, leading zeros"
        )
    chosen = pa.array(names, pa.string()).take(pa.array(examples - index.starts[shard]))
    return pc.index_in(chosen, value_set=known.cast(pa.string()))


def parquet_of(index: ShardIndex, shard: int) -> Path:
    """Return the path that a tar's metadata table has, if there is one."""
    return (index.folder / index.tars[shard]).with_suffix(".parquet")
