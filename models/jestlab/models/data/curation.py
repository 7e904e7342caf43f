"""Curate by metadata: which examples satisfy a filter, and which get synthetic captions."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from jestlab.models.config.data import SYNTHETIC_CAPTION
from jestlab.models.data.files import compute_ahead, map_array, open_derived, shard_files
from jestlab.models.data.filters import Filter, missing_column
from jestlab.models.data.shards import ShardIndex, ShardSource

if TYPE_CHECKING:
    import pyarrow as pa

_SHARDS_AT_ONCE = 4
_LOG_SECONDS = 10.0
_MOST_VALUES = 64  # of a column that are told apart
_LOG = logging.getLogger(__name__)

Part = TypeVar("Part")


def select(folder: Path, expression: str | None) -> npt.NDArray[np.int64]:
    """Find the examples whose metadata satisfy a filter.

    Metadata come from the parquet beside each tar, or from the `.json` members of a tar without one. As in
    SQL, a comparison with a missing value is not satisfied: `punsafe < 0.5` drops what was never rated, too.

    Args:
        folder: A folder of shards.
        expression: In the language of `filters`: "aesthetic > 5 and noise not in ('blank', 'vague')". None:
            every example.

    Returns:
        int64[k], global example numbers, ascending.

    Raises:
        ValueError: The expression is invalid, a column is unknown (the nearest is named), types do not
            compare, or nothing is left.
    """
    index = ShardIndex.load(folder)
    if expression is None:
        return np.arange(len(index), dtype=np.int64)
    condition = Filter.parse(expression)
    source = ShardSource(folder, index)

    def chosen(shard: int) -> npt.NDArray[np.int64]:
        table = _satisfying(condition, _metadata(source, shard, condition.columns))
        return index.examples(shard)[_rows_of(index, shard, table) >= 0]

    indices: npt.NDArray[np.int64] = np.concatenate(
        [np.zeros(0, np.int64), *_by_shard(chosen, index, "filtered")]
    )
    if not len(indices):
        raise ValueError(
            f"filter {condition.text!r}: none of the {len(index)} examples of {folder} satisfies it"
        )
    return indices


@dataclass(frozen=True)
class Recaptions:
    """The synthetic captions of the examples that satisfy a condition, memory-mapped.

    Attributes:
        numbers: int64[m], the examples that satisfy it, ascending.
        ends: int64[m], where each one's caption ends in `text`; an empty one is missing.
        text: uint8[t], the captions one after the other, in UTF-8.
    """

    numbers: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    text: npt.NDArray[np.uint8]

    def missing(self) -> npt.NDArray[np.int64]:
        """Return the examples that satisfy the condition and have no synthetic caption, ascending."""
        starts = np.concatenate([np.zeros(1, np.int64), self.ends[:-1]])
        missing: npt.NDArray[np.int64] = self.numbers[self.ends == starts[: len(self.ends)]]
        return missing

    def replace(self, index: npt.NDArray[np.int64], captions: list[str]) -> None:
        """Replace, in place, the captions of those of k examples, int64[k], that satisfy the condition."""
        places = np.searchsorted(self.numbers, index)
        found = self.numbers[np.minimum(places, len(self.numbers) - 1)] == index if len(self.numbers) else ()
        for row in np.flatnonzero(found).tolist():
            place = int(places[row])
            start = self.ends[place - 1] if place else 0
            captions[row] = self.text[start : self.ends[place]].tobytes().decode()


def recaptions(folder: Path, expression: str) -> Recaptions:
    """Load the synthetic captions of a folder's examples that satisfy a condition, as in WebLI-curated++.

    There, every pair whose image–text alignment is below the threshold is re-captioned. One without a
    synthetic caption does not belong to it: the pipeline leaves it out. Captions are read once, tar by tar,
    and kept beside the index.

    Args:
        folder: A folder of shards whose metadata have the column `synthetic_caption`.
        expression: In the language of `filters`: "similarity < 0.3".

    Returns:
        The captions; white space alone counts as missing.

    Raises:
        ValueError: As in `select`, or there is no such column of text. It is not an error if nothing
            satisfies the condition.

    Source:
        Section 4.4, "Scaling data curation".
    """
    index = ShardIndex.load(folder)
    condition = Filter.parse(expression)
    source = ShardSource(folder, index)

    def captions(shard: int) -> tuple[npt.NDArray[np.int64], list[bytes]]:
        table = _satisfying(condition, _metadata(source, shard, [*condition.columns, SYNTHETIC_CAPTION]))
        rows = _rows_of(index, shard, table)
        cells = table[SYNTHETIC_CAPTION].to_pylist()
        if any(not isinstance(cell, str | None) for cell in cells):
            tar = folder / index.tars[shard]
            raise ValueError(f"{tar}: its metadata column {SYNTHETIC_CAPTION!r} is not all text")
        chosen = np.flatnonzero(rows >= 0)
        texts = [(cells[row] or "").strip().encode(errors="replace") for row in rows[chosen].tolist()]
        return index.examples(shard)[chosen], texts

    def build(partial: Path) -> None:
        end = 0
        with (
            (partial / "numbers").open("wb") as numbers,
            (partial / "ends").open("wb") as ends,
            (partial / "text").open("wb") as text,
        ):
            for examples, texts in _by_shard(captions, index, "recaptioned"):
                numbers.write(examples.tobytes())
                stops = end + np.cumsum([len(content) for content in texts], dtype=np.int64)
                ends.write(stops.tobytes())
                text.write(b"".join(texts))
                end = int(stops[-1]) if texts else end

    state = hashlib.sha256(f"{condition.text}\n{index.signature}\n".encode())
    for path, stat in shard_files(folder, (".parquet",)):
        state.update(f"{path.as_posix()} {stat.st_size} {stat.st_mtime_ns}\n".encode())

    def load(kept: Path) -> Recaptions:
        numbers, ends = (map_array(kept / name, np.int64) for name in ("numbers", "ends"))
        text = map_array(kept / "text", np.uint8, (int(ends[-1]) if len(ends) else 0,))
        if len(numbers) != len(ends):
            raise ValueError("numbers and ends differ in length")
        return Recaptions(numbers, ends, text)

    return open_derived(folder, f"recaptions-{state.hexdigest()[:16]}", build, load)


def choose(
    index: ShardIndex, filter: str | None, recaption: str | None
) -> tuple[npt.NDArray[np.int64] | None, Recaptions | None]:
    """Choose the examples that a run reads, and the captions that it reads them with.

    Args:
        index: Of the folder.
        filter: See `select`.
        recaption: See `recaptions`; None: no example is re-captioned.

    Returns:
        int64[k], ascending, without those that need a synthetic caption and have none; None for all. And the
        synthetic captions, if there is a condition for them.

    Raises:
        ValueError: As in `select` and `recaptions`, or nothing is left.
    """
    chosen = None if filter is None else select(index.folder, filter)
    if recaption is None:
        return chosen, None
    captions = recaptions(index.folder, recaption)
    everything = np.arange(len(index)) if chosen is None else chosen
    captioned = np.setdiff1d(everything, captions.missing(), assume_unique=True)
    if not len(captioned):
        raise ValueError(
            f"recaption {recaption!r}: none of the {len(everything)} examples of {index.folder} "
            "that it is to re-caption has a synthetic caption"
        )
    if missing := len(everything) - len(captioned):
        _LOG.warning(
            "%s: examples left out because they have no synthetic caption: %d", index.folder, missing
        )
        return captioned, captions
    return chosen, captions


def load_metadata(folder: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Load metadata columns of a folder of shards: for each a list of n values, None where missing.

    Raises:
        ValueError: An unknown column.
    """
    index = ShardIndex.load(folder)
    source = ShardSource(folder, index)

    def cells(shard: int) -> list[list[Any]]:
        table = _metadata(source, shard, columns)
        rows = _rows_of(index, shard, table).tolist()
        found = (table[name].to_pylist() for name in columns)
        return [[None if row < 0 else column[row] for row in rows] for column in found]

    parts = list(_by_shard(cells, index, "read metadata"))
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
        parquet = _parquet(index, shard)
        known = [name for name in columns if parquet.exists() and name in _schema(parquet)]
        if not known:
            continue
        table = _metadata(source, shard, known)
        rows = _rows_of(index, shard, table)
        found = {name: table[name].to_pylist() for name in known}
        for place in np.flatnonzero(~has_json & (shards == shard)).tolist():
            number = int(rows[examples[place] - index.starts[shard]])
            for name in known if number >= 0 else ():
                cells[name][place] = found[name][number]
    return cells


def shares_by_value(
    source: ShardSource, columns: Sequence[str], examples: Mapping[str, npt.NDArray[np.int64]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Count examples by the values of metadata columns, as shares.

    Args:
        source: The folder.
        columns: Their names.
        examples: What some examples are called → their global numbers, int64[k].

    Returns:
        Column → value → called → share. Of a column with many values the most frequent are told apart, the
        others are `others`; a value that is not there is `missing`, and a column that nothing has is left
        out.
    """
    ends = np.cumsum([len(numbers) for numbers in examples.values()])[:-1]
    found = {}
    for column, values in metadata_of(source, np.concatenate([*examples.values()]), columns).items():
        if all(value is None for value in values):
            continue
        texts = np.array(["missing" if value is None else str(value) for value in values], object)
        frequent = [text for text, _ in Counter(texts).most_common(_MOST_VALUES)]
        texts[~np.isin(texts, frequent)] = "others"
        parts = dict(zip(examples, np.split(texts, ends), strict=True))
        found[column] = {
            value: {called: float(np.mean(part == value)) for called, part in parts.items()}
            for value in dict.fromkeys(texts)
        }
    return found


def metadata_columns(folder: Path) -> list[str]:
    """Return the names of the metadata columns in the first shard; none if its examples lack metadata."""
    index = ShardIndex.load(folder)
    first = int(index.shard(np.array(0)))
    parquet = _parquet(index, first)
    if parquet.exists():
        return _schema(parquet)
    rows = _json_rows(ShardSource(folder, index), first)
    return sorted({name for row in rows for name in row})


_MOST_COUNTED = 2_000_000
"""So many examples of a folder are filtered to count them: a matter of seconds."""


def count_examples(folder: Path, filter: str | None) -> int | None:
    """Count the examples of a folder of shards that satisfy a filter, if that is quickly done.

    Args:
        folder: The folder.
        filter: See `select`; None: all count.

    Returns:
        Their number; None where metadata are in the tars themselves, or there are millions of examples.

    Raises:
        ValueError: As in `select`.
    """
    index = ShardIndex.load(folder)
    if filter is None:
        return len(index)
    shards = range(len(index.tars))
    if len(index) > _MOST_COUNTED or not all(_parquet(index, shard).exists() for shard in shards):
        return None
    return len(select(folder, filter))


def _by_shard(function: Callable[[int], Part], index: ShardIndex, done: str) -> Iterator[Part]:
    """Call a function for each tar with examples, for a few at once; yield its results in order."""
    shards = np.flatnonzero(np.diff(index.starts)).tolist()
    next_log = time.monotonic() + _LOG_SECONDS
    parts = compute_ahead(function, shards, _SHARDS_AT_ONCE, _SHARDS_AT_ONCE)
    for count, part in enumerate(parts, start=1):
        yield part
        if time.monotonic() > next_log:
            next_log = time.monotonic() + _LOG_SECONDS
            _LOG.info("%s: %s %s of %s shards", index.folder, done, f"{count:,}", f"{len(shards):,}")


def _rows_of(index: ShardIndex, shard: int, table: pa.Table) -> npt.NDArray[np.int64]:
    """Return, for each example of a tar, its row in a table with keys; −1 where it has none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A key as metadata hold it is without folders within the tar.
    names = [key.rpartition("/")[2] for key in index.keys(shard)]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{index.folder / index.tars[shard]}: two examples in different folders of the tar share a name, "
            "so that metadata do not tell them apart"
        )
    keys = pa.array(names, pa.string())
    known = table["key"].combine_chunks().cast(pa.string())
    rows: npt.NDArray[np.int64] = (
        pc.fill_null(pc.index_in(keys, value_set=known), -1).to_numpy().astype(np.int64)
    )
    return rows


def _metadata(source: ShardSource, shard: int, columns: Sequence[str]) -> pa.Table:
    """Return the key and the given columns of a tar's metadata, in any order, maybe with rows of failed
    downloads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    index = source.index
    parquet = _parquet(index, shard)
    if parquet.exists():
        _check_columns(["key", *columns], _schema(parquet), parquet)
        try:
            return pq.read_table(parquet, columns=sorted({"key", *columns}), use_threads=False)
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


def _parquet(index: ShardIndex, shard: int) -> Path:
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


def _satisfying(condition: Filter, table: pa.Table) -> pa.Table:
    """Return the rows that satisfy a filter."""
    import pyarrow as pa

    try:
        return table.filter(condition.compile(table.schema))
    except (pa.ArrowException, TypeError) as error:
        types = ", ".join(
            f"{field.name}: {field.type}" for field in table.schema if field.name in condition.columns
        )
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"filter {condition.text!r} does not fit the metadata ({types}): {reason}"
        ) from error


def _check_columns(columns: Sequence[str], known: Sequence[str], path: Path) -> None:
    """Raise ValueError if the metadata lack a column."""
    if missing := missing_column(columns, known):
        raise ValueError(f"{path}: no metadata {missing}")
