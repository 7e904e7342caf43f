"""Shards to training batches: shuffled, decoded, tokenised, prefetched, resumable at an exact batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jestlab.models.data.curation import select
from jestlab.models.data.images import decode
from jestlab.models.data.shards import ShardSource
from jestlab.models.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    import grain

Batch = dict[str, npt.NDArray[Any]]

# One thread loads while the accelerator computes; more would take the CPU from a learner that trains on it.
_THREADS = 1
_BATCHES_AHEAD = 4


def training_batches(
    folder: Path,
    *,
    filter: str | None,
    tokenizer: Tokenizer,
    image_size: int,
    text_length: int,
    batch_size: int,
    seed: int,
    reference_tokenizer: tuple[Tokenizer, int] | None = None,
) -> grain.DatasetIterator[Batch]:
    """Batches for ever: shuffled anew each epoch, every example once an epoch, batches across its border.

    The iterator's `get_state()` is the number of batches taken, prefetched ones not counted; `set_state()`
    goes on from there with the very same batches.

    Args:
        folder: A folder of shards.
        filter: Metadata filter of `curation.select`, or None.
        tokenizer: For the captions.
        image_size: Side in pixels.
        text_length: L, tokens.
        batch_size: B.
        seed: Of the order; independent of all other random draws.
        reference_tokenizer: Tokenizer and length of a reference model that reads other tokens.

    Returns:
        An iterator of {"image": uint8[B, image_size, image_size, 3], "text": int32[B, L], "index": int64[B]},
        the index being the example's global number in the unfiltered folder; with a
        reference tokenizer also "reference_text". It raises ValueError, naming
        shard and example, where an image cannot be read.

    Raises:
        ValueError: A bad filter, or one that nothing satisfies.
    """
    import grain

    texts = {"text": (tokenizer, text_length)}
    if reference_tokenizer is not None:
        texts["reference_text"] = reference_tokenizer
    load = _Load(ShardSource(folder), select(folder, filter), texts, image_size)
    # Grain shuffles numbers, and a map loads a whole batch: per example, Grain costs as much as decoding.
    positions = grain.MapDataset.range(len(load.indices)).seed(seed).shuffle().repeat().batch(batch_size)
    options = grain.ReadOptions(num_threads=_THREADS, prefetch_buffer_size=_BATCHES_AHEAD)
    return iter(positions.map(load).to_iter_dataset(options))


class _Load:
    """Positions among the filtered examples to a batch."""

    def __init__(
        self,
        source: ShardSource,
        indices: npt.NDArray[np.int64],
        texts: Mapping[str, tuple[Tokenizer, int]],
        image_size: int,
    ) -> None:
        self.source = source
        self.indices = indices
        self.texts = texts
        self.image_size = image_size

    def __call__(self, positions: npt.NDArray[np.int64]) -> Batch:
        index = self.indices[positions]
        examples = self.source.read(index)
        images = np.empty((len(index), self.image_size, self.image_size, 3), np.uint8)
        for i, example in enumerate(examples):
            try:
                images[i] = decode(example.jpeg, self.image_size)
            except ValueError as error:
                raise ValueError(f"{self.source.index.describe(index[i])}: {error}") from error
        captions = [example.caption for example in examples]
        texts = {name: tokenizer(captions, length) for name, (tokenizer, length) in self.texts.items()}
        return {"image": images, "index": index, **texts}
