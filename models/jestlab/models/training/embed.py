"""One embedding run: a reference's embeddings of every example, resumable after any save."""

import contextlib
import functools
import logging
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jestlab.models.config import EmbedConfig, TwoTowers
from jestlab.models.data import datasets
from jestlab.models.data.curation import choose
from jestlab.models.data.embeddings import About, EmbeddingWriter, content_digest
from jestlab.models.data.files import compute_ahead
from jestlab.models.data.images import ensure_decoded, read_images
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tokenizer import Tokenizer
from jestlab.models.devices import Devices, any_process, broadcast_number, is_first
from jestlab.models.processes import initialize_processes
from jestlab.models.scoring.columns import columns_of
from jestlab.models.training.checkpoints import load_parameters
from jestlab.models.training.reference import TOKENIZER
from jestlab.models.training.tracker import Tracker
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

    Images are resized to the reference's size and captions tokenized by its tokenizer; the learner's may
    differ. A damaged example is marked and not embedded: training reads another in its place. All processes
    read and compute, and the first one writes.

    Args:
        directory: The run's folder; `embeddings/` is written in it.
        data_cache: Folder of generated data, shared by all runs.
        tracker: Receives progress in batches, and the metrics `examples_embedded`, `examples_damaged`, and
            `examples_per_second`.
        reference: Architecture and folder of the completed reference run: `checkpoints/`, `tokenizer.model`.
        scores: Folder of a completed run whose scores the data's filter reads.

    Returns:
        True when all examples are embedded, False when the tracker asked to stop. Either way, all embedded
        examples are saved.

    Raises:
        FileNotFoundError: The reference's folder lacks its checkpoint or tokenizer.
        ValueError: The folder has embeddings of other data or another model, or too many damaged examples.
    """
    initialize_processes()
    if not is_first():
        tracker = Tracker(tracker.stop_requested)
    (towers, folder), devices = reference, Devices(jax.devices())
    parameters = load_parameters(folder / "checkpoints", towers)
    tokenizer = Tokenizer((folder / TOKENIZER).read_bytes())
    web = datasets.ensure_web(config, data_cache)
    columns = columns_of(scores, config.data, web)
    source, data, share = ShardIndex.load(web), config.data, config.runtime.damaged_share
    chosen, recaptions = choose(source, data, columns, damaged_share=share)
    examples = np.arange(len(source)) if chosen is None else chosen
    about = About(
        digest=content_digest(data, web),
        filter=data.filter,
        recaption=data.recaption,
        examples=len(source),
        selected=len(examples),
        width=towers.embedding_dim,
        precision=config.precision,
        # Not by the device's exp, so that it is the same to the last bit on every device.
        temperature=float(np.float32(math.exp(float(parameters["t"][0])))),
        bias=float(parameters["b"][0]),
    )
    size = math.ceil(config.runtime.batch_size / devices.count) * devices.count
    on_devices, model = devices.replicate(parameters), TwoTowerModel(towers)
    rows, side = devices.rows(size), towers.vision.image_size
    decoded = ensure_decoded(source, side, config.runtime.decoded_megabytes * 10**6)

    def load(examples: npt.NDArray[np.int64]) -> dict[str, np.ndarray]:
        """Load this process's r rows of a batch, padded: images are zeros where damaged."""
        mine, r = examples[rows], rows.stop - rows.start
        images, damaged = np.zeros((r, side, side, 3), np.uint8), np.zeros(r, bool)
        for row, error in read_images(source, decoded, mine, images, np.arange(len(mine))).items():
            _LOG.warning("%s: %s", source.describe(mine[row]), error)
            damaged[row] = True
        captions = source.captions(mine)
        if recaptions is not None:
            recaptions.replace(mine, captions)
        captions += [""] * (r - len(mine))
        return {"image": images, "text": tokenizer(captions, towers.text.length), "damaged": damaged}

    @functools.partial(jax.jit, out_shardings=devices.replicated)
    def embedded(parameters: Parameters, batch: dict[str, jax.Array]) -> jax.Array:
        z = embed_pairs(model, parameters, batch["image"], batch["text"])
        return jnp.concatenate([z.image, z.text, batch["damaged"][:, None]], axis=1)  # one message to all

    with contextlib.ExitStack() as stack:
        writer = EmbeddingWriter(directory, about) if is_first() else None
        stack.callback(writer.close if writer else lambda: None)
        done = first = broadcast_number(writer.about.done if writer else 0)
        total, began = len(examples), time.perf_counter()
        _LOG.info("embedding from example %d to %d", first, total)
        tracker.progress(math.ceil(first / size), math.ceil(total / size))
        parts = [examples[start : start + size] for start in range(first, total, size)]
        batches = compute_ahead(load, parts, config.runtime.loader_threads, _BATCHES_AHEAD)
        stack.enter_context(contextlib.closing(batches))
        for count, (part, batch) in enumerate(zip(parts, batches, strict=True), start=1):
            z = np.asarray(embedded(on_devices, devices.split(batch)), np.float32)[: len(part)]
            done += len(part)
            if writer:
                images, texts = np.split(z[:, :-1], 2, axis=1)
                writer.write(part, images, texts, z[:, -1] > 0)
                if writer.about.damaged > math.ceil(share * total):
                    raise ValueError(
                        f"{writer.about.damaged:,} of {total:,} examples have a damaged image, above "
                        f"runtime.damaged_share {share:.2%}: fetch their shards again, or raise the limit"
                    )
            saves = done == total or count % config.runtime.save_every_batches == 0
            # Several processes have to agree, which takes time.
            asks = done < total and (saves or jax.process_count() == 1)
            stopping = asks and any_process(tracker.stop_requested())
            if writer and (saves or stopping):
                unreadable = writer.about.damaged
                step, rate = math.ceil(done / size), (done - first) / (time.perf_counter() - began)
                _LOG.info("example %d/%d  %d damaged  %.0f examples/s", done, total, unreadable, rate)
                values = {"examples_embedded": done - unreadable, "examples_damaged": unreadable}
                tracker.log(step, values | {"examples_per_second": rate})
                tracker.progress(step, math.ceil(total / size))
                with tracker.phase("checkpoint", step):
                    tracker.flush()
                    writer.save()
                    tracker.saved(step)
            if stopping:
                return False
    return True
