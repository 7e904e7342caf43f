"""The benchmark on disk: CLIP_benchmark's webdataset form, balanced, held out, the same bytes each time."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest

from jestlab.models.config import ShapesBenchmark
from jestlab.models.data import shapes
from jestlab.models.data.benchmarks import load_benchmark


def test_clip_benchmark_form(benchmark_folder):
    classification, retrieval = (
        benchmark_folder / f"shapes_{kind}" for kind in ("classification", "retrieval")
    )
    assert len((classification / "classnames.txt").read_text().splitlines()) == 48
    assert "{c}" in (classification / "zeroshot_classification_templates.txt").read_text().splitlines()[0]
    assert (retrieval / "dataset_type.txt").read_text().strip() == "retrieval"
    for split, part in (
        (classification / "train", "cls"),
        (classification / "test", "cls"),
        (retrieval / "test", "txt"),
    ):
        assert (split / "nshards.txt").read_text().strip() == "1"
        with tarfile.open(split / "0.tar") as tar:
            assert tar.getnames()[:2] == [f"s0000000.{part}", "s0000000.jpg"]
    with tarfile.open(classification / "test" / "0.tar") as tar:
        file = tar.extractfile("s0000007.cls")
        assert file is not None and file.read() == b"7"


def test_balanced_with_enough_images_for_ten_shots(benchmark_folder):
    data = load_benchmark(benchmark_folder, 16).classification["shapes"]
    assert np.bincount(data.labels, minlength=48).tolist() == [3] * 4 + [2] * 44
    assert np.bincount(data.train_labels, minlength=48).min() >= 12


def test_retrieval_captions_are_distinct(benchmark_folder):
    data = load_benchmark(benchmark_folder, 16).retrieval["shapes_retrieval"]
    assert len(data.images) == 64
    assert len(set(data.captions)) == len(data.captions) == 128
    assert np.array_equal(data.image_of_caption, np.repeat(np.arange(64), 2))


def test_same_bytes_each_time_and_others_with_another_seed(benchmark_folder, tmp_path):
    def tars(folder):
        return [path.read_bytes() for path in sorted(folder.rglob("*.tar"))]

    settings = ShapesBenchmark(classification_examples=100, retrieval_examples=64)
    shapes.make_benchmark(tmp_path / "again", settings)
    shapes.make_benchmark(tmp_path / "other", settings.model_copy(update={"seed": 1}))
    assert tars(tmp_path / "again") == tars(benchmark_folder)
    assert all(a != b for a, b in zip(tars(tmp_path / "other"), tars(benchmark_folder), strict=True))


def test_no_more_retrieval_images_than_scenes(tmp_path):
    with pytest.raises(ValueError, match="retrieval_examples 4000 is above the 3072 scenes"):
        shapes.make_benchmark(tmp_path, ShapesBenchmark(retrieval_examples=4000))
