"""One embedding run: a reference's embeddings of every example, resumable after any save."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grain
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jestlab.models.config import EmbedConfig, TwoTowers
from jestlab.models.data import datasets
from jestlab.models.data.curation import Columns, choose
from jestlab.models.data.embeddings import About, EmbeddingWriter, content_digest
from jestlab.models.data.images import ensure_decoded, read_images
from jestlab.models.data.shards import ShardIndex, ShardSource
from jestlab.models.data.tokenizer import Tokenizer
from jestlab.models.devices import Devices
from jestlab.models.processes import any_says, first_says, initialize_processes, is_first
from jestlab.models.scoring.columns import columns_of
from jestlab.models.training.checkpoints import load_parameters
from jestlab.models.training.reference import TOKENIZER
from jestlab.models.training.tracker import NullTracker, Tracker
from jestlab.models.two_towers import Parameters, TwoTowerModel
from jestlab.models.two_towers import embed as embed_pairs

_LOG = logging.getLogger(__name__)
_BATCHES_AHEAD = 4


def embed(
    config: EmbedConfig,
    *,
    directory: Path,
    data_cache: Path,
    tracker: Tracker,
    reference: tuple[TwoTowers, Path],
    scores: Path | None = None,
) -> bool:
    """Embed every example of the data, resuming from the last save if there is one.

    Images are read at the reference's size and captions by its tokenizer, so a learner may have others. A
    damaged example is marked and not embedded: training reads another in its place. All processes read and
    compute, the first one writes.

    Args:
        config: The run.
        directory: The run's folder; `embeddings/` is written in it.
        data_cache: Folder of the data that are made from settings, shared by all runs.
        tracker: Receives progress and the metrics `examples_embedded`, `examples_damaged` and
            `examples_per_second`, by batches.
        reference: Architecture and folder of the finished reference run: `checkpoints/`, `tokenizer.model`.
        scores: Folder of the finished run whose scores the data's filter reads.

    Returns:
        True when all is embedded, False when the tracker asked to stop; what was embedded is saved then.

    Raises:
        FileNotFoundError: The reference's folder lacks its checkpoint or tokenizer.
        ValueError: The folder holds embeddings of other data or by another model, or too many examples are
            damaged.
    """
    initialize_processes()
    if not is_first():
        tracker = NullTracker(tracker.stop_requested)
    towers, theirs = reference
    web = datasets.ensure_web(config.data.train, config.web_seed, data_cache, config.code)
    forward = _Forward(towers, load_parameters(theirs / "checkpoints", towers), config.runtime.batch_size)
    reader = _Reader(
        config,
        web,
        Tokenizer((theirs / TOKENIZER).read_bytes()),
        towers,
        forward.devices.rows(forward.size),
        columns_of(scores, config.data, web) if scores is not None else None,
    )
    what = About(
        digest=content_digest(config.data, web),
        filter=config.data.filter,
        recaption=config.data.recaption,
        examples=len(reader.source),
        selected=len(reader.indices),
        width=towers.embedding_dim,
        precision=config.precision,
        temperature=forward.temperature,
        bias=forward.bias,
    )
    size, every, total = forward.size, config.runtime.save_every_batches, len(reader.indices)
    with contextlib.ExitStack() as stack:
        writer = EmbeddingWriter(directory, what) if is_first() else None
        stack.callback(writer.close if writer else lambda: None)
        first, began = first_says(writer.about.done if writer else 0), time.perf_counter()
        done = first
        _LOG.info("embedding from example %d to %d", first, total)
        tracker.progress(_batches(first, size), _batches(total, size))
        for count, batch in enumerate(reader.batches(first, size, config.runtime.loader_threads), start=1):
            k = len(batch.examples)
            images, texts, damaged = forward(batch)
            done += k
            if writer:
                writer.write(batch.examples, images[:k], texts[:k], damaged[:k])
                _check_damage(writer.about.damaged, total, config.runtime.damaged_share)
            saving = count % every == 0 or done == total
            stopping = saving or jax.process_count() == 1
            stopping = stopping and done < total and any_says(tracker.stop_requested())
            if writer and (saving or stopping):
                unreadable = writer.about.damaged
                step, rate = _batches(done, size), (done - first) / (time.perf_counter() - began)
                _LOG.info("example %d/%d  %d damaged  %.0f examples/s", done, total, unreadable, rate)
                values = {"examples_embedded": done - unreadable, "examples_damaged": unreadable}
                tracker.log(step, values | {"examples_per_second": rate})
                tracker.progress(step, _batches(total, size))
                with tracker.phase("checkpoint", step):
                    tracker.flush()
                    writer.save()
                    tracker.saved(step)
            if stopping:
                return False
    return True


def _check_damage(damaged: int, examples: int, share: float) -> None:
    """Raise ValueError if more than a share of all examples have a damaged image."""
    if damaged > math.ceil(share * examples):
        raise ValueError(
            f"{damaged:,} of {examples:,} examples have a damaged image, above runtime.damaged_share "
            f"{share:.2%}: fetch their shards again, or raise runtime.damaged_share"
        )


def _batches(examples: int, size: int) -> int:
    """Return how many batches the examples fill; the last one may be partial."""
    return -(-examples // size)


class _Rows(NamedTuple):
    """This process's part of a batch of k examples, padded to the rows that its devices take; r rows."""

    examples: npt.NDArray[np.int64]  # [k], global numbers of the whole batch's examples
    image: npt.NDArray[np.uint8]  # [r, h, w, 3]; zeros where damaged
    text: npt.NDArray[np.int32]  # [r, L]
    damaged: npt.NDArray[np.bool_]  # [r]


class _Reader:
    """Reads the examples to embed, once each in ascending order, as a learner will read them.

    Attributes:
        source: The folder of shards.
        indices: int64[n], global numbers of the examples.
    """

    def __init__(
        self,
        config: EmbedConfig,
        folder: Path,
        tokenizer: Tokenizer,
        towers: TwoTowers,
        rows: slice,
        columns: Columns | None,
    ) -> None:
        index = ShardIndex.load(folder)
        data, share = config.data, config.runtime.damaged_share
        chosen, self._recaptions = choose(index, data.filter, data.recaption, columns, damaged_share=share)
        self.source = ShardSource(folder, index)
        self.indices = np.arange(len(index)) if chosen is None else chosen
        self._tokenizer, self._towers, self._rows = tokenizer, towers, rows
        budget = config.runtime.decoded_megabytes * 10**6
        self._decoded = ensure_decoded(self.source, towers.vision.image_size, budget)

    def batches(self, first: int, size: int, threads: int) -> Iterator[_Rows]:
        """Iterate over batches from a position in `indices` on; a few are read ahead, by so many threads."""
        left = self.indices[first:]
        batches = grain.MapDataset.range(_batches(len(left), size)).map(
            lambda number: self._load(left[number * size : (number + 1) * size])
        )
        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=_BATCHES_AHEAD)
        return iter(batches.to_iter_dataset(options))

    def _load(self, index: npt.NDArray[np.int64]) -> _Rows:
        side, rows = self._towers.vision.image_size, self._rows.stop - self._rows.start
        mine = index[self._rows]
        images = np.zeros((rows, side, side, 3), np.uint8)
        damaged = np.zeros(rows, bool)
        failed = read_images(self.source, self._decoded, mine, images, np.arange(len(mine)))
        for row, error in failed.items():
            _LOG.warning("%s: %s", self.source.index.describe(mine[row]), error)
            damaged[row] = True
        captions = self.source.captions(mine)
        if self._recaptions is not None:
            self._recaptions.replace(mine, captions)
        captions += [""] * (rows - len(mine))
        return _Rows(index, images, self._tokenizer(captions, self._towers.text.length), damaged)


class _Forward:
    """The reference's forward pass, compiled once, over all devices.

    Attributes:
        devices: All devices.
        size: Examples a batch, a multiple of their number.
        temperature: The temperature t of the model.
        bias: The bias b of the model.
    """

    def __init__(self, towers: TwoTowers, parameters: Parameters, batch_size: int) -> None:
        self.devices = Devices(jax.devices())
        self.size = _batches(batch_size, self.devices.count) * self.devices.count
        self._parameters = self.devices.replicate(parameters)
        model = TwoTowerModel(towers)

        def forward(
            parameters: Parameters, image: jax.Array, text: jax.Array, damaged: jax.Array
        ) -> jax.Array:
            z = embed_pairs(model, parameters, image, text)
            return jnp.concatenate([z.image, z.text, damaged[:, None]], axis=1)  # one message to all

        self._embed = jax.jit(forward, out_shardings=self.devices.replicated)
        # Not by the device's exp, so that it is the same to the last bit on every device.
        self.temperature = float(np.float32(math.exp(float(parameters["t"][0]))))
        self.bias = float(parameters["b"][0])

    def __call__(
        self, rows: _Rows
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Embed a batch of all processes' parts: float32 [size, E] twice, and which are damaged."""
        batch = self.devices.split({"image": rows.image, "text": rows.text, "damaged": rows.damaged})
        whole = np.asarray(
            self._embed(self._parameters, batch["image"], batch["text"], batch["damaged"]), np.float32
        )
        image, text = np.split(whole[:, :-1], 2, axis=1)
        return image, text, whole[:, -1] > 0
