"""Runs the four evaluations of a model on a folder of CLIP_benchmark datasets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from ..config import TrainConfig
from ..data.benchmarks import load_benchmark
from ..data.tokenizer import Tokenizer
from ..two_towers import Parameters, TwoTowerModel
from .few_shot import few_shot_accuracy
from .retrieval import recall_at_k
from .zero_shot import class_embeddings, prompts, zero_shot_accuracy

BATCH = 256  # examples a forward pass; the last one is padded, so that one compiled function serves all


class Evaluator:
    """The benchmark's data, read and tokenised once, and the compiled towers."""

    def __init__(self, config: TrainConfig, folder: Path, tokenizer: Tokenizer) -> None:
        """Read the benchmark.

        Args:
            config: The run: image size, text length, shots.
            folder: Holds one CLIP_benchmark folder a dataset.
            tokenizer: The run's tokenizer.
        """
        self._config = config
        size, length = config.model.vision.image_size, config.model.text.length
        benchmark = load_benchmark(folder, size)
        self._classification, self._retrieval = benchmark.classification, benchmark.retrieval
        self._prompts = {
            name: tokenizer(prompts(data.class_names, data.templates), length)
            for name, data in self._classification.items()
        }
        self._captions = {name: tokenizer(data.captions, length) for name, data in self._retrieval.items()}
        model = TwoTowerModel(config.model)

        def apply(method: Callable[..., jax.Array]) -> Callable[[Parameters, np.ndarray], np.ndarray]:
            compiled = jax.jit(lambda parameters, x: model.apply({"params": parameters}, x, method=method))
            return lambda parameters, x: _in_batches(lambda part: compiled(parameters, part), x)

        self._embed_images = apply(TwoTowerModel.embed_images)
        self._embed_texts = apply(TwoTowerModel.embed_texts)
        self._features = apply(TwoTowerModel.features)

    def __call__(self, parameters: Parameters) -> dict[str, float]:
        """Evaluate.

        Args:
            parameters: The model's.

        Returns:
            `{dataset}/zero_shot`, `{dataset}/10_shot`, `{dataset}/i2t_r1`, `{dataset}/t2i_r1`, each in 0…1.
        """
        cfg = self._config.evaluation
        scores: dict[str, float] = {}
        for name, data in self._classification.items():
            classes = class_embeddings(
                self._embed_texts(parameters, self._prompts[name]), len(data.templates)
            )
            images = self._embed_images(parameters, data.images)
            scores[f"{name}/zero_shot"] = zero_shot_accuracy(images, classes, data.labels)
            if len(data.train_images):
                scores[f"{name}/{cfg.shots}_shot"] = few_shot_accuracy(
                    self._features(parameters, data.train_images),
                    data.train_labels,
                    self._features(parameters, data.images),
                    data.labels,
                    shots=cfg.shots,
                    seeds=cfg.shot_seeds,
                )
        for name, pairs in self._retrieval.items():
            scores[f"{name}/i2t_r1"], scores[f"{name}/t2i_r1"] = recall_at_k(
                self._embed_images(parameters, pairs.images),
                self._embed_texts(parameters, self._captions[name]),
                pairs.image_of_caption,
            )
        return scores


def _in_batches(function: Callable[[np.ndarray], jax.Array], x: np.ndarray) -> np.ndarray:
    """function(x), `BATCH` rows at a time."""
    parts = []
    for start in range(0, len(x), BATCH):
        part = x[start : start + BATCH]
        padding = [(0, BATCH - len(part))] + [(0, 0)] * (x.ndim - 1)
        parts.append(np.asarray(function(np.pad(part, padding)))[: len(part)])
    return np.concatenate(parts)
