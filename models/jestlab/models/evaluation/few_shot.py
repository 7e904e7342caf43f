"""Few-shot classification by a ridge probe on frozen features, as big_vision's `fewshot_lsr`.

It solves in float32 by an eigendecomposition, which serves many λ at once; here is one λ, and one linear
system in float64.

Letters: n images, D features (+1 for the constant), C classes, λ ridge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BIAS = 100.0  # the constant feature: large, so that the ridge hardly shrinks its weight
RIDGE = 2.0**10  # λ
BLOCK = 4_096  # test images whose float64 features and scores are held at a time


def draw(labels: np.ndarray, classes: int, shots: int, seed: int) -> np.ndarray:
    """Choose a few images of each class.

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
    """A linear classifier on whitened features."""

    weights: np.ndarray  # float64 [D + 1, C]
    mean: np.ndarray  # float64 [D]
    std: np.ndarray  # float64 [D]

    @classmethod
    def fit(cls, features: np.ndarray, labels: np.ndarray, classes: int) -> RidgeProbe:
        """Whiten, append a constant, and solve for targets ±1.

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
        """float [m, D] → float64 [m, C]."""
        scores: np.ndarray = _with_bias((features - self.mean) / self.std) @ self.weights
        return scores

    def accuracy(self, features: np.ndarray, labels: np.ndarray) -> float:
        """Share of images whose best score is their class's.

        Args:
            features: float [m, D].
            labels: int [m].
        """
        right = 0
        for start in range(0, len(labels), BLOCK):
            block = slice(start, start + BLOCK)
            right += int(np.sum(np.argmax(self.scores(features[block]), axis=-1) == labels[block]))
        return right / len(labels)


def _with_bias(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.full((len(x), 1), BIAS)], axis=1)
