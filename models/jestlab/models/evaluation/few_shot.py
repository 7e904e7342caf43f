"""Few-shot classification by a ridge probe on frozen features, as big_vision's `fewshot_lsr`.

Letters: n images, D features (+1 for the constant), C classes, λ ridge.
"""

from __future__ import annotations

import numpy as np

BIAS = 100.0  # the constant feature: large, so that the ridge hardly shrinks its weight
RIDGE = 2.0**10  # λ


def few_shot_accuracy(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    test_features: np.ndarray,
    test_labels: np.ndarray,
    *,
    shots: int = 10,
    seeds: int = 3,
) -> float:
    """Mean test accuracy of probes trained on a few images a class.

    Args:
        train_features: float [n, D], not normalised; the few are drawn from these.
        train_labels: int [n].
        test_features: float [m, D].
        test_labels: int [m].
        shots: Images a class; all of a class that has fewer.
        seeds: Independent draws, seeded 0, 1, …

    Returns:
        Accuracy in 0…1, mean over the draws.
    """
    classes = np.unique(train_labels)
    accuracies = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        few = np.concatenate([rng.permutation(np.flatnonzero(train_labels == c))[:shots] for c in classes])
        weights, mean, std = _ridge(train_features[few], train_labels[few], classes)
        scores = _with_bias((test_features - mean) / std) @ weights
        accuracies.append(float(np.mean(classes[np.argmax(scores, axis=-1)] == test_labels)))
    return float(np.mean(accuracies))


def _ridge(
    features: np.ndarray, labels: np.ndarray, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights [D + 1, C] on whitened features with a constant, targets ±1; also the whitening's mean and std.

    W = (XᵀX + λI)⁻¹ XᵀY = Xᵀ (XXᵀ + λI)⁻¹ Y: the smaller of the two systems is solved, in float64.
    """
    features = features.astype(np.float64)
    mean, std = features.mean(axis=0), features.std(axis=0) + 1e-5
    x = _with_bias((features - mean) / std)
    y = np.where(labels[:, None] == classes[None, :], 1.0, -1.0)
    n, d = x.shape
    if n >= d:
        weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(d), x.T @ y)
    else:
        weights = x.T @ np.linalg.solve(x @ x.T + RIDGE * np.eye(n), y)
    return weights, mean, std


def _with_bias(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.full((len(x), 1), BIAS)], axis=1)
