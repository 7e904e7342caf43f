"""Reading CLIP_benchmark folders: whole splits, in order, scanned once. webdataset's reader is the oracle."""

import io
import os
import tarfile

import numpy as np
import pytest
from PIL import Image

from jestlab.models.data import benchmarks
from jestlab.models.data.benchmarks import classification, datasets_in, load_benchmark, read_split, retrieval

NO_ENDS = "\x0b\f\x1c\x1d\x1e\x85\u2028\u2029"  # not line ends, unlike in `str.splitlines`
FORMATS = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "webp": "WEBP"}


def image(value, extension="png"):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (value, value, value)).save(file, FORMATS[extension])
    return file.getvalue()


def write_split(folder, *shards):
    """Write tars as other tools write them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, files in enumerate(shards):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for name, content in files:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    (folder / "nshards.txt").write_text(f"{len(shards)}\n")
    return folder


def pair(key, label, extension="png"):
    return [(f"{key}.{extension}", image(10 * label, extension.lower())), (f"{key}.cls", b"%d" % label)]


def targets(folder, contents, target, extension="png"):
    """Write a split with one shard for each image."""
    keys = [f"s{i:07d}" for i in range(len(contents))]
    images = [(f"{key}.{extension}", image(i, extension)) for i, key in enumerate(keys)]
    files = [(f"{key}.{target}", content) for key, content in zip(keys, contents, strict=True)]
    write_split(folder, *zip(files, images, strict=True))


def classes(folder, labels=(b"0",), extension="png", names="dog\ncat\n"):
    targets(folder / "test", labels, "cls", extension)
    (folder / "classnames.txt").write_bytes(names if isinstance(names, bytes) else names.encode())
    (folder / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\n\n")
    return folder


def captions(folder, contents):
    targets(folder / "test", contents, "txt")
    (folder / "dataset_type.txt").write_text("retrieval\n")
    return folder


def values(images):
    return [int(batch[0, 0, 0, 0]) for batch in images.batches(1)]


def described(split):
    return [split.images.describe(i).split("example ")[1].strip("'") for i in range(len(split.images))]


@pytest.fixture
def foreign(tmp_path):
    """A split of two shards with names of every kind, some of them not of examples."""
    return write_split(
        tmp_path,
        [*pair("a/001", 3, "JPG"), *pair("b/001", 4), *pair("x" * 120, 5)],  # the last has a longer header
        [("._s1.png", b"?"), ("README", b"?"), *pair("s1", 6, "webp"), ("s1.json", b"{}")],
    )


def test_examples_of_foreign_tars(foreign):
    split = read_split(foreign, "cls", 8)
    assert split.targets == [b"3", b"4", b"5", b"6"]
    assert np.abs(np.subtract(values(split.images), [30, 40, 50, 60])).max() <= 2
    assert described(split) == ["a/001", "b/001", "x" * 120, "s1"]


@pytest.mark.full
def test_same_examples_as_webdataset(foreign):
    import webdataset  # imports PyTorch where it is installed

    split, tars = read_split(foreign, "cls", 8), [str(foreign / f"{i}.tar") for i in (0, 1)]
    theirs = webdataset.WebDataset(tars, shardshuffle=False).to_tuple("__key__", "cls")
    assert [*zip(described(split), split.targets, strict=True)] == [*theirs]


def test_prefers_image_formats_in_webdatasets_order(tmp_path):
    files = [(f"a.{name}", image(i)) for i, name in enumerate(("jpeg", "png", "webp"))]
    assert values(read_split(write_split(tmp_path, [*files, ("a.cls", b"0")]), "cls", 8).images) == [2]


def test_scanned_once_and_again_when_a_shard_changes(tmp_path, monkeypatch):
    folder = write_split(tmp_path / "test", pair("a", 1), pair("b", 2))
    first = read_split(folder, "cls", 8)
    with monkeypatch.context() as patch:
        patch.setattr(benchmarks, "find_examples", None)
        again = read_split(folder, "cls", 8)
    for split in (first, again):
        assert (split.targets, values(split.images)) == ([b"1", b"2"], [10, 20])
        assert split.images.describe(1) == f"{folder / '1.tar'}, example 'b'"
    write_split(folder, pair("a", 1), [*pair("b", 2), *pair("c", 3)])
    os.utime(folder / "1.tar", (1, 1))  # tars have few sizes, and clocks are coarse
    assert read_split(folder, "cls", 8).targets == [b"1", b"2", b"3"]
    (folder / "nshards.txt").write_text("1")
    assert read_split(folder, "cls", 8).targets == [b"1"]


@pytest.mark.parametrize(
    ("count", "error", "message"),
    [
        (b"3", FileNotFoundError, r"1\.tar: missing, and nshards\.txt counts 3 shards: fetch"),
        (b"many", ValueError, r"nshards\.txt: not a number of shards"),
        (b"\xe9", ValueError, r"nshards\.txt: not a number"),
        (b"9" * 5000, ValueError, r"nshards\.txt: not a number"),
    ],
)
def test_missing_shards_and_invalid_counts(tmp_path, count, error, message):
    (write_split(tmp_path, pair("a", 1)) / "nshards.txt").write_bytes(count)
    with pytest.raises(error, match=message):
        read_split(tmp_path, "cls", 8)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("x.png", image(0))], r"0\.tar, example 'x': no label: fetch the shard again, or repair it"),
        ([("x.cls", b"0")], r"0\.tar, example 'x': no image"),
        ([*pair("x", 0), ("x.cls", b"1")], r"0\.tar, 'x\.cls': repeated name"),
        ([*pair("x", 0), *pair("x.v1", 1)], r"0\.tar, example 'x.v1': dot in the name .*: rename it"),
        ([], "its shards hold no examples"),
    ],
)
def test_incomplete_examples_are_named(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        read_split(write_split(tmp_path, files), "cls", 8)


def test_shards_with_links_and_cut_shards_are_rejected(tmp_path):
    path = write_split(tmp_path, pair("x", 0)) / "0.tar"
    path.write_bytes(path.read_bytes()[:1300])
    with pytest.raises(ValueError, match=r"0\.tar, byte 1024: shard cut short: fetch the shard again"):
        read_split(tmp_path, "cls", 8)
    with tarfile.open(path, "w") as tar:
        link = tarfile.TarInfo("y.png")
        link.type = tarfile.SYMTYPE
        tar.addfile(link)
    with pytest.raises(ValueError, match=r"0\.tar: has a link or special file: store copies"):
        read_split(tmp_path, "cls", 8)


@pytest.mark.parametrize("extension", FORMATS)
def test_many_shards_in_the_order_of_their_numbers(tmp_path, extension):
    data = classification(classes(tmp_path, [b"0", b"1\n"] * 6, extension), 8)
    assert data.labels.tolist() == [0, 1] * 6
    assert np.abs(np.array(values(data.images)) - np.arange(12)).max() <= 2  # 10.tar after 9.tar
    assert len(data.train_images) == len(data.train_labels) == 0
    assert data.templates == ("a photo of a {c}.",) and data.class_names == ("dog", "cat")


def test_names_and_kinds_of_datasets(tmp_path):
    classes(tmp_path / "wds_imagenet1k", [b"0"], "webp")
    classes(tmp_path / "wds_vtab-pets", [b"1"], "jpg")
    targets(tmp_path / "wds_vtab-pets" / "train", [b"1", b"0"], "cls", "jpg")
    classes(tmp_path / "wds_fer2013")
    (tmp_path / "wds_fer2013" / "dataset_type.txt").write_text("Classification\n")
    classes(tmp_path / "food_classification")
    captions(tmp_path / "wds_mscoco_captions", [b"one\ntwo"])
    (tmp_path / "notes").mkdir()
    found = load_benchmark(tmp_path, 8)
    assert set(found.classification) == {"imagenet1k", "vtab-pets", "fer2013", "food"}
    assert set(found.retrieval) == {"mscoco_captions"}
    assert (tmp_path / "food_classification", "food", False) in datasets_in(tmp_path)
    pets = found.classification["vtab-pets"]
    assert pets.train_labels.tolist() == [1, 0] and len(pets.train_images) == 2


@pytest.mark.parametrize("label", [b"2", b"-1", b"dog", b"1.0", b"9" * 5000])
def test_bad_labels_are_named(tmp_path, label):
    with pytest.raises(ValueError, match=r"1\.tar, example 's0000001': label .* is not from 0 to 1"):
        classification(classes(tmp_path, [b"0", label]), 8)


def test_captions_by_line(tmp_path):
    data = retrieval(captions(tmp_path, [b"one\r\n\ntwo\n", f"drei{NO_ENDS}Bäume".encode()]), 8)
    assert data.captions == ("one", "two", f"drei{NO_ENDS}Bäume")
    assert data.image_of_caption.tolist() == [0, 0, 1]


@pytest.mark.parametrize("content", [b"\n", b"\xff\xfe"])
def test_bad_captions_are_named(tmp_path, content):
    with pytest.raises(ValueError, match=r"1\.tar, example 's0000001': .*caption"):
        retrieval(captions(tmp_path, [b"one", content]), 8)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("dog\ncat\n\n\n", ("dog", "cat")),
        ("\ufeffdog\r\ncat", ("dog", "cat")),
        (f"big{NO_ENDS}dog\r\ncat\n", (f"big{NO_ENDS}dog", "cat")),
        ("missile\nmissile\n", ("missile", "missile")),  # CLIP_benchmark's ImageNet repeats names
    ],
)
def test_class_names_by_line(tmp_path, names, expected):
    assert classification(classes(tmp_path, [b"1"], names=names), 8).class_names == expected


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("dog\n\ncat\n", "class 2, '', is empty in prompts"),
        ("dog\n?!\ncat", "class 2, '.!', is empty"),
        ("C#\nC++\n", r"classes 'C#' and 'C\+\+' are both 'c' in prompts"),
        (b"caf\xe9\ncat\n", "not UTF-8: save it"),
        ("\n", "empty file"),
    ],
)
def test_invalid_class_names(tmp_path, names, message):
    with pytest.raises(ValueError, match=rf"classnames\.txt: {message}"):
        classification(classes(tmp_path, names=names), 8)


def test_missing_and_invalid_files_are_named(tmp_path):
    folder = classes(tmp_path)
    (folder / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\na photo of a dog\n")
    with pytest.raises(ValueError, match=r"templates\.txt: no \{c\} in 'a photo of a dog'"):
        classification(folder, 8)
    (folder / "classnames.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"classnames\.txt"):
        classification(folder, 8)


def test_folders_that_cannot_be_scored(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="holds no dataset"):
            load_benchmark(folder, 8)
    classes(tmp_path / "pets")
    with pytest.raises(FileNotFoundError, match=f"give its parent, {tmp_path}$"):
        load_benchmark(tmp_path / "pets", 8)
    second = classes(tmp_path / "wds_pets")
    with pytest.raises(ValueError, match="wds_pets: a second dataset named 'pets': rename"):
        load_benchmark(tmp_path, 8)
    (second / "dataset_type.txt").write_text("multilabel")
    with pytest.raises(ValueError, match=r"dataset_type\.txt: type 'multilabel' is not scored here.*move"):
        load_benchmark(tmp_path, 8)
