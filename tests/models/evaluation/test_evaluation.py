"""Metrics against big_vision's published procedures in float64, and the evaluator on real folders."""

import itertools
import json
import re
import shutil
import string
from unittest import mock

import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.models.support.parameters import random_parameters

from jestlab.models import evaluation
from jestlab.models.config import ShapesBenchmark, TrainConfig
from jestlab.models.config.train import ExtraEvaluation
from jestlab.models.data import images as image_module
from jestlab.models.data import shapes
from jestlab.models.data.benchmarks import load_benchmark, prompts
from jestlab.models.data.files import DERIVED
from jestlab.models.data.images import decode
from jestlab.models.data.tokenizer import train_tokenizer
from jestlab.models.devices import Devices
from jestlab.models.evaluation import Evaluator, accuracy, class_embeddings, draw, recalls, ridge_probe
from jestlab.models.two_towers import TwoTowerModel


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


# ---- zero-shot


def published_canonical(text, keep):
    """`prompt_engineering.py`; `keep` is punctuation that stays."""
    cut = [
        "".join(c for c in part if c not in string.punctuation) for part in text.replace("_", " ").split(keep)
    ]
    return re.sub(r"\s+", " ", keep.join(cut).lower()).strip()


def published_prompts(class_names, templates):
    names = [published_canonical(name, ",").split(",")[0] for name in class_names]
    forms = [published_canonical(template, "{}") for template in templates]
    return [form.split("{}")[0] + name + form.split("{}")[1] for name in names for form in forms]


@given(
    st.lists(st.text("aBé7 _,.-'()/\n\t{}", max_size=12), min_size=1, max_size=3),
    st.lists(st.tuples(*[st.text("aB _,.-'()", max_size=8)] * 2), min_size=1, max_size=3),
    st.sampled_from(["{c}", "{}"]),
)
def test_prompts_are_the_published_ones(names, templates, place):
    ours = prompts(names, [before + place + after for before, after in templates])
    assert ours == published_prompts(names, [f"{before}{{}}{after}" for before, after in templates])


def test_class_embedding_is_the_normalized_mean_over_templates():
    z = unit(np.random.default_rng(0).normal(size=(6, 5)))
    mean = z.astype(float).reshape(3, 2, 5).mean(axis=1)
    expected = mean / (1e-8 + np.linalg.norm(mean, axis=1, keepdims=True))
    np.testing.assert_allclose(class_embeddings(z, 2), expected, rtol=1e-6)
    assert np.isfinite(class_embeddings(np.zeros((2, 4), np.float32), 2)).all()


# ---- few-shot


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


@pytest.mark.parametrize(
    "width, absent_class, constant",
    [(4, 5, None), (49, 5, None), (50, 5, None), (200, 5, None), (8, 2, None), (4, 5, 1)],
    # fewer and more features than the 50 examples; a class without images; a constant feature
)
def test_scores_and_accuracy_of_a_probe_are_the_published_ones(width, absent_class, constant):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat([c for c in range(6) if c != absent_class], 30))
    centers = rng.normal(size=(6, width))
    features, test = (3 + 2 * (centers[labels] + rng.normal(size=(150, width))) for _ in range(2))
    if constant is not None:
        features[:, constant] = test[:, constant] = 7.0
    few = draw(labels, 6, 10, 0)
    x = features[few].astype(np.float32)
    expected = published_scores(x.astype(float), labels[few], test, 6)
    scores = ridge_probe(x, labels[few], 6, test)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-8)
    assert 0.4 < accuracy(scores, labels) == np.mean(expected.argmax(1) == labels) <= 1


def test_draws_are_the_published_ones():
    labels = np.random.default_rng(7).integers(0, 12, 300)
    labels[labels == 11] = 3  # the last class has no image
    for seed, shots in itertools.product((0, 1, 2), (1, 10, 50)):
        rng = np.random.default_rng(seed)
        positions = [rng.permutation(np.where(labels == c)[0])[:shots] for c in range(12)]
        np.testing.assert_array_equal(draw(labels, 12, shots, seed), np.concatenate(positions))


# ---- retrieval


def published_recalls(images, captions, image_of_caption):
    """`image_text_retrieval.py` on the whole distance matrix, in float64."""
    distance = -(images.astype(float) @ captions.astype(float).T)
    by_image, by_text = distance.argsort(axis=1), distance.argsort(axis=0)
    result = {}
    for k in (1, 5, 10):
        found = image_of_caption[by_image[:, :k]] == np.arange(len(images))[:, None]
        result[f"i2t_r{k}"] = found.any(axis=1).mean()
        result[f"t2i_r{k}"] = (by_text[:k] == image_of_caption[None]).any(axis=0).mean()
    return result


def hit_bounds(scores, is_own, k, slack):
    """Bounds of the share of rows with an own target among the best k: all ties are wrong, or right."""
    best = np.where(is_own, scores, -np.inf).max(axis=1, keepdims=True)
    nearer = ((~is_own & (scores >= best + change)).sum(axis=1) for change in (-slack, slack))
    return tuple(np.mean(count < k) for count in nearer)


def recall_bounds(images, captions, image_of_caption, slack=1e-6):
    similarity = images.astype(float) @ captions.astype(float).T
    is_own = image_of_caption == np.arange(len(images))[:, None]
    ways = {"i2t": (similarity, is_own), "t2i": (similarity.T, is_own.T)}
    return {f"{way}_r{k}": hit_bounds(*both, k, slack) for way, both in ways.items() for k in (1, 5, 10)}


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 6), st.sampled_from([1, 50, 2**23]))
def test_recalls_are_the_published_ones_for_any_blocks(seed, n, most, block):
    """Of n images with 1 to `most` captions each, in any order."""
    rng = np.random.default_rng(seed)
    image_of_caption = rng.permutation(np.repeat(np.arange(n), rng.integers(1, most + 1, n)))
    images = unit(rng.normal(size=(n, 8)))
    captions = unit(images[image_of_caption] + 0.6 * rng.normal(size=(len(image_of_caption), 8)))
    data = images, captions, image_of_caption
    assume(all(low == high for low, high in recall_bounds(*data).values()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "PRODUCTS_AT_ONCE", block)
        assert recalls(*data) == published_recalls(*data)


@pytest.mark.parametrize("value", [1.0, np.nan])
def test_a_collapsed_or_diverged_model_retrieves_nothing(value):
    same = np.full((40, 4), value / 2, np.float32)
    assert set(recalls(same, same, np.arange(40)).values()) == {0.0}
    assert set(recalls(same[:20], same, np.repeat(np.arange(20), 2)).values()) == {0.0}


def test_ties_count_against_a_model_except_between_captions_of_one_image():
    images = np.eye(3, dtype=np.float32)
    captions = images[[0, 0, 0, 1, 1]]  # the last one is wrong, and ties with the right one of image 1
    found = recalls(images, captions, np.array([0, 0, 0, 1, 2]))
    expected = dict.fromkeys(found, 1) | {"i2t_r1": 1 / 3, "t2i_r1": 4 / 5}
    assert found == pytest.approx(expected)
    found = recalls(images[[0, 0, 1]], images[[0, 0, 1]], np.arange(3))
    assert found == pytest.approx(expected | {"t2i_r1": 1 / 3})


# ---- the evaluator


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The synthetic datasets, and one without a train split."""
    folder = tmp_path_factory.mktemp("benchmark")
    settings = ShapesBenchmark(classification_examples=300, retrieval_examples=40, image_size=16)
    shapes.make_benchmark(folder, settings)
    ignored = shutil.ignore_patterns("train", DERIVED)
    shutil.copytree(folder / "shapes_classification", folder / "wds_vtab-pets", ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a red circle", "a photo of a pug", "a blue square on a background"] * 5, 64)


@pytest.fixture(scope="module")
def config(tiny):
    """The tiny model with a head, so that features are not embeddings; no caption is cut off."""
    tree = json.loads(json.dumps(tiny))
    tree["model"]["text"]["length"] = 48
    tree["model"]["embedding_dim"] = 12
    tree["evaluation"] = {"points": 1, "shots": 3, "shot_seeds": 2}
    return TrainConfig.model_validate(tree)


@pytest.fixture(scope="module")
def evaluator(folder, config, tokenizer):
    def make(folder=folder, **overrides):
        changed = config.model_copy(update=overrides)
        return Evaluator(changed, folder, tokenizer, Devices(jax.devices()[:1]))

    return make


def accuracy_bounds(scores, labels, slack=1e-5):
    return hit_bounds(scores, labels[:, None] == np.arange(scores.shape[1]), 1, slack)


def test_every_score_is_that_of_its_parts(folder, evaluator, config, tokenizer):
    """Computed from whole arrays, each tower called for itself."""
    parameters = random_parameters(config.model)
    model, length = TwoTowerModel(config.model), config.model.text.length

    def tower(method, x):
        apply = jax.jit(lambda p, x: model.apply({"params": p}, x, method=method))
        return jax.tree.map(np.asarray, apply(parameters, x))

    def embedded(images):
        return tower(TwoTowerModel.images_and_features, np.concatenate(list(images.batches(64))))

    found, expected = load_benchmark(folder, 16), {}
    for name, data in found.classification.items():
        texts = tower(TwoTowerModel.embed_texts, tokenizer(prompts(data.class_names, data.templates), length))
        images, test = embedded(data.images)
        classes = class_embeddings(texts, len(data.templates))
        expected[f"{name}/zero_shot"] = accuracy_bounds(images @ classes.T, data.labels)
        if len(data.train_images):
            _, train = embedded(data.train_images)
            draws = [draw(data.train_labels, 48, 3, seed) for seed in (0, 1)]
            probes = [ridge_probe(train[few], data.train_labels[few], 48, test) for few in draws]
            bounds = [accuracy_bounds(probe, data.labels, 1e-3) for probe in probes]
            expected[f"{name}/3_shot"] = np.mean(bounds, axis=0)
    for name, pairs in found.retrieval.items():
        images, _ = embedded(pairs.images)
        texts = tower(TwoTowerModel.embed_texts, tokenizer(pairs.captions, length))
        bounds = recall_bounds(images, texts, pairs.image_of_caption, 1e-5)
        expected |= {f"{name}/{metric}": value for metric, value in bounds.items()}

    evaluate = evaluator()
    scores = evaluate(parameters)
    retrieval = {f"shapes_retrieval/{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)}
    assert set(scores) == set(expected)
    assert set(scores) == retrieval | {"shapes/zero_shot", "shapes/3_shot", "vtab-pets/zero_shot"}
    for name, (low, high) in expected.items():  # rounding, which differs for other batch shapes, decides few
        assert low - 1e-9 <= scores[name] <= high + 1e-9, name
        assert high - low < 0.05, name
    assert evaluate(parameters) == scores


def test_an_image_is_decoded_once_a_pass_and_only_if_needed(folder, evaluator, config, monkeypatch, tmp_path):
    parameters = random_parameters(config.model)
    storing_none = config.runtime.model_copy(update={"decoded_megabytes": 0})
    decoded = mock.Mock(side_effect=decode)
    monkeypatch.setattr(image_module, "decode", decoded)
    train = load_benchmark(folder, 16).classification["shapes"].train_labels
    drawn = np.unique(np.concatenate([draw(train, 48, 3, seed) for seed in (0, 1)]))
    assert 48 * 3 < len(drawn) < len(train) / 2
    once = 300 + 300 + 40 + len(drawn)
    folder = shutil.copytree(folder, tmp_path / "benchmark", ignore=shutil.ignore_patterns(DERIVED))
    for _ in range(2):
        evaluate = evaluator(folder)
        kept = [evaluate(parameters) for _ in range(2)]
        assert len(decoded.mock_calls) == once  # small: for all runs
    decoded.reset_mock()
    evaluate = evaluator(folder, runtime=storing_none)
    assert not decoded.called
    assert [evaluate(parameters) for _ in range(2)] == kept
    assert len(decoded.mock_calls) == 2 * once


def test_an_evaluation_with_the_name_of_a_dataset_is_refused(config, evaluator):
    """Its scores would replace the dataset's."""
    extra = {"vtab-pets": ExtraEvaluation(function="mine.py:evaluate")}
    with pytest.raises(ValueError, match=r"evaluation\.extra\.vtab-pets: a dataset of the benchmark has"):
        evaluator(evaluation=config.evaluation.model_copy(update={"extra": extra}))


def test_classes_with_the_same_tokens_are_named(config, evaluator, caplog):
    evaluator()
    assert "never finds" not in caplog.text
    text = config.model.text.model_copy(update={"length": 1})
    evaluator(model=config.model.model_copy(update={"text": text}))
    assert re.search(r"vtab-pets: zero-shot never finds .*red square", caplog.text)
