"""Evaluate a model on a folder of CLIP_benchmark datasets, in bounded memory.

The metrics are those of big_vision, which SigLIP and JEST report; see `metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jestlab.models.config import TrainConfig
from jestlab.models.data.benchmarks import ClassificationSet, load_benchmark
from jestlab.models.data.images import LazyImages, keep_within
from jestlab.models.data.tokenizer import Tokenizer
from jestlab.models.devices import Devices
from jestlab.models.metrics import RidgeProbe, class_embeddings, draw, prompts, recalls, zero_shot_accuracy
from jestlab.models.two_towers import Parameters, TwoTowerModel
from jestlab.models.vit import VisionTransformer

BATCH = 256  # examples a forward pass; the last one is padded, so that one compiled function serves all
KEPT_BYTES = 512 * 2**20  # of pixels, over all datasets: small ones are decoded once, large ones each time


@dataclass(frozen=True)
class _Classification:
    """A classification dataset made ready: n test images, C classes, T templates, L tokens per prompt."""

    images: LazyImages
    labels: np.ndarray  # int64 [n]
    prompts: np.ndarray  # int32 [C × T, L]
    classes: int
    templates: int
    shots: LazyImages  # the training images that some draw chose, each once
    draws: list[tuple[np.ndarray, np.ndarray]]  # of each seed: positions in `shots`, and labels


@dataclass(frozen=True)
class _Retrieval:
    """A retrieval dataset made ready: m captions of L tokens."""

    images: LazyImages
    captions: np.ndarray  # int32 [m, L]
    image_of_caption: np.ndarray  # int64 [m]


class Evaluator:
    """Evaluates a model: holds the benchmark's index, its texts tokenised once, and the compiled towers.

    Images are resized whole to the model's square; big_vision's classification configs crop the centre.
    """

    def __init__(
        self, config: TrainConfig, folder: Path, tokenizer: Tokenizer, devices: Devices | None = None
    ) -> None:
        """Index the benchmark and draw the few shots; no image is read.

        Args:
            config: The run: model, shots, threads.
            folder: Holds one CLIP_benchmark folder a dataset.
            tokenizer: The run's tokenizer.
            devices: What to compute on; None: one device. Batches have 256 rows, rounded up to a multiple of
                the number of devices; each process reads all of them, and computes its own part.

        Raises:
            FileNotFoundError: No dataset there, or one that lacks a file.
            ValueError: A dataset is damaged.
        """
        self._config = config
        self._devices = devices or Devices(jax.devices()[:1])
        self._batch = -(-BATCH // self._devices.count) * self._devices.count
        self._threads = max(2, config.runtime.loader_threads)
        length = config.model.text.length
        benchmark = load_benchmark(folder, config.model.vision.image_size)
        self._classification = {
            name: self._ready(data, tokenizer) for name, data in benchmark.classification.items()
        }
        self._retrieval = {
            name: _Retrieval(data.images, tokenizer(data.captions, length), data.image_of_caption)
            for name, data in benchmark.retrieval.items()
        }
        read = [images for data in self._classification.values() for images in (data.images, data.shots)]
        keep_within(KEPT_BYTES, [*read, *(data.images for data in self._retrieval.values())])

        model = TwoTowerModel(config.model)
        everywhere = self._devices.replicated  # so that each process can fetch all of a result
        self._image_tower = jax.jit(
            lambda parameters, x: _embeddings_and_features(model, parameters, x), out_shardings=everywhere
        )
        self._text_tower = jax.jit(
            lambda parameters, x: (model.apply({"params": parameters}, x, method=TwoTowerModel.embed_texts),),
            out_shardings=everywhere,
        )

    def _ready(self, data: ClassificationSet, tokenizer: Tokenizer) -> _Classification:
        """Tokenise the prompts and draw the shots of a dataset."""
        cfg, classes = self._config.evaluation, len(data.class_names)
        seeds = range(cfg.shot_seeds if len(data.train_labels) else 0)
        drawn = [draw(data.train_labels, classes, cfg.shots, seed) for seed in seeds]
        chosen = np.unique(np.concatenate([np.empty(0, np.int64), *drawn]))
        return _Classification(
            data.images,
            data.labels,
            tokenizer(prompts(data.class_names, data.templates), self._config.model.text.length),
            classes,
            len(data.templates),
            data.train_images.take(chosen),
            [(np.searchsorted(chosen, few), data.train_labels[few]) for few in drawn],
        )

    def __call__(self, parameters: Parameters) -> dict[str, float]:
        """Evaluate a model.

        Args:
            parameters: The model's, on the same devices.

        Returns:
            `{dataset}/zero_shot`, `{dataset}/10_shot` where it has a train split, `{dataset}/i2t_r1`, `_r5`,
            `_r10`, and the same of `t2i`; each in 0…1.

        Raises:
            ValueError: An image is damaged; the message names shard and example.
        """
        scores: dict[str, float] = {}
        for name, data in self._classification.items():
            images, features = self._images(parameters, data.images)
            texts = class_embeddings(self._texts(parameters, data.prompts), data.templates)
            scores[f"{name}/zero_shot"] = zero_shot_accuracy(images, texts, data.labels)
            if data.draws:
                _, few = self._images(parameters, data.shots)
                accuracies = [
                    RidgeProbe.fit(few[at], labels, data.classes).accuracy(features, data.labels)
                    for at, labels in data.draws
                ]
                scores[f"{name}/{self._config.evaluation.shots}_shot"] = float(np.mean(accuracies))
        for name, pairs in self._retrieval.items():
            images, _ = self._images(parameters, pairs.images)
            found = recalls(images, self._texts(parameters, pairs.captions), pairs.image_of_caption)
            scores |= {f"{name}/{metric}": value for metric, value in found.items()}
        return scores

    def _images(self, parameters: Parameters, images: LazyImages) -> tuple[np.ndarray, np.ndarray]:
        """Compute embeddings float32 [n, E] and features float32 [n, D] in one pass over the images."""
        batches = images.batches(self._batch, self._threads)
        embeddings, features = self._run(self._image_tower, parameters, batches)
        return embeddings, features

    def _texts(self, parameters: Parameters, tokens: np.ndarray) -> np.ndarray:
        """Embed tokens: int32 [n, L] → float32 [n, E]."""
        parts = (tokens[start : start + self._batch] for start in range(0, len(tokens), self._batch))
        (embeddings,) = self._run(self._text_tower, parameters, parts)
        return embeddings

    def _run(
        self,
        tower: Callable[..., tuple[jax.Array, ...]],
        parameters: Parameters,
        batches: Iterable[np.ndarray],
    ) -> list[np.ndarray]:
        """Compute all outputs of a tower, float32; one batch is fetched while the next is computed."""

        def launched() -> Iterator[tuple[int, tuple[jax.Array, ...]]]:
            for batch in batches:
                padding = [(0, self._batch - len(batch))] + [(0, 0)] * (batch.ndim - 1)
                whole = np.pad(batch, padding) if len(batch) < self._batch else batch
                yield len(batch), tower(parameters, self._devices.split_whole(whole))

        fetched = []
        before: tuple[int, tuple[jax.Array, ...]] | None = None
        for latest in launched():
            if before is not None:
                fetched.append(_fetch(*before))
            before = latest
        if before is not None:
            fetched.append(_fetch(*before))
        return [np.concatenate(parts) for parts in zip(*fetched, strict=True)]


def _fetch(rows: int, outputs: tuple[jax.Array, ...]) -> list[np.ndarray]:
    """Return the first rows of each output, on the host."""
    return [np.asarray(output)[:rows].astype(np.float32) for output in outputs]


def _embeddings_and_features(
    model: TwoTowerModel, parameters: Parameters, images: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute what `embed_images` and `features` give, in one pass.

    The image tower returns both, so its output is captured on the way: of two calls XLA would merge the
    blocks only where they are not scanned.
    """

    def of_the_tower(module: Any, method: str) -> bool:
        return isinstance(module, VisionTransformer) and method == "__call__"

    embeddings, state = model.apply(
        {"params": parameters},
        images,
        method=TwoTowerModel.embed_images,
        capture_intermediates=of_the_tower,
        mutable=["intermediates"],
    )
    ((_, features),) = state["intermediates"]["img"]["__call__"]
    return embeddings, features
