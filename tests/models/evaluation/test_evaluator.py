"""The evaluator on real folders: every score against its parts, each image decoded once."""

import io
import json
import shutil
from typing import NamedTuple

import jax
import numpy as np
import pytest
from PIL import Image
from tests.models.support.parameters import random_parameters

from jestlab.models.config import ShapesBenchmark, TrainConfig
from jestlab.models.config.train import ExtraEvaluation
from jestlab.models.data import images as image_module
from jestlab.models.data import shapes
from jestlab.models.data.benchmarks import load_benchmark, prompts
from jestlab.models.data.files import DERIVED
from jestlab.models.data.images import decode
from jestlab.models.data.tars import TarWriter
from jestlab.models.data.tokenizer import train_tokenizer
from jestlab.models.devices import Devices
from jestlab.models.evaluation import Evaluator, class_embeddings, draw, ridge_probe
from jestlab.models.two_towers import TwoTowerModel

BENCHMARK = ShapesBenchmark(classification_examples=300, retrieval_examples=40, image_size=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The synthetic datasets, and one of photographs in three formats without a train split."""
    folder = tmp_path_factory.mktemp("benchmark")
    shapes.make_benchmark(folder, BENCHMARK)
    pets = folder / "wds_vtab-pets" / "test"
    pets.mkdir(parents=True)
    rng = np.random.default_rng(0)
    with TarWriter(pets / "0.tar") as tar:
        for i, (extension, form) in enumerate((("jpg", "JPEG"), ("webp", "WEBP"), ("png", "PNG")) * 4):
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).save(file, form)
            tar.add(f"s{i:07d}.{extension}", file.getvalue())
            tar.add(f"s{i:07d}.cls", b"%d" % (i % 2))
    (pets / "nshards.txt").write_text("1\n")
    (pets.parent / "classnames.txt").write_text("pug, mops\nMaine_Coon\n")
    (pets.parent / "zeroshot_classification_templates.txt").write_text("a photo of a {c}, a type of pet.\n")
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
def parameters(config):
    return random_parameters(config.model)


class Bounds(NamedTuple):
    """Of a share of right answers: with all that rounding may decide counted as wrong, and as right."""

    low: float
    high: float


def accuracy_bounds(scores, labels, slack):
    """Of scores that are known to half of `slack`, float [examples, classes]."""
    is_own = labels[:, None] == np.arange(scores.shape[1])
    margins = scores[is_own] - np.where(is_own, -np.inf, scores).max(axis=1)
    return Bounds(np.mean(margins > slack), np.mean(margins > -slack))


def recall_bounds(images, captions, image_of_caption, slack):
    similarity = images.astype(float) @ captions.astype(float).T
    belongs = image_of_caption == np.arange(len(images))[:, None]
    found: dict[str, Bounds] = {}
    for way, s, is_own in (("i2t", similarity, belongs), ("t2i", similarity.T, belongs.T)):
        best = np.where(is_own, s, -np.inf).max(axis=1, keepdims=True)
        nearer = [(~is_own & (s >= best + change)).sum(axis=1) for change in (-slack, slack)]
        found |= {f"{way}_r{k}": Bounds(*(np.mean(count < k) for count in nearer)) for k in (1, 5, 10)}
    return found


@pytest.fixture(scope="module")
def expected(folder, config, tokenizer, parameters):
    """Bounds of all scores from whole arrays, each tower called for itself."""
    model = TwoTowerModel(config.model)

    def tower(method, x):
        apply = jax.jit(lambda p, x: model.apply({"params": p}, x, method=method))
        return jax.tree.map(np.asarray, apply(parameters, x))

    def pixels(images):
        return np.concatenate(list(images.batches(64)))

    found, scores = load_benchmark(folder, 16), dict[str, Bounds]()
    for name, data in found.classification.items():
        texts = tokenizer(prompts(data.class_names, data.templates), config.model.text.length)
        classes = class_embeddings(tower(TwoTowerModel.embed_texts, texts), len(data.templates))
        images = tower(TwoTowerModel.embed_images, pixels(data.images))
        scores[f"{name}/zero_shot"] = accuracy_bounds(images @ classes.T, data.labels, 1e-5)
        if len(data.train_images):
            train, test = (
                tower(TwoTowerModel.images_and_features, pixels(part))[1]
                for part in (data.train_images, data.images)
            )
            probes = []
            for seed in (0, 1):
                few = draw(data.train_labels, 48, 3, seed)
                probe = ridge_probe(train[few], data.train_labels[few], 48)
                probes.append(accuracy_bounds(probe(test), data.labels, 1e-3))
            scores[f"{name}/3_shot"] = Bounds(*np.mean(probes, axis=0))
    for name, pairs in found.retrieval.items():
        images = tower(TwoTowerModel.embed_images, pixels(pairs.images))
        texts = tower(TwoTowerModel.embed_texts, tokenizer(pairs.captions, config.model.text.length))
        bounds = recall_bounds(images, texts, pairs.image_of_caption, 1e-5)
        scores |= {f"{name}/{metric}": value for metric, value in bounds.items()}
    return scores


def assert_within(scores, expected):
    """Assert that scores are right; rounding, which differs for other batch shapes, may decide a few."""
    assert set(scores) == set(expected)
    for name, score in scores.items():
        low, high = expected[name]
        assert low - 1e-9 <= score <= high + 1e-9, name
        assert high - low < 0.05, name


def test_every_score_is_that_of_its_parts(folder, config, tokenizer, parameters, expected):
    evaluate = Evaluator(config, folder, tokenizer, Devices(jax.devices()[:1]))
    scores = evaluate(parameters)
    assert set(scores) == {
        "shapes/zero_shot",
        "shapes/3_shot",
        "vtab-pets/zero_shot",
        *(f"shapes_retrieval/{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)),
    }
    assert_within(scores, expected)
    assert evaluate(parameters) == scores


@pytest.fixture
def decoded(monkeypatch):
    """The decoded files, in the order of decoding."""
    files: list[bytes] = []

    def recording(content, size):
        files.append(content)
        return decode(content, size)

    monkeypatch.setattr(image_module, "decode", recording)
    return files


def keeping_none(config):
    """The config of a run that decodes images whenever it reads them."""
    return config.model_copy(update={"runtime": config.runtime.model_copy(update={"decoded_megabytes": 0})})


def test_an_image_is_decoded_once_a_pass_and_only_if_needed(
    folder, config, tokenizer, parameters, decoded, tmp_path
):
    train = load_benchmark(folder, 16).classification["shapes"].train_labels
    drawn = np.unique(np.concatenate([draw(train, 48, 3, seed) for seed in (0, 1)]))
    assert 48 * 3 < len(drawn) < len(train) / 2
    once = 300 + 12 + 40 + len(drawn)
    folder = shutil.copytree(folder, tmp_path / "benchmark", ignore=shutil.ignore_patterns(DERIVED))
    for _ in range(2):
        evaluate = Evaluator(config, folder, tokenizer, Devices(jax.devices()[:1]))
        kept = [evaluate(parameters) for _ in range(2)]
        assert len(decoded) == once  # small: for all runs
    decoded.clear()
    evaluate = Evaluator(keeping_none(config), folder, tokenizer, Devices(jax.devices()[:1]))
    assert not decoded
    scores = [evaluate(parameters) for _ in range(2)]
    assert len(decoded) == 2 * once
    assert scores == kept


def test_a_damaged_image_is_named(folder, config, tokenizer, parameters, tmp_path):
    pets = shutil.copytree(folder / "wds_vtab-pets", tmp_path / "wds_vtab-pets")
    with TarWriter(pets / "test" / "0.tar") as tar:
        tar.add("s0000000.jpg", b"\xff\xd8 broken")
        tar.add("s0000000.cls", b"1")
    message = r"vtab-pets/test/0\.tar, example 's0000000': not a readable image"
    with pytest.raises(ValueError, match=message):
        Evaluator(config, tmp_path, tokenizer, Devices(jax.devices()[:1]))
    evaluate = Evaluator(keeping_none(config), tmp_path, tokenizer, Devices(jax.devices()[:1]))
    with pytest.raises(ValueError, match=message):
        evaluate(parameters)


def test_an_evaluation_with_the_name_of_a_dataset_is_refused(folder, config, tokenizer):
    """Its scores would replace the dataset's."""
    extra = {"vtab-pets": ExtraEvaluation(function="mine.py:evaluate")}
    own = config.evaluation.model_copy(update={"extra": extra})
    with pytest.raises(
        ValueError, match=r"evaluation\.extra\.vtab-pets: a dataset of the benchmark has this"
    ):
        Evaluator(
            config.model_copy(update={"evaluation": own}), folder, tokenizer, Devices(jax.devices()[:1])
        )
