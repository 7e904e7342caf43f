"""Curate by metadata: which examples satisfy a filter, and which get synthetic captions."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jestlab.models.config.data import SYNTHETIC_CAPTION
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
from jestlab.models.data.shards import ShardIndex, ShardSource

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_VALUES = 64  # of a column that are told apart
_LOG = logging.getLogger(__name__)


Columns = Mapping[str, npt.NDArray[Any]]
"""Columns beside the metadata, [n] by global example number; NaN where they know nothing."""


def select(folder: Path, expression: str | None, columns: Columns | None = None) -> npt.NDArray[np.int64]:
    """Find the examples whose metadata satisfy a filter.

    Metadata come from the parquet beside each tar, or from the `.json` members of a tar without one. As in
    SQL, a comparison with a missing value is not satisfied: `punsafe < 0.5` drops what was never rated, too.

    Args:
        folder: A folder of shards.
        expression: In the language of `filters`: "aesthetic > 5 and noise not in ('blank', 'vague')". None:
            every example.
        columns: What the filter can read beside the metadata.

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
    beside = {name: values for name, values in (columns or {}).items() if name in condition.columns}

    def chosen(shard: int) -> npt.NDArray[np.int64]:
        table = _with_numbers(source, shard, condition.columns, beside)
        return np.asarray(condition.apply(table)[_NUMBER].to_numpy(), np.int64)

    indices: npt.NDArray[np.int64] = np.concatenate(
        [np.zeros(0, np.int64), *by_shard(chosen, index, "filtered")]
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
        table = _with_numbers(source, shard, [*condition.columns, SYNTHETIC_CAPTION], {})
        table = condition.apply(table)
        cells = table[SYNTHETIC_CAPTION].to_pylist()
        if any(not isinstance(cell, str | None) for cell in cells):
            tar = folder / index.tars[shard]
            raise ValueError(f"{tar}: its metadata column {SYNTHETIC_CAPTION!r} is not all text")
        texts = [(cell or "").strip().encode(errors="replace") for cell in cells]
        return np.asarray(table[_NUMBER].to_numpy(), np.int64), texts

    def build(partial: Path) -> None:
        end = 0
        with (
            (partial / "numbers").open("wb") as numbers,
            (partial / "ends").open("wb") as ends,
            (partial / "text").open("wb") as text,
        ):
            for examples, texts in by_shard(captions, index, "recaptioned"):
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
    index: ShardIndex,
    filter: str | None,
    recaption: str | None,
    columns: Columns | None = None,
    repeat: str | None = None,
    damaged_share: float | None = None,
) -> tuple[npt.NDArray[np.int64] | None, Recaptions | None]:
    """Choose the examples that a run reads, and the captions that it reads them with.

    Args:
        index: Of the folder.
        filter: See `select`.
        recaption: See `recaptions`; None: no example is re-captioned.
        columns: See `select`.
        repeat: See `repeated`; None: every example is read once.
        damaged_share: See `ShardIndex.check`, to do before; None: nothing is checked.

    Returns:
        int64[k], ascending, without those that need a synthetic caption and have none; None for all. And the
        synthetic captions, if there is a condition for them.

    Raises:
        ValueError: As in `select`, `recaptions`, `repeated` and `ShardIndex.check`, or nothing is left.
    """
    if damaged_share is not None:
        names = {*([] if filter is None else Filter.parse(filter).columns), repeat} - {None}
        index.check(damaged_share, without_metadata(index) if names - {*(columns or {})} else 0)
    chosen = None if filter is None else select(index.folder, filter, columns)
    captions = None if recaption is None else recaptions(index.folder, recaption)
    if captions is not None:
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
            chosen = captioned
    return chosen if repeat is None else repeated(index, chosen, repeat, columns), captions


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
    if len(index) > _MOST_COUNTED or not all(parquet_of(index, shard).exists() for shard in shards):
        return None
    return len(select(folder, filter))


def repeated(
    index: ShardIndex, chosen: npt.NDArray[np.int64] | None, column: str, columns: Columns | None = None
) -> npt.NDArray[np.int64]:
    """Repeat chosen examples as often as a column says.

    Args:
        index: Of the folder.
        chosen: int64[k]; None for all.
        column: Of the metadata or of `columns`: whole numbers from 0 on. One that is missing counts as 0.
        columns: See `select`.

    Returns:
        int64[r], ascending, each example as often as it is read in an epoch.

    Raises:
        ValueError: An unknown column, one of other values, or nothing is left.
    """
    if columns and column in columns:
        counts = np.asarray(columns[column], np.float64)
    else:
        cells = load_metadata(index.folder, [column])[column]
        try:
            counts = np.array([np.nan if cell is None else cell for cell in cells], np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"repeat {column!r}: not a column of numbers in {index.folder}") from None
    counts = np.where(np.isnan(counts), 0.0, counts)
    if np.any((counts < 0) | (counts != np.floor(counts)) | ~np.isfinite(counts)):
        raise ValueError(f"repeat {column!r}: its values are not all whole numbers from 0 on")
    examples = np.arange(len(index)) if chosen is None else chosen
    found = np.repeat(examples, counts[examples].astype(np.int64))
    if not len(found):
        raise ValueError(f"repeat {column!r}: none of the {len(examples)} examples is ever read")
    return found


_NUMBER = "\0number"
"""A column that no metadata have: the examples' global numbers."""


def _with_numbers(source: ShardSource, shard: int, names: Sequence[str], beside: Columns) -> pa.Table:
    """Return the numbers of a tar's examples, columns of their metadata, and such as are beside them."""
    import pyarrow as pa

    examples = source.index.examples(shard)
    found = {_NUMBER: pa.array(examples)}
    found |= {name: pa.array(np.asarray(values[examples])) for name, values in beside.items()}
    if own := [name for name in names if name not in beside]:
        table = read_table(source, shard, own)
        found |= {name: table[name] for name in own}
    return pa.table(found)
