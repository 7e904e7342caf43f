"""Load training batches from shards, resumable at an exact batch.

The order of the examples is a permutation per epoch that is computed where it is needed and never stored.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.data.augmentation import Augmenter
from jestlab.models.data.curation import Columns, Recaptions, choose
from jestlab.models.data.images import DecodedImages, Pixels, ensure_decoded, read_images
from jestlab.models.data.shards import ShardIndex, ShardSource
from jestlab.models.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    import grain


_ROUNDS = 12
_FEW = 8  # examples: some permutations of so few are beyond the reach of the network's rounds

Words = npt.NDArray[np.uint64]


def examples_at(positions: npt.NDArray[np.int64], count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the examples at positions of an endless order that is shuffled anew each epoch.

    Args:
        positions: int64[k], counted from the start of training; epoch e begins at e · `count`.
        count: Number of examples, at least 1.
        seed: Of the order.

    Returns:
        int64[k], each from 0 to `count` − 1.
    """
    epochs, places = np.divmod(positions, count)
    examples = np.empty_like(places)
    for epoch in np.unique(epochs).tolist():
        within = epochs == epoch
        examples[within] = permute(places[within], count, seed, epoch)
    return examples


def permute(places: npt.NDArray[np.int64], count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Permute 0 … `count` − 1, and return where some of these numbers go.

    A Feistel network over pairs (i, j) with i < a, j < b and a · b just above `count`: each round adds a hash
    of one part to the other, which can be undone, so the network permutes all pairs. A result beyond `count`
    is put through the network again until it is below, which gives a permutation of the numbers below. Up to
    eight examples are ranked by random words instead: the network's permutations of so few are not uniform.

    Args:
        places: int64[k], each from 0 to `count` − 1, as what is returned.
        count: Size of the permuted set.
        seed: With `epoch`, decides the permutation.
        epoch: Any number.

    Source:
        Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002: generalised Feistel network
        and cycle walking.
    """
    if count <= _FEW:
        return np.argsort(_words(seed, epoch, count))[places]
    b = math.isqrt(count - 1) + 1
    a = -(-count // b)
    keys = _words(seed, epoch, _ROUNDS).reshape(-1, 2)
    found = _network(places.astype(np.uint64), a, b, keys)
    while len(beyond := np.flatnonzero(found >= count)):
        found[beyond] = _network(found[beyond], a, b, keys)
    return found.astype(np.int64)


def _network(numbers: Words, a: int, b: int, keys: Words) -> Words:
    """Apply all rounds of the network to numbers below a · b."""
    i, j = np.divmod(numbers, np.uint64(b))
    for key_i, key_j in keys:
        i = (i + _hash(j, key_i)) % np.uint64(a)
        j = (j + _hash(i, key_j)) % np.uint64(b)
    return i * np.uint64(b) + j


def _hash(values: Words, key: np.uint64) -> Words:
    """Return 32 bits that depend on all bits of value and key: the finaliser of splitmix64, shortened."""
    mixed = (values ^ key) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed >> np.uint64(32)


@functools.lru_cache(maxsize=16)
def _words(seed: int, epoch: int, count: int) -> Words:
    """Return random 64-bit words that belong to an epoch."""
    return np.random.SeedSequence([seed, epoch]).generate_state(count, np.uint64).astype(np.uint64)


Batch = dict[str, npt.NDArray[Any]]
Ints = npt.NDArray[np.int64]

Lookup = Callable[[Ints], npt.NDArray[Any]]
"""Global example numbers, int64[B], to an array [B, ...] of what is known of them."""


class Later(NamedTuple):
    """How batches are from one of them on.

    Attributes:
        first: Number of the first such batch, counted from 0.
        batch_size: Of the batch that all processes load together.
        rows: The rows of each batch that are loaded here.
    """

    first: int
    batch_size: int
    rows: slice


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
    repeat: str | None = None,
    columns: Columns | None = None,
    tokenizer: Tokenizer,
    image_size: int,
    text_length: int,
    batch_size: int,
    together: int = 1,
    seed: int,
    flip: float = 0.0,
    crop: float = 1.0,
    reference_tokenizer: tuple[Tokenizer, int] | None = None,
    lookups: Mapping[str, Lookup] | None = None,
    rows: slice | None = None,
    later: Later | None = None,
    threads: int = 1,
    damaged_share: float = 0.01,
    decoded_bytes: int = 0,
) -> grain.DatasetIterator[Batch]:
    """Iterate over batches endlessly: reshuffled each epoch, every example once per epoch; a batch may span
    two epochs.

    The iterator's `get_state()` is the number of batches taken, without prefetched ones; `set_state()`
    resumes from there with exactly the same batches.

    An example whose image cannot be decoded is replaced by the one in the same row of the next batch, or of
    the first later batch where that one can be decoded. This depends on the position in the order alone, so
    that a resumed run and each of several processes agree.

    Args:
        folder: A folder of shards.
        filter: Metadata filter of `curation.select`, or None.
        recaption: Condition on the metadata: examples that satisfy it are read with their synthetic caption,
            and left out where they have none (`curation.recaptions`).
        repeat: Column that says how often an example is read in an epoch (`curation.repeated`); None: once.
        columns: What `filter` and `repeat` can read beside the metadata.
        tokenizer: For the captions.
        image_size: Side in pixels.
        text_length: L, tokens.
        batch_size: B, of the batch that all processes load together.
        together: Number of examples that are compared with each other, which have to be different ones.
        seed: Of the order and of what is done to the images; independent of all other random draws.
        flip: See `Augmenter`, as `crop`.
        reference_tokenizer: Tokenizer and length of a reference model that reads other tokens.
        lookups: Functions for further arrays of a batch, by name; each gets the batch's example numbers.
        rows: The rows of each batch that are loaded here; all by default. B is their number below.
        later: From which batch on their size is another one. The order of the examples stays the same.
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
        ValueError: A bad filter, one that leaves fewer than `together` examples, a `repeat` that fills more
            than half of a batch with copies, or too many damaged examples in the index.
    """
    import grain

    index = ShardIndex.load(folder)
    chosen, captions = choose(index, filter, recaption, columns, repeat, damaged_share)
    tokenizers = {"text": (tokenizer, text_length)}
    if reference_tokenizer is not None:
        tokenizers["reference_text"] = reference_tokenizer
    source = ShardSource(folder, index)
    decoded = ensure_decoded(source, image_size, decoded_bytes)
    left = np.arange(len(index)) if chosen is None else np.unique(chosen)
    different = len(left) if decoded is None else int(decoded.whole[left].sum())
    if different < together:
        raise ValueError(
            f"a batch of {together:,} examples is larger than the training set: {different:,} different "
            f"examples of {folder} can be read: lower the batch size, or train on more data"
        )
    rows_here = np.arange(batch_size)[rows or slice(None)]
    changes = flip > 0.0 or crop < 1.0
    first = _Load(
        source=source,
        decoded=decoded,
        chosen=chosen,
        texts=_Texts(source, captions, tokenizers),
        lookups=lookups or {},
        image_size=image_size,
        batch_size=batch_size,
        rows=rows_here,
        seed=seed,
        augment=Augmenter(flip, crop, batch_size, rows_here, seed) if changes else None,
        damage=_Damage(index, len(index) if chosen is None else len(chosen), damaged_share),
    )
    of_a_batch = len(np.unique(first.examples_at(np.arange(together))))
    if 2 * of_a_batch < together:
        raise ValueError(
            f"repeat {repeat!r}: a batch of {together:,} examples of {folder} would have {of_a_batch:,} "
            "different ones, and copies of them: lower its largest values, or the batch size"
        )
    after = None if later is None else first.later(later)

    def load(number: int) -> Batch:
        return (first if after is None or number < after.first else after)(number)

    # Grain knows the numbers of batches alone: each is loaded whole, since per example it costs as much as
    # decoding, and its own shuffle would add 13 µs.
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(_BATCHES_AHEAD, threads))
    return iter(grain.MapDataset.range(_FOR_EVER).map(load).to_iter_dataset(options))


class _Damage:
    """Counts the images that cannot be decoded, each once, and ends the run when there are too many."""

    def __init__(self, index: ShardIndex, examples: int, share: float) -> None:
        self._index = index
        self._examples = examples
        self._share = share
        self._read = 0
        self._errors: dict[int, str] = {}
        self._lock = threading.Lock()

    def count(self, read: int, errors: Mapping[int, str]) -> None:
        """Count how many examples were read, and which of them are damaged.

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
        """Return the error that names what is damaged and what to do."""
        read = min(self._read, self._examples)
        first = list(self._errors.items())[:_NAMED]
        named = "; ".join(f"{self._index.describe(example)}: {error}" for example, error in first)
        return ValueError(
            f"{len(self._errors):,} of {read:,} examples read have a damaged image, above "
            f"runtime.damaged_share {self._share:.2%}: {named}: fetch these shards again, or raise "
            "runtime.damaged_share"
        )


_TOKENS_AT_MOST = 2**25  # that are remembered: 128 MiB


class _Texts:
    """The captions as tokens: each caption is read and tokenised once, if there are few enough."""

    def __init__(
        self,
        source: ShardSource,
        recaptions: Recaptions | None,
        tokenizers: Mapping[str, tuple[Tokenizer, int]],
    ) -> None:
        self._source, self._recaptions, self._tokenizers = source, recaptions, tokenizers
        self._known: npt.NDArray[np.bool_] | None = None
        if len(source) * sum(length for _, length in tokenizers.values()) <= _TOKENS_AT_MOST:
            self._known = np.zeros(len(source), np.bool_)
            self._tokens = {
                name: np.empty((len(source), length), np.int32) for name, (_, length) in tokenizers.items()
            }

    def __call__(self, index: Ints) -> dict[str, npt.NDArray[np.int32]]:
        """Return the tokens of examples, int64[k], for each tokenizer: int32[k, L]."""
        if self._known is None:
            return self._read(index)
        new = index[~self._known[index]]
        if len(new):
            for name, tokens in self._read(new).items():
                self._tokens[name][new] = tokens
            self._known[new] = True  # last: another thread may read them now
        return {name: tokens[index] for name, tokens in self._tokens.items()}

    def _read(self, index: Ints) -> dict[str, npt.NDArray[np.int32]]:
        captions = self._source.captions(index)
        if self._recaptions is not None:
            self._recaptions.replace(index, captions)
        return {name: tokenizer(captions, length) for name, (tokenizer, length) in self._tokenizers.items()}


@dataclass(frozen=True)
class _Load:
    """Maps the number of a batch to the batch."""

    source: ShardSource
    decoded: DecodedImages | None
    chosen: Ints | None
    texts: _Texts
    lookups: Mapping[str, Lookup]
    image_size: int
    batch_size: int
    rows: Ints
    seed: int
    augment: Augmenter | None
    damage: _Damage
    first: int = 0  # number of its first batch
    start: int = 0  # position of that in the order

    def later(self, later: Later) -> _Load:
        """Return what loads from a batch on that this one still could."""
        rows = np.arange(later.batch_size)[later.rows]
        augment = self.augment and replace(self.augment, batch_size=later.batch_size, rows=rows)
        start = later.first * self.batch_size
        return replace(
            self, batch_size=later.batch_size, rows=rows, augment=augment, first=later.first, start=start
        )

    def __call__(self, number: int) -> Batch:
        index, images, damaged = self._decoded(
            self.start + (number - self.first) * self.batch_size + self.rows
        )
        if self.augment is not None:
            self.augment(number, images)
        found = {name: lookup(index) for name, lookup in self.lookups.items()}
        return {
            "image": images,
            "index": index,
            "damaged": np.array(damaged, np.int64),
            **self.texts(index),
            **found,
        }

    def examples_at(self, positions: Ints) -> Ints:
        """Return the global numbers of the examples at some positions of the order."""
        count = len(self.source) if self.chosen is None else len(self.chosen)
        places = examples_at(positions, count, self.seed)
        return places if self.chosen is None else self.chosen[places]

    def _decoded(self, positions: Ints) -> tuple[Ints, Pixels, int]:
        """Return example numbers and images at some positions of the order, and how many positions had to be
        filled from later batches."""
        index = self.examples_at(positions)
        images = np.empty((len(index), self.image_size, self.image_size, 3), np.uint8)
        rows, damaged = np.arange(len(index)), 0
        for attempt in range(_MOST_TRIES):
            rows = rows[np.argsort(index[rows])]  # in the order of the shards
            failed = read_images(self.source, self.decoded, index[rows], images, rows)
            self.damage.count(len(rows), {int(index[row]): error for row, error in failed.items()})
            if not failed:
                return index, images, damaged
            damaged = damaged if attempt else len(failed)
            # NOTE: footgun: the next place of the order is another row of this very batch.
            rows = np.array(list(failed))
            positions[rows] += self.batch_size
            index[rows] = self.examples_at(positions[rows])
        raise self.damage.error()
