"""The ridge probe against big_vision's published procedure, reimplemented in float64."""

import itertools

import numpy as np
import pytest

from jestlab.models import evaluation
from jestlab.models.evaluation import RidgeProbe, draw


def published_draw(labels, classes, shots, seed):
    rng = np.random.default_rng(seed)
    positions = [rng.permutation(np.where(labels == c)[0]) for c in range(classes)]
    return np.concatenate([p[:shots] for p in positions])


def published_scores(x, y, x_test, classes, l2_reg=2.0**10):
    """`fewshot_lsr.py`: whiten, constant 100, ±1, eigendecomposition of the smaller Gram matrix."""
    mean, std = x.mean(0, keepdims=True), x.std(0, keepdims=True) + 1e-5
    x, x_test = (np.pad((z - mean) / std, ((0, 0), (0, 1)), constant_values=100.0) for z in (x, x_test))
    y = 2.0 * np.eye(classes)[y] - 1.0
    if x.shape[0] >= x.shape[1]:
        eigs, q = np.linalg.eigh(x.T @ x)
        rhs, lhs = q.T @ (x.T @ y), q
    else:
        eigs, q = np.linalg.eigh(x @ x.T)
        rhs, lhs = q.T @ y, x.T @ q
    return x_test @ ((lhs / (eigs + l2_reg)) @ rhs)


def problem(width, classes=5, per_class=30, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(classes), per_class))
    centres = rng.normal(size=(classes, width))
    return labels, *(3 + 2 * (centres[labels] + rng.normal(size=(len(labels), width))) for _ in range(2))


@pytest.mark.parametrize("width", [4, 49, 50, 200])  # fewer and more features than the 50 examples
def test_scores_are_the_published_ones(width, monkeypatch):
    labels, features, test = problem(width)
    few = draw(labels, 5, 10, 0)
    probe = RidgeProbe.fit(features[few].astype(np.float32), labels[few], 5)
    expected = published_scores(features[few].astype(np.float32).astype(float), labels[few], test, 5)
    np.testing.assert_allclose(probe.scores(test), expected, rtol=1e-6, atol=1e-8)
    accuracy = np.mean(expected.argmax(1) == labels)
    assert probe.accuracy(test, labels) == accuracy and 0.4 < accuracy <= 1
    monkeypatch.setattr(evaluation, "IMAGES_AT_ONCE", 16)  # in blocks
    assert probe.accuracy(test, labels) == accuracy


def test_a_class_without_training_images_has_a_column_and_a_constant_feature_does_no_harm():
    labels, features, test = problem(8)
    labels = np.where(labels >= 2, labels + 1, labels)  # of six classes, none is of class 2
    few = draw(labels, 6, 10, 0)
    scores = RidgeProbe.fit(features[few], labels[few], 6).scores(test)
    np.testing.assert_allclose(scores, published_scores(features[few], labels[few], test, 6), rtol=1e-6)
    assert scores.shape == (150, 6)
    # A constant feature does no harm.
    labels, features, test = problem(4)
    features[:, 1] = test[:, 1] = 7.0
    scores = RidgeProbe.fit(features, labels, 5).scores(test)
    np.testing.assert_allclose(scores, published_scores(features, labels, test, 5), rtol=1e-5)


def test_draws_are_the_published_ones():
    labels = np.random.default_rng(7).integers(0, 12, 300)
    labels[labels == 11] = 3  # the last class has no image
    for seed, shots in itertools.product((0, 1, 2), (1, 10, 50)):
        np.testing.assert_array_equal(draw(labels, 12, shots, seed), published_draw(labels, 12, shots, seed))
