"""Reading CLIP_benchmark folders, of ours and of others."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from jestlab.models.data.benchmarks import classification, load_benchmark, retrieval
from jestlab.models.data.tars import TarWriter


def image(value, form="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (value, value, value)).save(file, form)
    return file.getvalue()


def classes(folder, labels, *, split="test", extension="png"):
    """One shard an image, so that the shards' order shows."""
    (folder / split).mkdir(parents=True)
    for i, label in enumerate(labels):
        with TarWriter(folder / split / f"{i}.tar") as tar:
            tar.add(f"s{i:07d}.cls", label)
            tar.add(f"s{i:07d}.{extension}", image(i, extension.upper()))
    (folder / "classnames.txt").write_text("dog\ncat\n")
    (folder / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\n\n")
    return folder


def test_ours(benchmark_folder):
    found = load_benchmark(benchmark_folder, 16)
    assert set(found.classification) == {"shapes"} and set(found.retrieval) == {"shapes_retrieval"}
    data = found.classification["shapes"]
    assert data.images.shape == (100, 16, 16, 3) and data.train_images.shape == (768, 16, 16, 3)
    assert data.class_names[:2] == ("red circle", "red square")


@pytest.mark.parametrize("extension", ["png", "webp"])
def test_many_shards_in_the_order_of_their_numbers(tmp_path, extension):
    labels = [b"0", b"1\n"] * 6
    data = classification(classes(tmp_path, labels, extension=extension), 8)
    assert data.labels.tolist() == [0, 1] * 6
    assert np.abs(data.images[:, 0, 0, 0].astype(int) - np.arange(12)).max() <= 2  # 10.tar after 9.tar
    assert data.train_images.shape == (0, 8, 8, 3) and len(data.train_labels) == 0
    assert data.templates == ("a photo of a {c}.",) and data.class_names == ("dog", "cat")


def test_names_of_datasets(tmp_path):
    classes(tmp_path / "wds_pets", [b"0"])
    classes(tmp_path / "food_classification", [b"0"])
    (tmp_path / "notes").mkdir()
    assert set(load_benchmark(tmp_path, 8).classification) == {"pets", "food"}


def test_captions_by_line(tmp_path):
    (tmp_path / "test").mkdir()
    with TarWriter(tmp_path / "test" / "0.tar") as tar:
        for key, text in (("a", b"one\ntwo\n"), ("b", b"three")):
            tar.add(f"{key}.png", image(0))
            tar.add(f"{key}.txt", text)
    data = retrieval(tmp_path, 8)
    assert data.captions == ("one", "two", "three") and data.image_of_caption.tolist() == [0, 0, 1]


@pytest.mark.parametrize("label", [b"2", b"-1", b"dog", b""])
def test_bad_labels_are_named(tmp_path, label):
    with pytest.raises(ValueError, match=r"1\.tar, example 's0000001': label .* is not a number from 0 to 1"):
        classification(classes(tmp_path, [b"0", label]), 8)


def test_missing_parts_are_named(tmp_path):
    folder = classes(tmp_path, [b"0"])
    with TarWriter(folder / "test" / "0.tar") as tar:
        tar.add("x.png", image(0))
    with pytest.raises(ValueError, match=r"0\.tar, example 'x': no \.cls among its files: \['png'\]"):
        classification(folder, 8)
    with TarWriter(folder / "test" / "0.tar") as tar:
        tar.add("x.png", b"broken")
        tar.add("x.cls", b"0")
    with pytest.raises(ValueError, match=r"0\.tar, example 'x': not a readable image"):
        classification(folder, 8)
    (folder / "classnames.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"classnames\.txt: missing"):
        classification(folder, 8)


def test_no_dataset(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="holds no dataset"):
            load_benchmark(folder, 8)


def test_an_image_without_caption(tmp_path):
    (tmp_path / "test").mkdir()
    with TarWriter(tmp_path / "test" / "0.tar") as tar:
        tar.add("a.png", image(0))
        tar.add("a.txt", b"\n")
    with pytest.raises(ValueError, match="it has no caption"):
        retrieval(tmp_path, 8)
