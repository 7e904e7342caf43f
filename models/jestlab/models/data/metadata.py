"""The metadata of examples: columns of the parquet beside each tar, or of the `.json` members of a tar."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import compute_ahead
from jestlab.models.data.filters import missing_column
from jestlab.models.data.shards import ShardIndex, ShardSource

if TYPE_CHECKING:
    import pyarrow as pa

_SHARDS_AT_ONCE = 4
_LOG_SECONDS = 10.0
_LOG = logging.getLogger(__name__)

Part = TypeVar("Part")


def load_metadata(folder: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Load metadata columns of a folder of shards: for each a list of n values, None where missing.

    Raises:
        ValueError: An unknown column.
    """
    index = ShardIndex.load(folder)
    source = ShardSource(folder, index)

    def cells(shard: int) -> list[list[Any]]:
        table = read_table(source, shard, columns)
        return [table[name].to_pylist() for name in columns]

    parts = list(by_shard(cells, index, "read metadata"))
    return {name: [cell for part in parts for cell in part[i]] for i, name in enumerate(columns)}


def metadata_of(
    source: ShardSource, examples: npt.NDArray[np.int64], columns: Sequence[str]
) -> dict[str, list[Any]]:
    """Look up metadata of some examples anywhere: one small read each where tars hold JSON members.

    Unlike `load_metadata` it is for looking, not for choosing: JSON members are preferred to the parquet
    beside a tar, and what is missing, column or example, is None.

    Args:
        source: The folder.
        examples: int64[k], global example numbers, in any order.
        columns: Their names.
    """
    index = source.index
    cells: dict[str, list[Any]] = {name: [None] * len(examples) for name in columns}
    has_json = index.meta[examples, 1] > 0
    places = np.flatnonzero(has_json).tolist()
    for place, content in zip(places, source.metadata(examples[has_json]), strict=True):
        try:
            row = json.loads(content)
        except (ValueError, RecursionError):
            continue
        for name in columns if isinstance(row, dict) else ():
            cells[name][place] = row.get(name)
    shards = index.shard(examples)
    for shard in np.unique(shards[~has_json]).tolist():
        parquet = parquet_of(index, shard)
        known = [name for name in columns if parquet.exists() and name in _schema(parquet)]
        if not known:
            continue
        table = read_table(source, shard, known)
        for place in np.flatnonzero(~has_json & (shards == shard)).tolist():
            for name in known:
                cells[name][place] = table[name][int(examples[place] - index.starts[shard])].as_py()
    return cells


def metadata_columns(folder: Path) -> list[str]:
    """Return the names of the metadata columns in the first shard; none if its examples lack metadata."""
    index = ShardIndex.load(folder)
    first = int(index.shard(np.array(0)))
    parquet = parquet_of(index, first)
    if parquet.exists():
        return _schema(parquet)
    rows = _json_rows(ShardSource(folder, index), first)
    return sorted({name for row in rows for name in row})


def by_shard(function: Callable[[int], Part], index: ShardIndex, done: str) -> Iterator[Part]:
    """Call a function for each tar with examples, for a few at once; yield its results in order."""
    shards = np.flatnonzero(np.diff(index.starts)).tolist()
    next_log = time.monotonic() + _LOG_SECONDS
    parts = compute_ahead(function, shards, _SHARDS_AT_ONCE, _SHARDS_AT_ONCE)
    for count, part in enumerate(parts, start=1):
        yield part
        if time.monotonic() > next_log:
            next_log = time.monotonic() + _LOG_SECONDS
            _LOG.info("%s: %s %s of %s shards", index.folder, done, f"{count:,}", f"{len(shards):,}")


def without_metadata(index: ShardIndex) -> int:
    """Count the examples that have no row in the parquet of their tar or, without one, no `.json`."""

    def missing(shard: int) -> int:
        if not parquet_of(index, shard).exists():
            return int((index.meta[index.examples(shard), 1] == 0).sum())
        return int(read_table(ShardSource(index.folder, index), shard, [])["key"].null_count)

    return sum(by_shard(missing, index, "looked for metadata in"))


def read_table(source: ShardSource, shard: int, columns: Sequence[str]) -> pa.Table:
    """Return the key and columns of a tar's metadata, with a row for each example: null where it has none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    index = source.index
    parquet = parquet_of(index, shard)
    if parquet.exists():
        _check_columns(["key", *columns], _schema(parquet), parquet)
        try:
            table = pq.read_table(parquet, columns=sorted({"key", *columns}), use_threads=False)
            return table.take(_rows_of(index, shard, table["key"].combine_chunks()))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{parquet}: not a readable parquet file ({error})") from error
    rows = _json_rows(source, shard)
    known = sorted({name for row in rows for name in row})
    tar = index.folder / index.tars[shard]
    _check_columns(columns, known, tar)
    try:
        return pa.table({name: [row.get(name) for row in rows] for name in sorted({"key", *columns})})
    except (pa.ArrowException, OverflowError, RecursionError) as error:
        raise ValueError(f"{tar}: a metadata column mixes types over its .json files ({error})") from error


def _rows_of(index: ShardIndex, shard: int, known: pa.Array) -> pa.Array:
    """Return, for each example of a tar, where its key is among those of a table; null where it is not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A key as metadata hold it is without folders within the tar.
    names = [key.rpartition("/")[2] for key in index.keys(shard)]
    if pa.types.is_floating(known.type) or pa.types.is_decimal(known.type):  # that are whole
        known = known.cast(pa.int64(), safe=False)
    if pa.types.is_integer(known.type):  # without the leading zeros of a name
        names = [name.lstrip("0") or "0" for name in names]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{index.folder / index.tars[shard]}: two examples share the name by which metadata tell them "
            "apart, which has neither folders nor, where keys are numbers, leading zeros"
        )
    return pc.index_in(pa.array(names, pa.string()), value_set=known.cast(pa.string()))


def parquet_of(index: ShardIndex, shard: int) -> Path:
    """Return the path that a tar's metadata table has, if there is one."""
    return (index.folder / index.tars[shard]).with_suffix(".parquet")


def _schema(parquet: Path) -> list[str]:
    """Return the names of a table's columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(parquet).names)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{parquet}: not a readable parquet file ({error})") from error


def _json_rows(source: ShardSource, shard: int) -> list[dict[str, Any]]:
    """Return the metadata in the `.json` files of a tar's examples, each with its key."""
    rows = []
    examples = source.index.examples(shard)
    keys = source.index.keys(shard)
    for example, key, text in zip(examples, keys, source.metadata(examples), strict=True):
        try:
            row = json.loads(text or b"{}")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{source.index.describe(example)}: its .json is not JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{source.index.describe(example)}: its .json is not an object of columns")
        rows.append({**row, "key": key.rpartition("/")[2]})
    return rows


def _check_columns(columns: Sequence[str], known: Sequence[str], path: Path) -> None:
    """Raise ValueError if the metadata lack a column."""
    if missing := missing_column(columns, known):
        raise ValueError(f"{path}: no metadata {missing}")
