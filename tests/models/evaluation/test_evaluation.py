"""The four scores against slow, plain versions of their definitions."""

import numpy as np
import pytest

from jestlab.models.evaluation.few_shot import BIAS, RIDGE, few_shot_accuracy
from jestlab.models.evaluation.retrieval import recall_at_k
from jestlab.models.evaluation.zero_shot import (
    canonical_class_name,
    class_embeddings,
    prompts,
    zero_shot_accuracy,
)


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    "raw, canonical",
    [("Sea_Lion, Otariinae", "sea lion"), ("St. Bernard", "st bernard"), ("  red   circle ", "red circle")],
)
def test_class_names_are_canonical(raw, canonical):
    assert canonical_class_name(raw) == canonical


def test_prompts_fill_both_forms_of_template_class_by_class():
    assert prompts(["A_b", "c"], ["a photo of {c}.", "{}!"]) == [
        "a photo of a b.",
        "a b!",
        "a photo of c.",
        "c!",
    ]


def test_class_embedding_is_the_normalised_mean_over_templates():
    z = unit(np.random.default_rng(0).normal(size=(6, 5)))
    classes = class_embeddings(z, 2)
    np.testing.assert_allclose(classes, unit(z.reshape(3, 2, 5).mean(1)), rtol=1e-5)


def test_zero_shot_is_the_share_of_nearest_classes():
    classes = np.eye(3, dtype=np.float32)
    images = unit(np.array([[1, 0.1, 0], [0, 1, 0.2], [0.3, 0, 1], [1, 0, 0]]))
    assert zero_shot_accuracy(images, classes, np.array([0, 1, 2, 2])) == 0.75


def slow_recall(queries, targets, hit, k):
    hits = 0
    for i, query in enumerate(queries):
        order = np.argsort(-(targets @ query), kind="stable")[:k]
        hits += any(hit(i, j) for j in order)
    return hits / len(queries)


@pytest.mark.parametrize("k", [1, 5])
def test_recall_is_that_of_sorting_with_several_captions_an_image(k):
    rng = np.random.default_rng(0)
    images = unit(rng.normal(size=(60, 8)))
    image_of_caption = np.repeat(np.arange(60), 3)
    captions = unit(images[image_of_caption] + 0.5 * rng.normal(size=(180, 8)))
    i2t, t2i = recall_at_k(images, captions, image_of_caption, k)
    assert i2t == slow_recall(images, captions, lambda i, j: image_of_caption[j] == i, k)
    assert t2i == slow_recall(captions, images, lambda i, j: image_of_caption[i] == j, k)
    assert 0.2 < t2i < 1


def test_recall_is_the_same_in_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    images = unit(rng.normal(size=(70, 8)))
    captions = unit(images + 0.5 * rng.normal(size=(70, 8)))
    whole = recall_at_k(images, captions, np.arange(70))
    monkeypatch.setattr("jestlab.models.evaluation.retrieval.BLOCK", 16)
    assert recall_at_k(images, captions, np.arange(70)) == whole


def test_a_collapsed_model_retrieves_nothing():
    same = np.tile(unit(np.ones((1, 4))), (10, 1))
    assert recall_at_k(same, same, np.arange(10)) == (0.0, 0.0)


@pytest.mark.parametrize("width", [4, 200])  # fewer and more features than examples
def test_few_shot_is_ridge_regression_by_the_normal_equations(width):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 30)
    centres = rng.normal(size=(3, width))
    features, test = (centres[labels] + rng.normal(size=(90, width)) for _ in range(2))
    accuracy = few_shot_accuracy(features, labels, test, labels, shots=10, seeds=2)

    expected = []
    for seed in range(2):
        generator = np.random.default_rng(seed)
        few = np.concatenate([generator.permutation(np.where(labels == c)[0])[:10] for c in range(3)])
        mean, std = features[few].mean(0), features[few].std(0) + 1e-5
        x, x_test = (np.c_[(f - mean) / std, np.full(len(f), BIAS)] for f in (features[few], test))
        y = 2.0 * (labels[few][:, None] == np.arange(3)) - 1
        w = np.linalg.lstsq(
            np.r_[x, np.sqrt(RIDGE) * np.eye(width + 1)], np.r_[y, np.zeros((width + 1, 3))], rcond=None
        )[0]
        expected.append(np.mean((x_test @ w).argmax(1) == labels))
    assert accuracy == pytest.approx(np.mean(expected))
    assert 0.4 < accuracy <= 1
