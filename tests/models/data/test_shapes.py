"""The synthetic web and benchmark: valid shards, reproducible bytes, noise as labeled, true captions."""

import json
import re
import subprocess
import sys
import tarfile
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from jestlab.models.config import SHAPES_COLUMNS, Data, NoiseRates, ShapesBenchmark, ShapesWeb
from jestlab.models.data import shapes, world
from jestlab.models.data.benchmarks import load_benchmark
from jestlab.models.data.curation import select
from jestlab.models.data.images import decode
from jestlab.models.data.metadata import load_metadata, metadata_columns
from jestlab.models.data.shapes import NOISE_KINDS
from jestlab.models.data.shards import ShardIndex

ALL = np.arange(world.SCENES)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("0*")}


def make(folder, examples=300, shard_size=300, seed=5):
    shapes.make_web(folder, ShapesWeb(examples=examples, shard_size=shard_size), seed=seed)
    return contents(folder)


@pytest.fixture(scope="module")
def rows(web):
    """The metadata of the web's examples."""
    return [row for path in sorted(web.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize("key", ["filter", "recaption"])
def test_conditions_are_checked_against_the_columns_that_are_written(web, key):
    assert set(SHAPES_COLUMNS) == set(metadata_columns(web))
    Data.model_validate({key: "similarity > 0"})
    Data.model_validate({key: "other > 0", "train": {"kind": "folder", "path": "x"}})
    for text, message in (("similarity >", "at the end: expected"), ("simlarity > 0", "did you mean 'sim")):
        with pytest.raises(ValueError, match=message):
            Data.model_validate({key: text})


def test_bytes_depend_on_settings_and_seed_only(web, tmp_path):
    code = (
        "import sys; from pathlib import Path; from jestlab.models.config import ShapesWeb;"
        "from jestlab.models.data import shapes;"
        "shapes.make_web(Path(sys.argv[1]), ShapesWeb(examples=20, shard_size=15), seed=5)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "again")], check=True)
    first = make(tmp_path / "first", 20, 15)
    assert contents(tmp_path / "again") == first and len(first) == 4
    tar = contents(web)["00000.tar"]  # does not depend on later shards
    assert make(tmp_path / "alone")["00000.tar"] == tar
    assert make(tmp_path / "other", seed=6)["00000.tar"] != tar


def test_img2dataset_format(web, rows):
    files: dict[str, bytes] = {}
    for number in range(3):
        with tarfile.open(web / f"{number:05d}.tar") as tar:
            files |= {member.name: file.read() for member in tar if (file := tar.extractfile(member))}
    assert [row["key"] for row in rows] == [f"{i // 300:05d}{i % 300:04d}" for i in range(700)]
    assert list(files) == [f"{row['key']}.{part}" for row in rows for part in ("jpg", "json", "txt")]
    for row in rows:
        assert json.loads(files[f"{row['key']}.json"]) == row
        assert files[f"{row['key']}.txt"].decode() == row["caption"]
    assert decode(files["000000000.jpg"], 32).shape == (32, 32, 3)


def test_noise_has_its_share_and_the_recommended_filter_removes_most_of_it(tmp_path):
    shapes.make_web(tmp_path, ShapesWeb(examples=4000, shard_size=4000, image_size=8), seed=2)
    noise, rates = np.array(load_metadata(tmp_path, ["noise"])["noise"]), NoiseRates().model_dump()
    recommended = "similarity > 0.25 and aesthetic > 4.3 and text_quality > 0.45"
    kept = np.isin(np.arange(4000), select(tmp_path, recommended))
    for kind in NOISE_KINDS:
        assert np.mean(noise == kind) == pytest.approx(rates.get(kind, 0.4), abs=0.025), kind
        if kind in ("clean", "near_duplicate"):
            assert kept[noise == kind].mean() > 0.92, kind
    assert 0 < kept[~np.isin(noise, ("clean", "near_duplicate"))].mean() < 0.04  # measurements have errors


def test_images_show_their_kind_of_noise(web, rows):
    noise = np.array([row["noise"] for row in rows])
    files = ShardIndex.load(web).images(np.arange(700))
    spread = np.stack([decode(file, 32) for file in files]).std(axis=(1, 2)).max(axis=1)
    assert (spread[noise == "blank"] < 1).all()
    assert (spread[noise == "noise_image"] > 50).all()
    assert (spread[noise == "clean"] > 5).all()


def test_captions_are_true_or_false_as_their_kind_of_noise_says(rows):
    colors, names = set(world.COLORS), set(world.ATTRIBUTES["shape"])
    contradictions: Counter[str] = Counter()
    for row in rows:
        kind, caption = row["noise"], set(row["caption"].split())
        color, shape = row["label"].split()
        contradictions[kind] += bool(caption & colors - {color} or caption & names - {shape})
        if kind in ("alt_text", "vague"):
            assert not caption & (colors | names)
        complete = {color, shape, row["size"], row["background"], *row["position"].split()}
        assert (complete <= set(row["synthetic_caption"].split())) == (kind not in ("noise_image", "blank"))
    assert contradictions["clean"] == contradictions["near_duplicate"] == 0
    mismatched = sum(row["noise"] == "mismatched" for row in rows)
    assert mismatched > 100
    assert contradictions["mismatched"] > 0.9 * mismatched  # the others do not mention the difference


def test_mismatched_captions_describe_another_class():
    rng = np.random.default_rng(0)
    scenes = world.draw_scenes(rng, 1000)
    others = shapes.other_scenes(scenes, rng)
    assert (others // 64 != scenes // 64).all() and len(np.unique(others % 64)) == 64


def test_near_duplicates_come_from_few_templates_and_differ_a_little(tmp_path):
    noise = NoiseRates(**dict.fromkeys(NoiseRates.model_fields, 0.0) | {"near_duplicate": 1.0})
    shapes.make_web(tmp_path, ShapesWeb(examples=200, duplicate_templates=3, noise=noise), seed=1)
    metadata = load_metadata(tmp_path, ["label", "size", "position", "background", "sha256"])
    assert len(set(metadata.pop("sha256"))) > 190
    scenes = np.unique([*metadata.values()], axis=1, return_inverse=True)[1].ravel()
    assert scenes.max() < 3
    files = ShardIndex.load(tmp_path).images(np.flatnonzero(scenes == scenes[0]))
    images = np.stack([decode(file, 32).astype(float) for file in files])
    assert np.abs(images - images[0]).mean() < 6


@pytest.mark.parametrize(
    ("name", "threshold", "low_kinds", "least", "most", "spread"),
    [
        ("similarity", 0.29, {"mismatched", "alt_text", "noise_image", "blank", "vague"}, 0.1, 0.36, 0.045),
        ("aesthetic", 5.0, {"noise_image", "blank"}, 2.9, 5.8, 0.75),
        ("text_quality", 0.5, {"alt_text", "vague"}, 0.2, 0.82, 0.13),
        ("uniqueness", 0.5, {"near_duplicate"}, 0.12, 0.82, 0.11),
    ],
)
def test_scores_depend_on_the_kind_of_noise(name, threshold, low_kinds, least, most, spread):
    """Low kinds have a mean below the threshold; the spread is the largest standard deviation."""
    kinds = np.repeat(np.arange(len(NOISE_KINDS)), 1000)
    scores = shapes.measure(kinds, np.zeros(len(kinds)), np.random.default_rng(0))
    means, spreads = (getattr(scores[name].reshape(-1, 1000), way)(axis=1) for way in ("mean", "std"))
    assert {kind for kind, mean in zip(NOISE_KINDS, means, strict=True) if mean < threshold} == low_kinds
    assert least < means.min() and means.max() < most
    assert spread / 2 < spreads.min() and spreads.max() < spread
    assert scores["punsafe"].min() >= 0 and scores["punsafe"].max() <= 0.1


def test_mismatched_captions_that_agree_are_more_similar():
    kinds = np.full(2000, NOISE_KINDS.index("mismatched"))
    without, with_all = (
        shapes.measure(kinds, np.full(2000, agreement), np.random.default_rng(0))["similarity"].mean()
        for agreement in (0.0, 1.0)
    )
    assert with_all - without == pytest.approx(0.1, abs=1e-3)


def test_a_pixel_does_not_depend_on_its_place_in_a_batch():
    rng = np.random.default_rng(0)
    scenes, jitter = world.draw_scenes(rng, 301), world.draw_jitter(rng, 301)
    together = world.render(scenes, jitter, 32)
    for i in (0, 127, 128, 300):
        assert np.array_equal(world.render(scenes[[i]], jitter[[i]], 32)[0], together[i])


def test_an_object_is_where_its_position_and_jitter_put_it():
    jitter = world.draw_jitter(np.random.default_rng(1), world.SCENES)
    position = world.attributes(ALL)["position"]
    lit = world.render(ALL, jitter, 32).max(axis=-1) > 150
    weight = lit / lit.sum(axis=(1, 2), keepdims=True)
    y, x = (weight.sum(axis=axis) @ ((np.arange(32) + 0.5) / 32) for axis in (2, 1))
    for center, shift, far in ((x, jitter[:, 0], position % 2), (y, jitter[:, 1], position // 2)):
        assert np.allclose(center - shift, np.where(far, 0.73, 0.27), rtol=0, atol=0.025)  # 0.8 of a pixel


def test_classes_follow_zipf_and_colors_are_clearly_brighter_than_backgrounds():
    share = np.sort(world.class_probabilities())[::-1]
    assert share.sum() == pytest.approx(1)
    assert np.allclose(share * np.arange(1, 49), share[0])
    darkest = min(max(rgb) for rgb in world.COLORS.values())
    assert darkest > 2.4 * max(max(rgb) for rgb in world.BACKGROUNDS.values())


def test_complete_captions_name_every_attribute_and_are_unique():
    pairs = world.describe_twice(ALL, np.random.default_rng(0))
    assert len({caption for pair in pairs for caption in pair}) == 2 * world.SCENES
    for i in range(0, world.SCENES, 37):
        words = [world.ATTRIBUTES[name][number[i]] for name, number in world.attributes(ALL).items()]
        assert all(f" {word} " in f" {caption} " for caption in pairs[i] for word in words)


def test_captions_are_short_varied_grammatical_and_mostly_name_the_class():
    captions = world.describe(ALL, np.random.default_rng(1))
    lengths = {len(caption.split()) for caption in captions}
    assert max(lengths) <= 11 and len(lengths) > 6
    labels = [world.CLASSES[scene // 64].split() for scene in ALL]
    named = [set(label) <= set(text.split()) for label, text in zip(labels, captions, strict=True)]
    assert 0.85 < np.mean(named) < 0.98
    for caption in captions:
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]|  |^ | $", caption), caption


def test_clip_benchmark_format(benchmark_folder):
    for split in ("shapes_classification/train", "shapes_classification/test", "shapes_retrieval/test"):
        with tarfile.open(benchmark_folder / split / "0.tar") as tar:
            target = "txt" if "retrieval" in split else "cls"
            assert tar.getnames()[:2] == [f"s0000000.{target}", "s0000000.jpg"]
    # Balanced, with enough images for ten shots; retrieval captions are distinct.
    found = load_benchmark(benchmark_folder, 16)
    data, pairs = found.classification["shapes"], found.retrieval["shapes_retrieval"]
    assert (len(data.class_names), data.templates[0]) == (48, "a {c}")
    assert np.bincount(data.labels, minlength=48).tolist() == [3] * 4 + [2] * 44
    assert np.bincount(data.train_labels, minlength=48).min() >= 12
    assert len(set(pairs.captions)) == len(pairs.captions) == 2 * len(pairs.images) == 128
    assert np.array_equal(pairs.image_of_caption, np.repeat(np.arange(64), 2))


def test_benchmarks_depend_on_the_seed_only(tmp_path):
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    for folder, seed in ((first, 0), (again, 0), (other, 1)):
        settings = ShapesBenchmark(classification_examples=50, retrieval_examples=8, seed=seed)
        shapes.make_benchmark(folder, settings)
    assert contents(first) == contents(again)
    assert not {*contents(first).values()} & {*contents(other).values()}
    with pytest.raises(ValueError, match="retrieval_examples 4000 is above the 3072 scenes"):
        shapes.make_benchmark(tmp_path, ShapesBenchmark(retrieval_examples=4000))
