"""Evaluate a model on a folder of CLIP_benchmark datasets: zero-shot and few-shot accuracy, retrieval recall.

Each metric is computed as in big_vision, whose numbers SigLIP and JEST report: `discriminative_classifier`,
`fewshot_lsr`, and `image_text_retrieval`. Docstrings state the differences.

Letters: n images, m captions, C classes, T templates, L tokens, E embedding width, D features (+1 for the
constant), λ ridge, k recall rank.
"""

import functools
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jestlab.models.config import TrainConfig, TwoTowers
from jestlab.models.custom_evaluation import EvaluatedModel, scores_of
from jestlab.models.data.benchmarks import ClassificationSet, load_benchmark, prompts
from jestlab.models.data.images import LazyImages, store_within
from jestlab.models.data.tokenizer import Tokenizer
from jestlab.models.devices import Devices
from jestlab.models.extensions import CustomFunction
from jestlab.models.two_towers import Parameters, TwoTowerModel

_LOG = logging.getLogger(__name__)


def class_embeddings(prompt_embeddings: np.ndarray, templates: int) -> np.ndarray:
    """Average over the templates of each class and normalize again: z / (‖z‖ + 1e-8).

    Args:
        prompt_embeddings: float32 [C × T, E], unit length, in the order of `prompts`.
        templates: T.

    Returns:
        float32 [C, E].
    """
    z = prompt_embeddings.reshape(-1, templates, prompt_embeddings.shape[-1]).mean(axis=1)
    result: np.ndarray = z / (np.linalg.norm(z, axis=-1, keepdims=True) + 1e-8)
    return result


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Compute the share of images, labels int [n], whose highest score, float [n, C], is of their label."""
    return float(np.mean(scores.argmax(axis=-1) == labels))


def draw(labels: np.ndarray, classes: int, shots: int, seed: int) -> np.ndarray:
    """Draw a few images of each class, or all images of a class with fewer.

    Returns:
        int64 [≤ C · shots], positions in `labels`, int [n], class by class.
    """
    rng = np.random.default_rng(seed)
    by_class = np.argsort(labels, kind="stable")
    of_class = np.split(by_class, np.searchsorted(labels[by_class], np.arange(1, classes)))
    return np.concatenate([rng.permutation(positions)[:shots] for positions in of_class])


CONSTANT_FEATURE = 100.0  # large, so that the ridge hardly shrinks its weight
RIDGE = 2.0**10  # λ


def ridge_probe(features: np.ndarray, labels: np.ndarray, classes: int, test: np.ndarray) -> np.ndarray:
    """Fit a linear classifier by ridge regression: whiten, append a constant, and solve for targets ±1.

    W = (XᵀX + λI)⁻¹ XᵀY = Xᵀ (XXᵀ + λI)⁻¹ Y: the smaller of the two systems is solved, in float64.

    Args:
        features: float [n, D], not normalized.
        labels: int [n].
        classes: C. A class may have no images.
        test: float [m, D], features of the images to classify.

    Returns:
        Class scores of the test images, float64 [m, C].
    """
    features = features.astype(np.float64)
    mean, std = features.mean(axis=0), features.std(axis=0) + 1e-5
    x, x_test = (
        np.pad((rows - mean) / std, ((0, 0), (0, 1)), constant_values=CONSTANT_FEATURE)
        for rows in (features, test)
    )
    y = np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)
    n, d = x.shape
    if n >= d:
        weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(d), x.T @ y)
    else:
        weights = x.T @ np.linalg.solve(x @ x.T + RIDGE * np.eye(n), y)
    return np.asarray(x_test @ weights)


RANKS = (1, 5, 10)  # k
PRODUCTS_AT_ONCE = 2**23  # similarities that are computed at a time: 32 MiB instead of n × m


def recalls(images: np.ndarray, captions: np.ndarray, image_of_caption: np.ndarray) -> dict[str, float]:
    """Compute recall at 1, 5, and 10 in both directions.

    Image→text counts a hit if any of the image's captions is among its k nearest captions; text→image if the
    caption's image is among its k nearest images. In big_vision, the order of a sort decides ties. Here a
    wrong target counts as nearer if it ties with the right one or if its similarity is NaN, so that a model
    that maps everything to one point, or to NaN, scores 0 instead of 1.

    Args:
        images: float32 [n, E], unit length.
        captions: float32 [m, E], unit length.
        image_of_caption: int [m], the image that each caption belongs to.

    Returns:
        `i2t_r1`, `i2t_r5`, `i2t_r10`, `t2i_r1`, `t2i_r5`, `t2i_r10`, each from 0 to 1.
    """
    numbers = np.arange(len(images))
    nearer = {
        "i2t": _wrong_and_nearer(images, captions, numbers, image_of_caption),
        "t2i": _wrong_and_nearer(captions, images, image_of_caption, numbers),
    }
    return {f"{way}_r{k}": float(np.mean(count < k)) for way, count in nearer.items() for k in RANKS}


def _wrong_and_nearer(
    queries: np.ndarray, targets: np.ndarray, query_image: np.ndarray, target_image: np.ndarray
) -> np.ndarray:
    """Count, int64 [q], the targets of other images that are at least as near as the nearest right one."""
    rows, counts = max(1, PRODUCTS_AT_ONCE // len(targets)), []
    for start in range(0, len(queries), rows):
        block = slice(start, start + rows)
        similarity = queries[block] @ targets.T
        right = query_image[block, None] == target_image
        best = similarity.max(axis=1, where=right, initial=-np.inf, keepdims=True)
        counts.append(np.count_nonzero(~right & ~(similarity < best), axis=1))  # NaN is never less
    return np.concatenate(counts)


BATCH = 256  # examples per forward pass; the last batch is padded, so that one compiled function serves all
Tower = Callable[..., Any]  # (variables, batch) → outputs, arrays [rows, …]


@dataclass(frozen=True)
class _Classification:
    """A classification dataset with its tokenized prompts and its few-shot draws."""

    data: ClassificationSet
    prompts: np.ndarray  # int32 [C × T, L]
    shots: LazyImages  # the training images of all draws, each once
    shot_labels: np.ndarray  # int64 [len(shots)]
    draws: list[np.ndarray]  # per seed: int64 positions in `shots`


class Evaluator:
    """Evaluates models on one benchmark: holds the index, the tokenized texts, and the compiled towers.

    Images are resized to squares without cropping; big_vision's classification configs crop the center.
    """

    def __init__(self, config: TrainConfig, folder: Path, tokenizer: Tokenizer, devices: Devices) -> None:
        """Index the benchmark, draw the few-shot images, and decode the images of small datasets.

        Args:
            folder: The benchmark: one folder per CLIP_benchmark dataset.
            devices: Devices to compute on. A batch has 256 rows, rounded up to a multiple of the number of
                devices. Each process reads whole batches and computes its part of them.

        Raises:
            FileNotFoundError: The folder has no dataset, or a dataset lacks a file.
            ValueError: A dataset is damaged, or an evaluation of `evaluation.extra` has its name.
        """
        self._config, self._tokenizer, self._devices = config, tokenizer, devices
        self._batch = -(-BATCH // devices.count) * devices.count
        self._threads = max(2, config.runtime.loader_threads)
        self._image_tower = _tower(config.model, TwoTowerModel.images_and_features, devices.replicated)
        self._text_tower = _tower(config.model, TwoTowerModel.embed_texts, devices.replicated)
        benchmark = load_benchmark(folder, config.model.vision.image_size)
        if taken := config.evaluation.extra.keys() & {*benchmark.classification, *benchmark.retrieval}:
            raise ValueError(
                f"evaluation.extra.{min(taken)}: a dataset of the benchmark has this name: choose another"
            )
        self._extra = {
            name: CustomFunction.load("evaluation", extra.function, extra.options)
            for name, extra in config.evaluation.extra.items()
        }
        self._classification = {
            name: self._prepared(name, data) for name, data in benchmark.classification.items()
        }
        self._retrieval = {
            name: (data, tokenizer(data.captions, config.model.text.length))
            for name, data in benchmark.retrieval.items()
        }
        images = [part for one in self._classification.values() for part in (one.data.images, one.shots)]
        images += [data.images for data in benchmark.retrieval.values()]
        store_within(config.runtime.decoded_megabytes * 10**6, images, self._threads)

    def _prepared(self, name: str, data: ClassificationSet) -> _Classification:
        """Tokenize the prompts of a dataset and draw its few-shot images."""
        cfg, length = self._config.evaluation, self._config.model.text.length
        tokens = self._tokenizer(prompts(data.class_names, data.templates), length)
        _, first = np.unique(tokens.reshape(len(data.class_names), -1), axis=0, return_index=True)
        if same := np.delete(data.class_names, first).tolist():
            text = "%s: zero-shot never finds %d classes with the tokens of others, such as %r"
            _LOG.warning(text, name, len(same), same[0])
        seeds = range(cfg.shot_seeds if len(data.train_labels) else 0)
        drawn = [draw(data.train_labels, len(data.class_names), cfg.shots, seed) for seed in seeds]
        chosen = functools.reduce(np.union1d, drawn, np.empty(0, np.int64))
        shots, labels = data.train_images.take(chosen), data.train_labels[chosen]
        return _Classification(data, tokens, shots, labels, [np.searchsorted(chosen, few) for few in drawn])

    def __call__(self, parameters: Parameters) -> dict[str, float]:
        """Evaluate a model, given its parameters on the same devices.

        Returns:
            `{dataset}/zero_shot`, `{dataset}/10_shot` with a train split, and `{dataset}/i2t_r1`, `_r5`,
            `_r10`, and the same for `t2i`; each from 0 to 1.

        Raises:
            ValueError: An image is damaged; the message names shard and example.
        """
        scores = {name: self._classify(parameters, data) for name, data in self._classification.items()}
        for name, (data, captions) in self._retrieval.items():
            images, _ = self._embed_images(parameters, data.images)
            scores[name] = recalls(images, self._embed_texts(parameters, captions), data.image_of_caption)
        return {f"{name}/{metric}": score for name, of in scores.items() for metric, score in of.items()}

    def _classify(self, parameters: Parameters, dataset: _Classification) -> dict[str, float]:
        """Compute zero-shot accuracy, and the mean few-shot accuracy over the draws."""
        data = dataset.data
        images, features = self._embed_images(parameters, data.images)
        classes = class_embeddings(self._embed_texts(parameters, dataset.prompts), len(data.templates))
        scores = {"zero_shot": accuracy(images @ classes.T, data.labels)}
        if dataset.draws:
            _, shots = self._embed_images(parameters, dataset.shots)
            few_shot = [
                accuracy(ridge_probe(shots[i], dataset.shot_labels[i], len(classes), features), data.labels)
                for i in dataset.draws
            ]
            scores[f"{self._config.evaluation.shots}_shot"] = float(np.mean(few_shot))
        return scores

    def extra(self, parameters: Parameters) -> dict[str, float]:
        """Evaluate a model by the custom evaluations of the config.

        Raises:
            ValueError: An evaluation returns anything else than finite numbers by name.
        """
        cfg = self._config.model
        model = EvaluatedModel(
            cfg.vision.image_size,
            self._batch,
            lambda batches: self._apply(self._image_tower, parameters, batches),
            lambda texts: self._embed_texts(parameters, self._tokenizer(texts, cfg.text.length)),
        )
        scores: dict[str, float] = {}
        for name, evaluation in self._extra.items():
            scores |= scores_of(evaluation, model, name)
        return scores

    def _embed_images(self, parameters: Parameters, images: LazyImages) -> list[np.ndarray]:
        """Compute embeddings float32 [n, E] and features float32 [n, D] in one pass over the images."""
        return self._apply(self._image_tower, parameters, images.batches(self._batch, self._threads))

    def _embed_texts(self, parameters: Parameters, tokens: np.ndarray) -> np.ndarray:
        """Embed tokens: int32 [n, L] → float32 [n, E]."""
        parts = (tokens[start : start + self._batch] for start in range(0, len(tokens), self._batch))
        return self._apply(self._text_tower, parameters, parts)[0]

    def _apply(self, tower: Tower, parameters: Parameters, batches: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Compute all outputs of a tower, float32 [n, …]; a batch is fetched while the next is computed."""

        def started(batch: np.ndarray) -> tuple[int, list[jax.Array]]:
            padded = batch
            if missing := self._batch - len(batch):  # `np.pad` would copy whole batches, too
                padded = np.pad(batch, [(0, missing)] + [(0, 0)] * (batch.ndim - 1))
            rows = self._devices.split({"rows": padded[self._devices.rows(len(padded))]})["rows"]
            outputs = tower({"params": parameters}, rows)
            return len(batch), jax.tree.leaves(outputs)

        pairs = itertools.pairwise(itertools.chain(map(started, batches), [(0, [])]))
        fetched = [[np.asarray(output)[:rows] for output in outputs] for (rows, outputs), _ in pairs]
        return [np.concatenate(parts) for parts in zip(*fetched, strict=True)]


@functools.cache
def _tower(config: TwoTowers, method: Callable[..., Any], sharding: jax.sharding.Sharding) -> Tower:
    """Compile a tower once for all evaluators of a process; each process can fetch the whole results."""
    return jax.jit(functools.partial(TwoTowerModel(config).apply, method=method), out_shardings=sharding)
