"""Evaluate a model on a folder of CLIP_benchmark datasets: zero-shot and few-shot accuracy, retrieval recall.

Each metric is computed as in big_vision, whose numbers SigLIP and JEST report: `discriminative_classifier`,
`fewshot_lsr` and `image_text_retrieval`. Differences are stated where they are.

Letters: n images, m captions, C classes, T templates, L tokens, E embedding width, D features (+1 for the
constant), λ ridge, k recall rank.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jestlab.models.config import TrainConfig, TwoTowers
from jestlab.models.data.benchmarks import ClassificationSet, load_benchmark
from jestlab.models.data.class_names import prompts
from jestlab.models.data.images import LazyImages, keep_within
from jestlab.models.data.tokenizer import Tokenizer
from jestlab.models.devices import Devices
from jestlab.models.evaluated import EvaluatedModel, scores_of
from jestlab.models.extensions import Own
from jestlab.models.two_towers import OwnVision, Parameters, TwoTowerModel, VisionTransformer

IMAGES_AT_ONCE = 4_096  # images compared with all classes at a time
_LOG = logging.getLogger(__name__)


def class_embeddings(prompt_embeddings: np.ndarray, templates: int) -> np.ndarray:
    """Average over a class's templates, and normalise again: z / (‖z‖ + 1e-8).

    Args:
        prompt_embeddings: float32 [C × T, E], unit length, in the order of `prompts`.
        templates: T.

    Returns:
        float32 [C, E].
    """
    z = prompt_embeddings.reshape(-1, templates, prompt_embeddings.shape[-1]).mean(axis=1)
    result: np.ndarray = z / (np.linalg.norm(z, axis=-1, keepdims=True) + 1e-8)
    return result


def zero_shot_accuracy(images: np.ndarray, classes: np.ndarray, labels: np.ndarray) -> float:
    """Compute the share of images whose nearest class embedding is that of their class.

    Args:
        images: float32 [n, E].
        classes: float32 [C, E].
        labels: int [n].
    """
    return _accuracy(lambda block: block @ classes.T, images, labels)


def _accuracy(scores: Callable[[np.ndarray], np.ndarray], x: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows whose best score, of [rows, C], is that of their class."""
    right = 0
    for start in range(0, len(labels), IMAGES_AT_ONCE):
        block = slice(start, start + IMAGES_AT_ONCE)
        right += int(np.sum(np.argmax(scores(x[block]), axis=-1) == labels[block]))
    return right / len(labels)


CONSTANT_FEATURE = 100.0  # the constant feature: large, so that the ridge hardly shrinks its weight
RIDGE = 2.0**10  # λ


def draw(labels: np.ndarray, classes: int, shots: int, seed: int) -> np.ndarray:
    """Draw a few images of each class.

    Args:
        labels: int [n].
        classes: C.
        shots: Images a class; all of a class that has fewer.
        seed: Of the draw.

    Returns:
        int64 [≤ C · shots], positions in `labels`, class by class.
    """
    rng = np.random.default_rng(seed)
    by_class = np.argsort(labels, kind="stable")
    of_class = np.split(by_class, np.searchsorted(labels[by_class], np.arange(1, classes)))
    return np.concatenate([rng.permutation(positions)[:shots] for positions in of_class])


class RidgeProbe(NamedTuple):
    """A linear classifier on whitened features, by ridge regression."""

    weights: np.ndarray  # float64 [D + 1, C]
    mean: np.ndarray  # float64 [D]
    std: np.ndarray  # float64 [D]

    @classmethod
    def fit(cls, features: np.ndarray, labels: np.ndarray, classes: int) -> RidgeProbe:
        """Whiten the features, append a constant, and solve for targets ±1.

        W = (XᵀX + λI)⁻¹ XᵀY = Xᵀ (XXᵀ + λI)⁻¹ Y: the smaller of the two systems is solved.

        Args:
            features: float [n, D], not normalised.
            labels: int [n].
            classes: C; a class without images is one that no image is of.
        """
        features = features.astype(np.float64)
        mean, std = features.mean(axis=0), features.std(axis=0) + 1e-5
        x = _with_bias((features - mean) / std)
        y = np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)
        n, d = x.shape
        if n >= d:
            weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(d), x.T @ y)
        else:
            weights = x.T @ np.linalg.solve(x @ x.T + RIDGE * np.eye(n), y)
        return cls(weights, mean, std)

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Compute the scores of each class: float [m, D] → float64 [m, C]."""
        scores: np.ndarray = _with_bias((features - self.mean) / self.std) @ self.weights
        return scores

    def accuracy(self, features: np.ndarray, labels: np.ndarray) -> float:
        """Compute the share of images, float [m, D], whose best score is that of their class, int [m]."""
        return _accuracy(self.scores, features, labels)


def _with_bias(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.full((len(x), 1), CONSTANT_FEATURE)], axis=1)


RANKS = (1, 5, 10)  # k
PRODUCTS_AT_ONCE = 2**23  # products that are held at a time: 32 MiB, and never n × m


def recalls(images: np.ndarray, captions: np.ndarray, image_of_caption: np.ndarray) -> dict[str, float]:
    """Compute recall at 1, 5 and 10 in both directions.

    Image→text counts a hit if any of the image's captions is among its k nearest captions; text→image if the
    caption's image is among its k nearest images. big_vision leaves ties to the order of a sort; here a
    target that is as near as the right one counts as nearer, and so does one whose product is NaN: a model
    that maps everything to one point, or to NaN, scores 0 instead of 1.

    Args:
        images: float32 [n, E], unit length.
        captions: float32 [m, E], unit length.
        image_of_caption: int [m], the image that each caption belongs to.

    Returns:
        `i2t_r1`, `i2t_r5`, `i2t_r10`, `t2i_r1`, `t2i_r5`, `t2i_r10`, each in 0…1.
    """
    by_image = np.argsort(image_of_caption, kind="stable")
    nearer = {
        "i2t": _nearer(images, captions, image_of_caption[by_image], by_image),
        "t2i": _nearer(captions, images, np.arange(len(captions)), image_of_caption),
    }
    return {f"{way}_r{k}": float(np.mean(count < k)) for way, count in nearer.items() for k in RANKS}


def _nearer(
    queries: np.ndarray, targets: np.ndarray, pair_query: np.ndarray, pair_target: np.ndarray
) -> np.ndarray:
    """Count the wrong targets that are at least as near to each query as its nearest right one.

    Args:
        queries: float32 [q, E].
        targets: float32 [t, E].
        pair_query: int [p], query of each pair that belongs together, ascending.
        pair_target: int [p], its target.

    Returns:
        int64 [q].
    """
    rows = max(1, PRODUCTS_AT_ONCE // len(targets))
    counts = []
    for start in range(0, len(queries), rows):
        similarity = queries[start : start + rows] @ targets.T
        pairs = slice(*np.searchsorted(pair_query, [start, start + rows]))
        row = pair_query[pairs] - start
        right = similarity[row, pair_target[pairs]]
        best = np.full(len(similarity), -np.inf, similarity.dtype)
        with np.errstate(invalid="ignore"):
            np.maximum.at(best, row, right)
        # "Not farther" instead of "as near": NaN is neither.
        not_farther = np.count_nonzero(~(similarity < best[:, None]), axis=1)
        right_not_farther = np.bincount(row, ~(right < best[row]), minlength=len(similarity))
        counts.append(not_farther - right_not_farther.astype(np.int64))
    return np.concatenate(counts)


BATCH = 256  # examples a forward pass; the last one is padded, so that one compiled function serves all


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
        """Index the benchmark and draw the few shots; see to it that images of small sets are decoded once.

        Args:
            config: The run: model, shots, threads.
            folder: Holds one CLIP_benchmark folder a dataset.
            tokenizer: The run's tokenizer.
            devices: What to compute on; None: one device. Batches have 256 rows, rounded up to a multiple of
                the number of devices; each process reads all of them, and computes its own part.

        Raises:
            FileNotFoundError: No dataset there, or one that lacks a file.
            ValueError: A dataset is damaged, or has the name of an evaluation of `evaluation.extra`.
        """
        self._config = config
        self._devices = devices or Devices(jax.devices()[:1])
        self._batch = -(-BATCH // self._devices.count) * self._devices.count
        self._threads = max(2, config.runtime.loader_threads)
        length = config.model.text.length
        benchmark = load_benchmark(folder, config.model.vision.image_size)
        self._classification = {
            name: self._ready(name, data, tokenizer) for name, data in benchmark.classification.items()
        }
        self._retrieval = {
            name: _Retrieval(data.images, tokenizer(data.captions, length), data.image_of_caption)
            for name, data in benchmark.retrieval.items()
        }
        read = [images for data in self._classification.values() for images in (data.images, data.shots)]
        read += [data.images for data in self._retrieval.values()]
        keep_within(config.runtime.decoded_megabytes * 10**6, read, self._threads)

        self._tokenizer = tokenizer
        if taken := config.evaluation.extra.keys() & {*self._classification, *self._retrieval}:
            raise ValueError(
                f"evaluation.extra.{min(taken)}: a dataset of the benchmark has this name: choose another"
            )
        self._extra = {
            name: Own.load("evaluation", extra.function, extra.options)
            for name, extra in config.evaluation.extra.items()
        }
        # The results are on all devices, so that each process can fetch all of them.
        self._image_tower, self._text_tower = _towers(config.model, self._devices.replicated)

    def _ready(self, name: str, data: ClassificationSet, tokenizer: Tokenizer) -> _Classification:
        """Tokenise the prompts and draw the shots of a dataset."""
        cfg, classes = self._config.evaluation, len(data.class_names)
        seeds = range(cfg.shot_seeds if len(data.train_labels) else 0)
        drawn = [draw(data.train_labels, classes, cfg.shots, seed) for seed in seeds]
        chosen = np.unique(np.concatenate([np.empty(0, np.int64), *drawn]))
        tokens = tokenizer(prompts(data.class_names, data.templates), self._config.model.text.length)
        _, first = np.unique(tokens.reshape(classes, -1), axis=0, return_index=True)
        if equal := np.delete(data.class_names, first).tolist():
            text = "%s: zero-shot never finds %d classes with the tokens of earlier ones, such as %r"
            _LOG.warning(text, name, len(equal), equal[0])
        return _Classification(
            data.images,
            data.labels,
            tokens,
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

    def extra(self, parameters: Parameters) -> dict[str, float]:
        """Evaluate a model, as `__call__` does, by the evaluations of one's own that the config names.

        Raises:
            ValueError: One returns something else than finite numbers by name.
        """
        towers = (
            lambda batches: self._run(self._image_tower, parameters, batches),
            lambda tokens: self._texts(parameters, tokens),
        )
        cfg = self._config.model
        model = EvaluatedModel(towers, self._tokenizer, cfg.vision.image_size, cfg.text.length, self._batch)
        scores: dict[str, float] = {}
        for name, evaluation in self._extra.items():
            scores |= scores_of(evaluation, model, name)
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


@functools.cache
def _towers(
    config: TwoTowers, everywhere: jax.sharding.Sharding
) -> tuple[Callable[..., tuple[jax.Array, ...]], Callable[..., tuple[jax.Array, ...]]]:
    """Compile the towers once for all evaluators of a process: (parameters, batch) → outputs."""
    model = TwoTowerModel(config)
    of_images = functools.partial(_embeddings_and_features, model)

    def of_texts(parameters: Parameters, tokens: jax.Array) -> tuple[Any]:
        return (model.apply({"params": parameters}, tokens, method=TwoTowerModel.embed_texts),)

    return jax.jit(of_images, out_shardings=everywhere), jax.jit(of_texts, out_shardings=everywhere)


def _embeddings_and_features(
    model: TwoTowerModel, parameters: Parameters, images: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute what `embed_images` and `features` give, in one pass.

    The image tower returns both, so its output is captured on the way: of two calls XLA would merge the
    blocks only where they are not scanned.
    """

    def of_the_tower(module: Any, method: str) -> bool:
        return isinstance(module, VisionTransformer | OwnVision) and method == "__call__"

    embeddings, state = model.apply(
        {"params": parameters},
        images,
        method=TwoTowerModel.embed_images,
        capture_intermediates=of_the_tower,
        mutable=["intermediates"],
    )
    ((_, features),) = state["intermediates"]["img"]["__call__"]
    return embeddings, features
