"""The metadata of examples: columns of the parquet next to each tar, or of the `.json` members of a tar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from jestlab.models.data.files import compute_ahead, log_progress
from jestlab.models.data.filters import missing_column
from jestlab.models.data.shards import Ints, ShardIndex, parse_metadata

if TYPE_CHECKING:
    import pyarrow as pa

_SHARDS_AT_ONCE = 4

Part = TypeVar("Part")


def load_metadata(folder: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Load metadata columns of a folder of shards: for each a list of n values, None where missing.

    Raises:
        ValueError: An unknown column.
    """
    index = ShardIndex.load(folder)
    tables = [*by_shard(lambda shard: read_table(index, shard, columns), index, "read metadata of")]
    return {name: [cell for table in tables for cell in table[name].to_pylist()] for name in columns}


def metadata_of(index: ShardIndex, examples: Ints, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Look up metadata of some examples anywhere, such as those of a batch.

    Reads the columns of every tar that has one of the examples.

    Args:
        examples: int64[k], global example numbers, in any order.
        columns: Names of columns, which may be missing.

    Returns:
        Column → k values, None where missing.
    """
    cells: dict[str, list[Any]] = {name: [None] * len(examples) for name in columns}
    shards = index.shard(examples)
    for shard in np.unique(shards).tolist():
        rows = np.flatnonzero(shards == shard)
        table = read_table(index, shard, columns, examples[rows], skip_unknown=True)
        for name in set(columns).intersection(table.column_names):
            for row, cell in zip(rows.tolist(), table[name].to_pylist(), strict=True):
                cells[name][row] = cell
    return cells


def metadata_columns(folder: Path) -> list[str]:
    """Return the names of the metadata columns in the first shard; only `key` if it has no metadata."""
    index = ShardIndex.load(folder)
    first = int(index.shard(np.array(0)))
    return list(_open(index, first, index.examples(first))[1])


def by_shard(function: Callable[[int], Part], index: ShardIndex, done: str) -> Iterator[Part]:
    """Call a function for each tar with examples, for a few at once; yield its results in order."""
    shards = np.flatnonzero(np.diff(index.starts)).tolist()
    parts = compute_ahead(function, shards, _SHARDS_AT_ONCE, _SHARDS_AT_ONCE)
    return log_progress(parts, len(shards), f"{index.folder}: {done}")


def without_metadata(index: ShardIndex) -> int:
    """Count the examples that have no row in the parquet of their tar or, without one, no `.json`."""

    def missing(shard: int) -> int:
        if not parquet_of(index, shard).exists():
            return int((index.spans[index.examples(shard), 2, 1] == 0).sum())
        return int(read_table(index, shard, [])["key"].null_count)

    return sum(by_shard(missing, index, "looked for metadata in"))


def read_table(
    index: ShardIndex,
    shard: int,
    columns: Sequence[str],
    examples: Ints | None = None,
    skip_unknown: bool = False,
) -> pa.Table:
    """Read the key and other columns of a tar's metadata.

    Args:
        examples: int64[k], global numbers of some of the tar's examples; None: all of them.
        skip_unknown: Leave out columns that do not exist, which are errors by default.

    Returns:
        k rows, in the order of the examples; null where an example has no metadata.
    """
    import pyarrow as pa

    numbers = index.examples(shard) if examples is None else examples
    place, known, read = _open(index, shard, numbers)
    names = sorted({"key", *(name for name in columns if name in known or not skip_unknown)})
    if missing := missing_column(names, known):
        raise ValueError(f"{place}: no metadata {missing}")
    try:
        return read(names)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{place}: its metadata cannot be read as a table: {error}") from error


def _open(
    index: ShardIndex, shard: int, examples: Ints
) -> tuple[Path, Sequence[str], Callable[[Sequence[str]], pa.Table]]:
    """Return the file with a tar's metadata, its columns, and a function that reads columns of examples."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = parquet_of(index, shard)
    keys = [key.rpartition("/")[2] for key in index.keys(shard)]  # metadata lack the folders within the tar
    places = examples - index.starts[shard]
    if path.exists():
        if len(set(keys)) < len(keys):
            raise ValueError(f"{path}: two examples have the same key in metadata, which lacks folders")
        try:
            file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path}: not a readable parquet file ({error})") from error

        def read(names: Sequence[str]) -> pa.Table:
            table = file.read(names, use_threads=False)
            known = table["key"].combine_chunks()
            if pa.types.is_primitive(known.type):
                written = f"the tar has {keys[0]!r}"
                raise ValueError(f"{path}: column 'key' is {known.type}, and {written}: write keys as text")
            known = known.cast(pa.string())
            return table.take(
                pc.index_in(pa.array(keys, pa.string()).take(pa.array(places)), value_set=known)
            )

        return path, file.schema_arrow.names, read
    rows = []
    for example, place, content in zip(
        examples.tolist(), places.tolist(), index.metadata(examples), strict=True
    ):
        if (row := parse_metadata(content or b"{}")) is None:
            raise ValueError(f"{index.describe(example)}: unreadable metadata: repair its .json")
        rows.append({**row, "key": keys[place]})
    columns = sorted({name for row in rows for name in row})
    tar = index.folder / index.tars[shard]
    return tar, columns, lambda names: pa.table({name: [row.get(name) for row in rows] for name in names})


def parquet_of(index: ShardIndex, shard: int) -> Path:
    """Return the path that a tar's metadata table has, if there is one."""
    return (index.folder / index.tars[shard]).with_suffix(".parquet")
