"""Curation by metadata: which examples of a folder of shards satisfy a filter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jestlab.models.data.filters import Filter, missing_column
from jestlab.models.data.shards import ShardIndex, ShardSource

if TYPE_CHECKING:
    import pyarrow as pa


def select(folder: Path, expression: str | None) -> npt.NDArray[np.int64]:
    """The examples whose metadata satisfy a filter.

    Metadata come from the parquet beside each tar, or from the `.json` members of a tar without one. As in
    SQL, a comparison with a missing value is not satisfied.

    Args:
        folder: A folder of shards.
        expression: As of `filters.Filter`: "aesthetic > 5 and noise not in ('blank', 'vague')". None: every
            example.

    Returns:
        int64[k], global example numbers, ascending.

    Raises:
        ValueError: Not such an expression, an unknown column (names the nearest), types that do not compare,
            or nothing left.
    """
    index = ShardIndex.load(folder)
    if expression is None:
        return np.arange(len(index), dtype=np.int64)
    condition = Filter.parse(expression)
    chosen = []
    for shard in range(len(index.tars)):
        examples = np.flatnonzero(index.shard == shard)
        kept = _satisfying(condition, _metadata(index, shard, examples, condition.columns))
        chosen.append(examples[[_key(key) in kept for key in index.keys[examples]]])
    indices = np.concatenate(chosen).astype(np.int64)
    if not len(indices):
        raise ValueError(
            f"filter {condition.text!r}: none of the {len(index)} examples of {folder} satisfies it"
        )
    return indices


def load_metadata(folder: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Metadata columns of every example of a folder, in the order of the examples.

    Args:
        folder: A folder of shards.
        columns: Their names.

    Returns:
        For each column a list of n values, None where missing.

    Raises:
        ValueError: An unknown column.
    """
    index = ShardIndex.load(folder)
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for shard in range(len(index.tars)):
        examples = np.flatnonzero(index.shard == shard)
        table = _metadata(index, shard, examples, columns)
        row_of = {key: row for row, key in enumerate(table["key"].to_pylist())}
        rows = [row_of.get(_key(key)) for key in index.keys[examples]]
        for column in columns:
            cells = table[column].to_pylist()
            values[column] += [None if row is None else cells[row] for row in rows]
    return values


def metadata_columns(folder: Path) -> list[str]:
    """Names of the metadata columns, as the first shard has them; none where its examples lack metadata.

    Args:
        folder: A folder of shards.
    """
    index = ShardIndex.load(folder)
    parquet = _parquet(index, 0)
    if parquet.exists():
        return _schema(parquet)
    rows = _json_rows(index, np.flatnonzero(index.shard == 0))
    return sorted({name for row in rows for name in row})


def _metadata(
    index: ShardIndex, shard: int, examples: npt.NDArray[np.int64], columns: Sequence[str]
) -> pa.Table:
    """The key and the given columns of a tar's metadata: any order, maybe rows of failed downloads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = _parquet(index, shard)
    if parquet.exists():
        _check_columns(["key", *columns], _schema(parquet), parquet)
        try:
            return pq.read_table(parquet, columns=sorted({"key", *columns}))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{parquet}: not a readable parquet file ({error})") from error
    rows = _json_rows(index, examples)
    known = sorted({name for row in rows for name in row})
    _check_columns(columns, known, index.folder / index.tars[shard])
    try:
        return pa.table({name: [row.get(name) for row in rows] for name in sorted({"key", *columns})})
    except pa.ArrowException as error:
        tar = index.folder / index.tars[shard]
        raise ValueError(f"{tar}: a metadata column mixes types over its .json files ({error})") from error


def _parquet(index: ShardIndex, shard: int) -> Path:
    """Where the metadata table of a tar lies, if it has one."""
    return (index.folder / index.tars[shard]).with_suffix(".parquet")


def _schema(parquet: Path) -> list[str]:
    """Names of a table's columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(parquet).names)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{parquet}: not a readable parquet file ({error})") from error


def _json_rows(index: ShardIndex, examples: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """The metadata in the `.json` files of examples, each with its key."""
    rows = []
    for example, text in zip(examples, ShardSource(index.folder).metadata(examples), strict=True):
        try:
            row = json.loads(text or b"{}")
        except ValueError as error:
            raise ValueError(f"{index.describe(example)}: its .json is not JSON ({error})") from error
        rows.append({**row, "key": _key(index.keys[example])})
    return rows


def _satisfying(condition: Filter, table: pa.Table) -> set[str]:
    """The keys of the rows that satisfy a filter."""
    import pyarrow as pa

    try:
        return set(table.filter(condition.compile())["key"].to_pylist())
    except (pa.ArrowException, TypeError) as error:
        types = ", ".join(f"{field.name}: {field.type}" for field in table.schema if field.name != "key")
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"filter {condition.text!r} does not fit the metadata ({types}): {reason}"
        ) from error


def _key(key: bytes) -> str:
    """An example's key as its metadata hold it: without folders within the tar."""
    return key.decode().rpartition("/")[2]


def _check_columns(columns: Sequence[str], known: Sequence[str], path: Path) -> None:
    """Raise for a column that the metadata lack."""
    if missing := missing_column(columns, known):
        raise ValueError(f"{path}: no metadata {missing}")
