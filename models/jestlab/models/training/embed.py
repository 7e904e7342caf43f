"""One embedding run: a reference's view of every example, resumable after any save."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grain
import jax
import numpy as np
import numpy.typing as npt
from jax.sharding import NamedSharding, PartitionSpec

from ..config import EmbedConfig, TwoTowers
from ..data import datasets
from ..data.curation import Recaptions, recaptions, select
from ..data.embeddings import About, EmbeddingWriter, content_digest
from ..data.images import decode
from ..data.shards import ShardIndex, ShardSource
from ..data.tokenizer import Tokenizer
from ..two_towers import Parameters, TwoTowerModel
from ..two_towers import embed as embed_pairs
from .checkpoints import load_parameters
from .tracker import Tracker

_LOG = logging.getLogger(__name__)
_BATCHES_AHEAD = 4


def embed(
    config: EmbedConfig,
    *,
    directory: Path,
    data_cache: Path,
    tracker: Tracker,
    reference: tuple[TwoTowers, Path],
) -> bool:
    """Embed every example of the data, from the last save if there is one.

    Images are read at the reference's size and captions by its tokenizer, so a learner may have others. A
    damaged example is marked and not embedded: training reads another in its place.

    Args:
        config: The run.
        directory: The run's folder; `embeddings/` is written in it.
        data_cache: Where data made from settings lie, shared by all runs.
        tracker: Receives progress and the metrics `examples_embedded`, `examples_damaged` and
            `examples_per_second`, by batches.
        reference: Architecture and folder of the finished reference run: `checkpoints/`, `tokenizer.model`.

    Returns:
        True when all is embedded, False when the tracker asked to stop; what was embedded is saved then.

    Raises:
        FileNotFoundError: The reference's folder lacks its checkpoint or tokenizer.
        ValueError: The folder holds embeddings of other data or by another model.
    """
    towers, theirs = reference
    web = datasets.ensure_web(config.data.train, config.web_seed, data_cache)
    indices = select(web, config.data.filter)
    captions = None if config.data.recaption is None else recaptions(web, config.data.recaption)
    tokenizer = Tokenizer((theirs / "tokenizer.model").read_bytes())
    forward = _Forward(towers, load_parameters(theirs / "checkpoints", towers), config.runtime.batch_size)
    what = About(
        digest=content_digest(config.data, web),
        filter=config.data.filter,
        recaption=config.data.recaption,
        examples=len(ShardIndex.load(web)),
        selected=len(indices),
        width=towers.embedding_dim,
        precision=config.precision,
        temperature=forward.temperature,
        bias=forward.bias,
    )
    size, every, total = config.runtime.batch_size, config.runtime.save_every_batches, len(indices)
    with contextlib.closing(EmbeddingWriter(directory, what)) as writer:
        first, began = writer.progress.done, time.perf_counter()
        _LOG.info("embedding from example %d to %d", first, total)
        tracker.progress(_batches(first, size), _batches(total, size))
        batches = ordered_batches(
            web,
            indices[first:],
            tokenizer=tokenizer,
            image_size=towers.vision.image_size,
            text_length=towers.text.length,
            batch_size=size,
            recaptions=captions,
            threads=config.runtime.loader_threads,
        )
        for count, batch in enumerate(batches, start=1):
            writer.write(batch.index, *forward(batch.image, batch.text), batch.damaged)
            done, damaged = writer.progress
            stopping = done < total and tracker.stop_requested()
            if count % every == 0 or done == total or stopping:
                step, rate = _batches(done, size), (done - first) / (time.perf_counter() - began)
                _LOG.info("example %d/%d  %d damaged  %.0f examples/s", done, total, damaged, rate)
                values = {"examples_embedded": done - damaged, "examples_damaged": damaged}
                tracker.log(step, values | {"examples_per_second": rate})
                tracker.progress(step, _batches(total, size))
                tracker.flush()
                writer.save()
            if stopping:
                return False
    return True


def _batches(examples: int, size: int) -> int:
    """How many batches examples fill, the last one maybe in part."""
    return -(-examples // size)


@dataclass(frozen=True)
class OrderedBatch:
    """Examples in ascending order; k of them."""

    index: npt.NDArray[np.int64]  # [k], global numbers
    image: npt.NDArray[np.uint8]  # [k, h, w, 3]; zeros where damaged
    text: npt.NDArray[np.int32]  # [k, L]
    damaged: npt.NDArray[np.bool_]  # [k]


def ordered_batches(
    folder: Path,
    indices: npt.NDArray[np.int64],
    *,
    tokenizer: Tokenizer,
    image_size: int,
    text_length: int,
    batch_size: int,
    recaptions: Recaptions | None = None,
    threads: int = 1,
) -> Iterator[OrderedBatch]:
    """Given examples, once, in their order, a few batches read ahead.

    Args:
        folder: A folder of shards.
        indices: int64[n], global example numbers.
        tokenizer: For the captions.
        image_size: Side in pixels.
        text_length: L, tokens.
        batch_size: Examples a batch; the last may hold fewer.
        recaptions: Synthetic captions that stand in for the examples' own. Training leaves out an example
            that lacks one, so what is read of it does not matter.
        threads: That read and decode.
    """
    source = ShardSource(folder)

    def load(number: int) -> OrderedBatch:
        index = indices[number * batch_size : (number + 1) * batch_size]
        examples = source.read(index)
        images = np.zeros((len(index), image_size, image_size, 3), np.uint8)
        damaged = np.zeros(len(index), bool)
        for i, example in enumerate(examples):
            try:
                images[i] = decode(example.jpeg, image_size)
            except ValueError as error:
                _LOG.warning("%s: %s", source.index.describe(index[i]), error)
                damaged[i] = True
        captions = [example.caption for example in examples]
        if recaptions is not None:
            recaptions.replace(index, captions)
        texts = tokenizer(captions, text_length)
        return OrderedBatch(index, images, texts, damaged)

    batches = grain.MapDataset.range(_batches(len(indices), batch_size)).map(load)
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=_BATCHES_AHEAD)
    return iter(batches.to_iter_dataset(options))


class _Forward:
    """The reference's forward pass, compiled once, over all devices.

    Attributes:
        temperature: t.
        bias: b.
    """

    def __init__(self, towers: TwoTowers, parameters: Parameters, batch_size: int) -> None:
        devices = jax.devices()
        mesh = jax.sharding.Mesh(np.array(devices), ("data",))
        self._by_row = NamedSharding(mesh, PartitionSpec("data"))  # type: ignore[no-untyped-call]
        self._rows = -(-batch_size // len(devices)) * len(devices)
        everywhere = NamedSharding(mesh, PartitionSpec())  # type: ignore[no-untyped-call]
        self._parameters = jax.device_put(parameters, everywhere)
        self._embed = jax.jit(functools.partial(embed_pairs, TwoTowerModel(towers)))
        # Not by the device's exp: the same to the last bit on whichever device the run goes on.
        self.temperature = float(np.float32(math.exp(float(parameters["t"][0]))))
        self.bias = float(parameters["b"][0])

    def __call__(
        self, images: npt.NDArray[np.uint8], texts: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """uint8 [k, h, w, 3], int32 [k, L] → float32 [k, E] twice; padded, so that one shape is compiled."""
        k = len(images)
        rows = [jax.device_put(_padded(part, self._rows), self._by_row) for part in (images, texts)]
        z = self._embed(self._parameters, *rows)
        return np.asarray(z.image, np.float32)[:k], np.asarray(z.text, np.float32)[:k]


def _padded(rows: npt.NDArray[np.generic], count: int) -> npt.NDArray[np.generic]:
    """Rows of zeros appended."""
    return np.pad(rows, [(0, count - len(rows)), *[(0, 0)] * (rows.ndim - 1)])
