"""Reading CLIP_benchmark folders, of ours and of others."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from jestlab.models.data.benchmarks import classification, load_benchmark, retrieval
from jestlab.models.data.tars import TarWriter

FORMATS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "webp": "WEBP"}


def image(value, extension="png"):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (value, value, value)).save(file, FORMATS[extension])
    return file.getvalue()


def write_split(folder, target, contents, *, extension="png"):
    """One shard an image, so that the shards' order shows."""
    folder.mkdir(parents=True)
    for i, content in enumerate(contents):
        with TarWriter(folder / f"{i}.tar") as tar:
            tar.add(f"s{i:07d}.{target}", content)
            tar.add(f"s{i:07d}.{extension}", image(i, extension))
    (folder / "nshards.txt").write_text(f"{len(contents)}\n")


def classes(folder, labels, *, split="test", extension="png"):
    write_split(folder / split, "cls", labels, extension=extension)
    (folder / "classnames.txt").write_text("dog\ncat\n")
    (folder / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\n\n")
    return folder


def captions(folder, contents):
    write_split(folder / "test", "txt", contents)
    (folder / "dataset_type.txt").write_text("retrieval\n")
    return folder


def pixels(images):
    return np.concatenate(list(images.batches(5)))


def test_ours(benchmark_folder):
    found = load_benchmark(benchmark_folder, 16)
    assert set(found.classification) == {"shapes"} and set(found.retrieval) == {"shapes_retrieval"}
    data = found.classification["shapes"]
    assert len(data.images) == 100 and len(data.train_images) == 768
    assert pixels(data.images).shape == (100, 16, 16, 3)
    assert data.class_names[:2] == ("red circle", "red square")


@pytest.mark.parametrize("extension", FORMATS)
def test_many_shards_in_the_order_of_their_numbers(tmp_path, extension):
    labels = [b"0", b"1\n"] * 6
    data = classification(classes(tmp_path, labels, extension=extension), 8)
    assert data.labels.tolist() == [0, 1] * 6
    values = pixels(data.images)[:, 0, 0, 0].astype(int)
    assert np.abs(values - np.arange(12)).max() <= 2  # 10.tar after 9.tar
    assert len(data.train_images) == len(data.train_labels) == 0
    assert data.templates == ("a photo of a {c}.",) and data.class_names == ("dog", "cat")


def test_folders_as_users_hold_them(tmp_path):
    classes(tmp_path / "wds_imagenet1k", [b"0"], extension="webp")
    classes(tmp_path / "wds_vtab-pets", [b"1"], extension="jpg")
    write_split(tmp_path / "wds_vtab-pets" / "train", "cls", [b"1", b"0"], extension="jpg")
    classes(tmp_path / "wds_fer2013", [b"0"])
    (tmp_path / "wds_fer2013" / "dataset_type.txt").write_text("Classification\n")
    classes(tmp_path / "food_classification", [b"0"])
    captions(tmp_path / "wds_mscoco_captions", [b"one\ntwo"])
    (tmp_path / "notes").mkdir()
    found = load_benchmark(tmp_path, 8)
    assert set(found.classification) == {"imagenet1k", "vtab-pets", "fer2013", "food"}
    assert set(found.retrieval) == {"mscoco_captions"}
    pets = found.classification["vtab-pets"]
    assert pets.train_labels.tolist() == [1, 0] and len(pets.train_images) == 2


def test_captions_by_line(tmp_path):
    data = retrieval(captions(tmp_path, [b"one\n\ntwo\n", "drei Bäume".encode()]), 8)
    assert data.captions == ("one", "two", "drei Bäume") and data.image_of_caption.tolist() == [0, 0, 1]


@pytest.mark.parametrize("label", [b"2", b"-1", b"dog", b"", b"1.0"])
def test_bad_labels_are_named(tmp_path, label):
    with pytest.raises(ValueError, match=r"1\.tar, example 's0000001': label .* is not a number from 0 to 1"):
        classification(classes(tmp_path, [b"0", label]), 8)


def test_missing_and_unfit_files_are_named(tmp_path):
    folder = classes(tmp_path, [b"0"])
    templates = folder / "zeroshot_classification_templates.txt"
    templates.write_text("a photo of a {c}.\na photo of a dog\n")
    with pytest.raises(ValueError, match=r"templates\.txt: no \{c\} in 'a photo of a dog'"):
        classification(folder, 8)
    templates.write_text("\n")
    with pytest.raises(ValueError, match=r"templates\.txt: empty file"):
        classification(folder, 8)
    (folder / "classnames.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"classnames\.txt: missing"):
        classification(folder, 8)


def test_no_dataset(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="holds no dataset"):
            load_benchmark(folder, 8)
    classes(tmp_path / "pets", [b"0"])
    with pytest.raises(FileNotFoundError, match=f"give its parent, {tmp_path}$"):
        load_benchmark(tmp_path / "pets", 8)


def test_two_datasets_of_one_name(tmp_path):
    classes(tmp_path / "pets", [b"0"])
    classes(tmp_path / "wds_pets", [b"0"])
    with pytest.raises(ValueError, match="wds_pets: a second dataset named 'pets': rename"):
        load_benchmark(tmp_path, 8)


def test_what_is_not_scored_is_said(tmp_path):
    classes(tmp_path / "wds_voc2007_multilabel", [b"0"])
    (tmp_path / "wds_voc2007_multilabel" / "dataset_type.txt").write_text("multilabel")
    with pytest.raises(ValueError, match=r"dataset_type\.txt: type 'multilabel' is not scored here.*move"):
        load_benchmark(tmp_path, 8)


@pytest.mark.parametrize(
    ("content", "message"), [(b"\n", "it has no caption"), (b"\xff\xfe", "its captions are not UTF-8")]
)
def test_bad_captions_are_named(tmp_path, content, message):
    with pytest.raises(ValueError, match=rf"1\.tar, example 's0000001': {message}"):
        retrieval(captions(tmp_path, [b"one", content]), 8)
