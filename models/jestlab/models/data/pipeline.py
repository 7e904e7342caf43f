"""Shards to training batches: shuffled, decoded, tokenised, prefetched, resumable at an exact batch."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jestlab.models.data.curation import Recaptions, choose
from jestlab.models.data.decoded import DecodedImages, ensure_decoded
from jestlab.models.data.images import Pixels, decode
from jestlab.models.data.order import examples_at
from jestlab.models.data.shards import ShardIndex, ShardSource
from jestlab.models.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    import grain

Batch = dict[str, npt.NDArray[Any]]
Ints = npt.NDArray[np.int64]

Lookup = Callable[[Ints], npt.NDArray[Any]]
"""Global example numbers, int64[B], to an array [B, ...] of what is known of them."""

_BATCHES_AHEAD = 4
_FOR_EVER = 2**40  # batches
_MOST_TRIES = 100  # examples tried in one row of a batch
_NAMED = 3  # damaged images that are logged and named in the error
_LOG = logging.getLogger(__name__)


def training_batches(
    folder: Path,
    *,
    filter: str | None,
    recaption: str | None = None,
    tokenizer: Tokenizer,
    image_size: int,
    text_length: int,
    batch_size: int,
    seed: int,
    reference_tokenizer: tuple[Tokenizer, int] | None = None,
    lookups: Mapping[str, Lookup] | None = None,
    rows: slice | None = None,
    threads: int = 1,
    damaged_share: float = 0.01,
    decoded_bytes: int = 0,
) -> grain.DatasetIterator[Batch]:
    """Batches for ever: shuffled anew each epoch, every example once an epoch, batches across its border.

    The iterator's `get_state()` is the number of batches taken, prefetched ones not counted; `set_state()`
    goes on from there with the very same batches.

    An example whose image cannot be decoded gives its row to the one at that row of the next batch, or of the
    first batch after it where that one can: a function of the place in the order alone, so that a resumed run
    and each of several processes agree.

    Args:
        folder: A folder of shards.
        filter: Metadata filter of `curation.select`, or None.
        recaption: Condition on the metadata: examples that satisfy it are read with their synthetic caption,
            and left out where they have none (`curation.recaptions`).
        tokenizer: For the captions.
        image_size: Side in pixels.
        text_length: L, tokens.
        batch_size: B, of the batch that all processes load together.
        seed: Of the order; independent of all other random draws.
        reference_tokenizer: Tokenizer and length of a reference model that reads other tokens.
        lookups: What else is in a batch, by name: each gets the batch's example numbers.
        rows: The rows of each batch that are loaded here; all by default. B is their number below.
        threads: How many batches are loaded at once.
        damaged_share: Largest share of the examples that may be damaged: of all when the index is made, and
            of those read when they are decoded, beyond three standard deviations of chance.
        decoded_bytes: Images that take no more than this when decoded are decoded once, for all runs; the
            batches are the same.

    Returns:
        An iterator of {"image": uint8[B, image_size, image_size, 3], "text": int32[B, L], "index": int64[B],
        "damaged": int64[]}, `index` being the example's global number in the unfiltered folder, and `damaged`
        the number of rows whose first example could not be decoded; with a reference tokenizer also
        "reference_text", and what the lookups give. It raises ValueError, naming shard and example, where
        more than `damaged_share` are damaged.

    Raises:
        ValueError: A bad filter, one that nothing satisfies, or too many damaged examples in the index.
    """
    import grain

    index = ShardIndex.load(folder)
    index.check(damaged_share)
    chosen, captions = choose(index, filter, recaption)
    texts = {"text": (tokenizer, text_length)}
    if reference_tokenizer is not None:
        texts["reference_text"] = reference_tokenizer
    source = ShardSource(folder, index)
    load = _Load(
        source=source,
        decoded=ensure_decoded(source, image_size, decoded_bytes),
        chosen=chosen,
        recaptions=captions,
        texts=texts,
        lookups=lookups or {},
        image_size=image_size,
        batch_size=batch_size,
        rows=np.arange(batch_size)[rows or slice(None)],
        seed=seed,
        damage=_Damage(index, len(index) if chosen is None else len(chosen), damaged_share),
    )
    # Grain knows the numbers of batches alone: each is loaded whole, since per example it costs as much as
    # decoding, and its own shuffle 13 µs besides.
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(_BATCHES_AHEAD, threads))
    return iter(grain.MapDataset.range(_FOR_EVER).map(load).to_iter_dataset(options))


class _Damage:
    """Counts the images that cannot be decoded, each once, and ends the run when they are too many."""

    def __init__(self, index: ShardIndex, examples: int, share: float) -> None:
        self._index = index
        self._examples = examples
        self._share = share
        self._read = 0
        self._errors: dict[int, str] = {}
        self._lock = threading.Lock()

    def count(self, read: int, errors: Mapping[int, str]) -> None:
        """Take in how many examples were read, and what was wrong with some.

        Raises:
            ValueError: More than the share of all examples read so far are damaged, beyond chance.
        """
        with self._lock:
            self._read += read
            for example, error in errors.items():
                if example not in self._errors and len(self._errors) < _NAMED:
                    _LOG.warning("%s: %s: replaced", self._index.describe(example), error)
                self._errors.setdefault(example, error)
            expected = self._share * min(self._read, self._examples)
            if errors and len(self._errors) > math.ceil(expected + 3 * math.sqrt(expected)):
                raise self.error()

    def error(self) -> ValueError:
        """What is damaged, and what to do."""
        read = min(self._read, self._examples)
        first = list(self._errors.items())[:_NAMED]
        named = "; ".join(f"{self._index.describe(example)}: {error}" for example, error in first)
        return ValueError(
            f"{len(self._errors):,} of {read:,} examples read have a damaged image, above "
            f"runtime.damaged_share {self._share:.2%}: {named}: fetch these shards again, or raise "
            "runtime.damaged_share"
        )


class _Load:
    """The number of a batch to the batch."""

    def __init__(
        self,
        *,
        source: ShardSource,
        decoded: DecodedImages | None,
        chosen: Ints | None,
        recaptions: Recaptions | None,
        texts: Mapping[str, tuple[Tokenizer, int]],
        lookups: Mapping[str, Lookup],
        image_size: int,
        batch_size: int,
        rows: Ints,
        seed: int,
        damage: _Damage,
    ) -> None:
        self.source = source
        self.decoded = decoded
        self.chosen = chosen
        self.recaptions = recaptions
        self.texts = texts
        self.lookups = lookups
        self.image_size = image_size
        self.batch_size = batch_size
        self.rows = rows
        self.seed = seed
        self.damage = damage

    def __call__(self, number: int) -> Batch:
        index, images, damaged = self._decoded(number * self.batch_size + self.rows)
        captions = self.source.captions(index)
        if self.recaptions is not None:
            self.recaptions.replace(index, captions)
        texts = {name: tokenizer(captions, length) for name, (tokenizer, length) in self.texts.items()}
        found = {name: lookup(index) for name, lookup in self.lookups.items()}
        return {"image": images, "index": index, "damaged": np.array(damaged, np.int64), **texts, **found}

    def _examples_at(self, positions: Ints) -> Ints:
        """The global numbers of the examples at some places of the order."""
        count = len(self.source) if self.chosen is None else len(self.chosen)
        places = examples_at(positions, count, self.seed)
        return places if self.chosen is None else self.chosen[places]

    def _decoded(self, positions: Ints) -> tuple[Ints, Pixels, int]:
        """Example numbers and images at some places of the order, and how many places had to be filled from
        later batches."""
        index = self._examples_at(positions)
        images = np.empty((len(index), self.image_size, self.image_size, 3), np.uint8)
        rows, damaged = np.arange(len(index)), 0
        for attempt in range(_MOST_TRIES):
            rows = rows[np.argsort(index[rows])]  # as they lie in the shards
            errors: dict[int, str] = {}
            failed = []
            left = rows if self.decoded is None else self.decoded.fill(index[rows], images, rows)
            for row, file in zip(left.tolist(), self.source.images(index[left]), strict=True):
                try:
                    images[row] = decode(file, self.image_size)
                except ValueError as error:
                    errors[int(index[row])] = str(error)
                    failed.append(row)
            self.damage.count(len(rows), errors)
            if not failed:
                return index, images, damaged
            damaged = damaged if attempt else len(failed)
            # NOTE: footgun: the next place of the order is another row of this very batch.
            rows = np.array(failed)
            positions[rows] += self.batch_size
            index[rows] = self._examples_at(positions[rows])
        raise self.damage.error()
