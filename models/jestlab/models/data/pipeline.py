"""Load training batches: order examples, replace damaged images, tokenize captions, resume at an exact batch.

The order of the examples is a permutation per epoch, computed where it is needed and never stored.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jestlab.models.config import Augmentation, Data, TwoTowers
from jestlab.models.config.base import LoaderRuntime
from jestlab.models.data.augmentation import augment
from jestlab.models.data.curation import Columns, Recaptions, choose
from jestlab.models.data.images import Pixels, ensure_decoded, read_images
from jestlab.models.data.shards import Ints, ShardIndex
from jestlab.models.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    import grain

Batch = dict[str, npt.NDArray[Any]]
Words = npt.NDArray[np.uint64]

Lookup = Callable[[Ints], npt.NDArray[Any]]
"""Global example numbers, int64[B] → an array [B, ...] with a row for each."""

_UNCHANGED = Augmentation()
_ROUNDS = 12
_FEW = 8  # examples: the network's rounds cannot reach some permutations of so few
_BATCHES_AHEAD = 4
_FOREVER = 2**40  # batches
_MOST_TRIES = 100  # examples tried in one row of a batch
_NAMED = 3  # damaged images that are logged and named in the error
_MOST_TOKENS = 2**25  # that are stored: 128 MiB
_LOG = logging.getLogger(__name__)


class BatchLayout(NamedTuple):
    """The layout of batches, from batch `first` on.

    Attributes:
        first: Number of the first such batch, counted from 0.
        batch_size: Of the batch that all processes load together.
        rows: The rows of each batch that this process loads.
    """

    first: int
    batch_size: int
    rows: slice


def training_batches(
    folder: Path,
    data: Data,
    towers: TwoTowers,
    runtime: LoaderRuntime,
    *,
    columns: Columns | None = None,
    tokenizer: Tokenizer,
    batch_size: int,
    together: int = 1,
    seed: int,
    augmentation: Augmentation = _UNCHANGED,
    reference_tokenizer: tuple[Tokenizer, int] | None = None,
    lookups: Mapping[str, Lookup] | None = None,
    rows: slice | None = None,
    later: BatchLayout | None = None,
    decoded_bytes: int = 0,
) -> grain.DatasetIterator[Batch]:
    """Iterate over batches endlessly: reshuffled each epoch, every example once per epoch; a batch may span
    two epochs.

    The iterator's `get_state()` is the number of batches taken, without prefetched ones; `set_state()`
    resumes from there with exactly the same batches.

    An example whose image cannot be decoded is replaced by the one in the same row of the next batch, or of
    the first later batch where that one can be decoded. This depends only on the position in the order, so
    resumed runs and all processes agree.

    Args:
        folder: The shards of `data.train`.
        data: Which examples are read; see `curation.choose`, as `columns`.
        towers: The sizes of images and texts.
        runtime: Its threads load one batch each. Its share of damaged examples is of all when the index is
            made, and of those read when they are decoded, beyond three standard deviations of chance.
        batch_size: B, of the batch that all processes load together.
        together: Number of examples that are compared with each other, and must be different.
        seed: Of the order and of augmentations; independent of all other random draws.
        reference_tokenizer: Tokenizer and length in tokens of a reference model with another tokenizer.
        lookups: Functions for more arrays of a batch, by name.
        rows: The rows of each batch that this process loads; all by default. B is their number below.
        later: The layout from some batch on. The order of the examples stays the same.
        decoded_bytes: Maximum size of all images at which they are decoded once for all runs.

    Returns:
        An iterator of batches with the keys of `training.step.Batch`: {"image": uint8[B, image_size,
        image_size, 3], "text": int32[B, L], "index": int64[B]}; also "reference_text" with a reference
        tokenizer, and the lookups. `index` is the example's global number in the unfiltered folder; the loop
        passes it to the step as uint32. It raises ValueError if more than `damaged_share` are damaged.

    Raises:
        ValueError: The filter is invalid or leaves fewer than `together` examples, `repeat` fills more than
            half of a batch with copies, or too many examples in the index are damaged.
    """
    import grain

    index, share = ShardIndex.load(folder), runtime.damaged_share
    chosen, captions = choose(index, data, columns, repeats=True, damaged_share=share)
    images = _Images(index, chosen, seed, towers.vision.image_size, share, decoded_bytes)
    left = np.arange(len(index)) if chosen is None else np.unique(chosen)
    different = len(left) if images.decoded is None else int(images.decoded.whole[left].sum())
    if different < together:
        raise ValueError(
            f"a batch of {together:,} examples is larger than the training set: {different:,} different "
            f"examples of {folder} can be read: lower the batch size, or train on more data"
        )
    of_a_batch = len(np.unique(images.numbers(np.arange(together))))
    if 2 * of_a_batch < together:
        raise ValueError(
            f"repeat {data.repeat!r}: a batch of {together:,} examples of {folder} would have {of_a_batch:,} "
            "different ones, and copies of them: lower its largest values, or the batch size"
        )
    tokenizers = {"text": (tokenizer, towers.text.length)}
    if reference_tokenizer is not None:
        tokenizers["reference_text"] = reference_tokenizer
    texts = _Texts(index, captions, tokenizers)
    from_start = BatchLayout(0, batch_size, rows or slice(None))

    def load(number: int) -> Batch:
        layout = from_start if later is None or number < later.first else later
        here = np.arange(layout.batch_size)[layout.rows]
        start = layout.first * batch_size + (number - layout.first) * layout.batch_size
        examples, pixels = images(start + here, layout.batch_size)
        if augmentation != _UNCHANGED:
            size = layout.batch_size
            augment(pixels, number, augmentation, batch_size=size, rows=here, seed=seed)
        found = {name: lookup(examples) for name, lookup in (lookups or {}).items()}
        return {"image": pixels, "index": examples, **texts(examples), **found}

    # Grain sees only the numbers of batches, and each is loaded as a whole: per example, Grain costs as
    # much as decoding, and Grain's shuffle would add 13 µs.
    threads = runtime.loader_threads
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(_BATCHES_AHEAD, threads))
    return iter(grain.MapDataset.range(_FOREVER).map(load).to_iter_dataset(options))


class _Images:
    """Decodes the images at positions of the order; replaces and counts those that cannot be decoded."""

    def __init__(
        self, source: ShardIndex, chosen: Ints | None, seed: int, size: int, share: float, budget: int
    ) -> None:
        self.decoded = ensure_decoded(source, size, budget)
        self._source, self._chosen, self._seed, self._size, self._share = source, chosen, seed, size, share
        self._examples = len(source) if chosen is None else len(chosen)
        self._read = 0
        self._errors: dict[int, str] = {}  # of each damaged example
        self._lock = threading.Lock()

    def numbers(self, positions: Ints) -> Ints:
        """Return the global numbers of the examples at some positions of the order."""
        places = examples_at(positions, self._examples, self._seed)
        return places if self._chosen is None else self._chosen[places]

    def __call__(self, positions: Ints, batch_size: int) -> tuple[Ints, Pixels]:
        """Return example numbers and images; for a damaged image, the one `batch_size` positions later.

        Raises:
            ValueError: More than the share of all examples read so far are damaged, beyond chance.
        """
        index = self.numbers(positions)
        images = np.empty((len(index), self._size, self._size, 3), np.uint8)
        rows = np.arange(len(index))
        for _ in range(_MOST_TRIES):
            rows = rows[np.argsort(index[rows])]  # in the order of the shards
            failed = read_images(self._source, self.decoded, index[rows], images, rows)
            self._count(len(rows), {int(index[row]): error for row, error in failed.items()})
            if not failed:
                return index, images
            # NOTE: The next position of the order is another row of the same batch.
            rows = np.array(list(failed))
            positions[rows] += batch_size
            index[rows] = self.numbers(positions[rows])
        raise self._error()

    def _count(self, read: int, errors: Mapping[int, str]) -> None:
        """Count the examples that were read, and each damaged one once; raise if these are too many."""
        with self._lock:
            self._read += read
            for example, error in errors.items():
                if example in self._errors:
                    continue
                self._errors[example] = error
                damaged = len(self._errors)
                if damaged <= _NAMED:
                    _LOG.warning("%s: %s: replaced", self._source.describe(example), error)
                elif str(damaged).strip("0") == "1":  # 10, 100, 1,000, …
                    _LOG.warning("%s: %s damaged images replaced so far", self._source.folder, f"{damaged:,}")
            expected = self._share * min(self._read, self._examples)
            if errors and len(self._errors) > math.ceil(expected + 3 * math.sqrt(expected)):
                raise self._error()

    def _error(self) -> ValueError:
        first = list(self._errors.items())[:_NAMED]
        named = "; ".join(f"{self._source.describe(example)}: {error}" for example, error in first)
        return ValueError(
            f"{len(self._errors):,} of {min(self._read, self._examples):,} examples read have a damaged "
            f"image, above runtime.damaged_share {self._share:.2%}: {named}: fetch these shards again, or "
            "raise runtime.damaged_share"
        )


class _Texts:
    """The captions as tokens. Each caption is tokenized only once if the tokens of all fit into memory."""

    def __init__(
        self,
        source: ShardIndex,
        recaptions: Recaptions | None,
        tokenizers: Mapping[str, tuple[Tokenizer, int]],
    ) -> None:
        self._source, self._recaptions, self._tokenizers = source, recaptions, tokenizers
        lengths = {name: length for name, (_, length) in tokenizers.items()}
        stored = len(source) if len(source) * sum(lengths.values()) <= _MOST_TOKENS else 0
        self._known = np.zeros(stored, np.bool_)
        self._tokens = {name: np.empty((stored, length), np.int32) for name, length in lengths.items()}

    def __call__(self, index: Ints) -> dict[str, npt.NDArray[np.int32]]:
        """Return the tokens of examples, int64[k], for each tokenizer: int32[k, L]."""
        if not len(self._known):
            return self._tokenize(index)
        new = index[~self._known[index]]
        if len(new):
            for name, tokens in self._tokenize(new).items():
                self._tokens[name][new] = tokens
            self._known[new] = True  # last, since another thread may read them now
        return {name: tokens[index] for name, tokens in self._tokens.items()}

    def _tokenize(self, index: Ints) -> dict[str, npt.NDArray[np.int32]]:
        captions = self._source.captions(index)
        if self._recaptions is not None:
            self._recaptions.replace(index, captions)
        return {name: tokenizer(captions, length) for name, (tokenizer, length) in self._tokenizers.items()}


def examples_at(positions: Ints, count: int, seed: int) -> Ints:
    """Return the examples at positions of an endless order that is shuffled again each epoch.

    Args:
        positions: int64[k], counted from the start of training; epoch e begins at e · `count`.
        count: Number of examples, at least 1.

    Returns:
        int64[k], each from 0 to `count` − 1.
    """
    epochs, places = np.divmod(positions, count)
    examples = np.empty_like(places)
    for epoch in np.unique(epochs).tolist():
        within = epochs == epoch
        examples[within] = permute(places[within], count, seed, epoch)
    return examples


def permute(places: Ints, count: int, seed: int, epoch: int) -> Ints:
    """Permute 0 … `count` − 1, and return the new places of some of these numbers.

    A Feistel network over pairs (i, j) with i < a, j < b, and a · b just above `count`: each round adds a
    hash of one part to the other, which is invertible, so the network permutes all pairs. It is applied again
    to results of at least `count` until they are below, which permutes the numbers below `count`. Up to eight
    examples are ranked by random words instead, since the network's permutations of so few aren't uniform.

    Args:
        places: int64[k], each from 0 to `count` − 1, as the result.
        seed: With `epoch`, determines the permutation.

    Source:
        Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002: generalized Feistel network
        and cycle walking.
    """
    words: Words = np.random.SeedSequence([seed, epoch]).generate_state(_ROUNDS, np.uint64).astype(np.uint64)
    if count <= _FEW:
        return np.argsort(words[:count])[places]
    b = math.isqrt(count - 1) + 1
    a = -(-count // b)
    keys = words.reshape(-1, 2)
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
    """Return 32 bits that depend on all bits of value and key: the finalizer of splitmix64, shortened."""
    mixed = (values ^ key) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed >> np.uint64(32)
