"""Metrics of an evaluation: zero-shot and few-shot accuracy and retrieval recall.

Each is computed as in big_vision, whose numbers SigLIP and JEST report: `discriminative_classifier`,
`fewshot_lsr` and `image_text_retrieval`. Differences are stated where they are.

Letters: n images, m captions, C classes, T templates, E embedding width, D features (+1 for the constant),
λ ridge, k recall rank.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

IMAGES_AT_ONCE = 4_096  # images compared with all classes at a time
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def canonical(text: str, keep: str) -> str:
    """Replace `_` by space, strip punctuation but the string `keep`, lower the case, collapse spaces."""
    parts = text.replace("_", " ").split(keep)
    text = keep.join(part.translate(_NO_PUNCTUATION) for part in parts)
    return re.sub(r"\s+", " ", text.lower()).strip()


def prompts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Put every class into every template, class by class; names and templates are made canonical first.

    Args:
        class_names: C names; of aliases separated by commas the first counts.
        templates: T templates with `{c}` (CLIP_benchmark's) or `{}` (big_vision's) where the name goes.

    Returns:
        C × T prompts.
    """
    names = [canonical(name, keep=",").split(",")[0] for name in class_names]
    forms = [canonical(template.replace("{c}", "{}"), keep="{}") for template in templates]
    return [form.replace("{}", name) for name in names for form in forms]


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

    Returns:
        Accuracy in 0…1.
    """
    right = 0
    for start in range(0, len(labels), IMAGES_AT_ONCE):
        block = slice(start, start + IMAGES_AT_ONCE)
        right += int(np.sum(np.argmax(images[block] @ classes.T, axis=-1) == labels[block]))
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
        """Compute the share of images whose best score is that of their class.

        Args:
            features: float [m, D].
            labels: int [m].
        """
        right = 0
        for start in range(0, len(labels), IMAGES_AT_ONCE):
            block = slice(start, start + IMAGES_AT_ONCE)
            right += int(np.sum(np.argmax(self.scores(features[block]), axis=-1) == labels[block]))
        return right / len(labels)


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
