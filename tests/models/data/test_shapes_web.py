"""The synthetic web: real shards, the same bytes each time, noise as labelled, scores near the truth."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from jestlab.models.config import SHAPES_COLUMNS, Data, NoiseRates, ShapesWeb
from jestlab.models.data import shapes
from jestlab.models.data.curation import select
from jestlab.models.data.images import decode
from jestlab.models.data.metadata import load_metadata, metadata_columns
from jestlab.models.data.shapes import NOISE_KINDS
from jestlab.models.data.shards import ShardSource
from jestlab.models.data.world import (
    BACKGROUNDS,
    CLASSES,
    COLOURS,
    SCENES,
    Jitter,
    Scenes,
    class_probabilities,
    render,
)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def test_filters_are_checked_against_the_columns_that_are_written(tmp_path):
    shapes.make_web(tmp_path, ShapesWeb(examples=8), 0)
    assert set(SHAPES_COLUMNS) == set(metadata_columns(tmp_path))
    refused = {"similarity >": "at the end: expected", "simlarity > 0": "did you mean 'similarity'"}
    for text, message in refused.items():
        with pytest.raises(ValueError, match=message):
            Data(filter=text)


def test_same_settings_and_seed_give_the_same_bytes_in_another_process(web, tmp_path):
    code = (
        "import sys; from pathlib import Path; from jestlab.models.config import ShapesWeb;"
        "from jestlab.models.data import shapes;"
        "shapes.make_web(Path(sys.argv[1]), ShapesWeb(examples=700, shard_size=300), seed=5)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "again")], check=True)
    again = contents(tmp_path / "again")
    assert len(again) == 9
    assert again == contents(web)


def test_synthetic_captions_say_what_the_images_show(web):
    rows = [row for path in sorted(web.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    for row in rows:
        says = all(word in row["synthetic_caption"] for word in (*row["label"].split(), row["background"]))
        assert says == (row["noise"] not in ("noise_image", "blank"))
    mismatched = [row for row in rows if row["noise"] == "mismatched"]
    assert len(mismatched) > 100
    assert sum(row["label"] in row["caption"] for row in mismatched) < len(mismatched) / 4


def test_shards_do_not_depend_on_each_other(web, tmp_path):
    shapes.make_web(tmp_path / "first", ShapesWeb(examples=300, shard_size=300), seed=5)
    assert contents(tmp_path / "first")["00000.tar"] == contents(web)["00000.tar"]


def test_another_seed_gives_another_web(web, tmp_path):
    shapes.make_web(tmp_path / "other", ShapesWeb(examples=300, shard_size=300), seed=6)
    assert contents(tmp_path / "other")["00000.tar"] != contents(web)["00000.tar"]


def test_img2dataset_form(web):
    rows = []
    for number, count in enumerate((300, 300, 100)):
        table = pq.read_table(web / f"{number:05d}.parquet").to_pylist()
        stats = json.loads((web / f"{number:05d}_stats.json").read_text())
        assert stats["count"] == stats["successes"] == len(table) == count
        with tarfile.open(web / f"{number:05d}.tar") as tar:
            members = tar.getmembers()
            assert [member.name for member in members[:3]] == [
                f"{number:05d}0000.{part}" for part in ("jpg", "json", "txt")
            ]
            assert len(members) == 3 * count
            assert {(m.mtime, m.uid, m.gid, m.mode) for m in members} == {(0, 0, 0, 0o444)}
            for row in table[:5]:
                jpg, meta, txt = (tar.extractfile(f"{row['key']}.{part}") for part in ("jpg", "json", "txt"))
                assert jpg and meta and txt
                assert json.load(meta) == row
                assert txt.read().decode() == row["caption"]
                assert decode(jpg.read(), 32).shape == (32, 32, 3)
        rows += table
    assert len({row["key"] for row in rows}) == 700
    assert {"url", "width", "height", "similarity", "aesthetic", "punsafe", "noise", "status"} <= set(rows[0])


def test_shares_of_noise_are_those_of_the_settings(tmp_path):
    shapes.make_web(tmp_path, ShapesWeb(examples=6000, shard_size=6000, image_size=8), seed=0)
    counts = Counter(load_metadata(tmp_path, ["noise"])["noise"])
    rates = NoiseRates()
    for kind in NOISE_KINDS[1:]:
        assert counts[kind] / 6000 == pytest.approx(getattr(rates, kind), abs=0.02), kind
    assert counts["clean"] / 6000 == pytest.approx(0.4, abs=0.02)


def test_all_of_one_kind(tmp_path):
    everything_vague = NoiseRates(
        mismatched=0, alt_text=0, noise_image=0, blank=0, vague=1.0, near_duplicate=0
    )
    shapes.make_web(tmp_path, ShapesWeb(examples=50, noise=everything_vague), seed=0)
    assert set(load_metadata(tmp_path, ["noise"])["noise"]) == {"vague"}


def test_images_are_what_their_label_says(web):
    source, noise = ShardSource(web), np.array(load_metadata(web, ["noise"])["noise"])
    images = np.stack([decode(file, 32) for file in source.images(np.arange(len(source)))]).astype(float)
    spread = images.std(axis=(1, 2)).max(axis=1)
    assert (spread[noise == "blank"] < 1).all()
    assert (spread[noise == "noise_image"] > 50).all()
    assert (spread[noise == "clean"] > 5).all()


def test_captions_are_what_their_label_says(web):
    metadata = load_metadata(web, ["noise", "label", "caption"])
    colours, names = set(COLOURS), {name.split()[1] for name in CLASSES}
    contradictions: Counter[str] = Counter()
    for kind, label, caption in zip(*metadata.values(), strict=True):
        said = set(caption.split())
        colour, shape = label.split()
        contradictions[kind] += bool(said & colours - {colour} or said & names - {shape})
        if kind in ("alt_text", "vague"):
            assert not said & (colours | names)
    assert contradictions["clean"] == contradictions["near_duplicate"] == 0
    mismatched = metadata["noise"].count("mismatched")
    assert contradictions["mismatched"] > 0.9 * mismatched  # else the part that differs went unmentioned


def test_near_duplicates_come_from_few_templates_and_differ_a_little(tmp_path):
    settings = ShapesWeb(examples=200, duplicate_templates=3, noise=NoiseRates(
        mismatched=0, alt_text=0, noise_image=0, blank=0, vague=0, near_duplicate=1.0
    ))  # fmt: skip
    shapes.make_web(tmp_path, settings, seed=1)
    metadata = load_metadata(tmp_path, ["label", "size", "position", "background", "sha256"])
    scenes = list(zip(*list(metadata.values())[:4], strict=True))
    assert len(set(scenes)) <= 3
    assert len(set(metadata["sha256"])) > 190
    first = [i for i, scene in enumerate(scenes) if scene == scenes[0]]
    images = [decode(file, 32).astype(float) for file in ShardSource(tmp_path).images(np.array(first))]
    assert np.mean([np.abs(image - images[0]).mean() for image in images]) < 6


def test_recommended_filter_removes_most_noise_and_keeps_most_clean_pairs(tmp_path):
    shapes.make_web(tmp_path, ShapesWeb(examples=6000, image_size=8), seed=2)
    noise = np.array(load_metadata(tmp_path, ["noise"])["noise"])
    kept = np.isin(np.arange(6000), select(tmp_path, shapes.RECOMMENDED_FILTER))
    for kind in ("clean", "near_duplicate"):
        assert kept[noise == kind].mean() > 0.92, kind
    bad = ~np.isin(noise, ("clean", "near_duplicate"))
    assert 0 < kept[bad].mean() < 0.04  # most, not all: measurements err


def test_scores_lie_where_the_real_ones_do(web):
    metadata = load_metadata(web, ["similarity", "aesthetic", "text_quality", "punsafe"])
    for name, (low, high) in {"similarity": (0, 0.45), "aesthetic": (1, 8), "text_quality": (0, 1)}.items():
        assert low <= min(metadata[name]) and max(metadata[name]) <= high, name


def test_every_colour_is_clearly_brighter_than_every_background():
    darkest = min(max(rgb) for rgb in COLOURS.values())
    assert darkest > 2.4 * max(max(rgb) for rgb in BACKGROUNDS.values())


def test_a_pixel_does_not_depend_on_its_place_in_a_batch():
    rng = np.random.default_rng(0)
    scenes, jitter = Scenes.draw(rng, 301), Jitter.draw(rng, 301)
    together = render(scenes, jitter, 32)
    for i in (0, 127, 128, 300):
        one = np.array([i])
        assert np.array_equal(render(scenes.take(one), jitter.take(one), 32)[0], together[i])


def test_object_lies_in_its_quadrant():
    label = np.arange(SCENES) // 64
    scenes = Scenes.of(label, np.arange(SCENES) % 64)
    images = render(scenes, Jitter.draw(np.random.default_rng(1), SCENES), 32).max(axis=-1).astype(float)
    lit = images > 150
    weight = lit / lit.sum(axis=(1, 2), keepdims=True)
    y, x = (weight.sum(axis=axis) @ (np.arange(32) / 31) for axis in (2, 1))
    assert np.array_equal((y > 0.5) * 2 + (x > 0.5), scenes.position)


def test_classes_follow_zipf():
    share = np.sort(class_probabilities())[::-1]
    assert share.sum() == pytest.approx(1)
    assert np.allclose(share * np.arange(1, 49), share[0])
