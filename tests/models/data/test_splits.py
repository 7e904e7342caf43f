"""Splits of CLIP_benchmark datasets: whole, in order, scanned once; webdataset's own reader as oracle."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from jestlab.models.data import benchmarks
from jestlab.models.data.benchmarks import read_split


def image(value, form="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (value, value, value)).save(file, form)
    return file.getvalue()


def shard(path, files):
    """A tar as others write them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def split_of(folder, *shards):
    for number, files in enumerate(shards):
        shard(folder / f"{number}.tar", files)
    (folder / "nshards.txt").write_text(str(len(shards)))
    return folder


def pair(key, label, extension="png"):
    return [(f"{key}.{extension}", image(10 * label)), (f"{key}.cls", b"%d" % label)]


def values(split):
    return [int(batch[0, 0, 0, 0]) for batch in split.images.batches(1)]


def test_the_same_examples_as_webdataset_reads(tmp_path):
    folder = split_of(
        tmp_path,
        [*pair("a/001", 3, "JPG"), *pair("b/001", 4), *pair("x" * 120, 5)],  # the last: no plain header
        [("._s1.png", b"?"), ("README", b"?"), *pair("s1", 6, "webp"), ("s1.json", b"{}")],
    )
    split = read_split(folder, "cls", 8)
    import webdataset  # imports PyTorch where it is installed

    theirs = list(
        webdataset.WebDataset([str(folder / f"{i}.tar") for i in (0, 1)], shardshuffle=False).to_tuple(
            "__key__", "webp;png;jpg;jpeg", "cls"
        )
    )
    assert split.targets == [target for _, _, target in theirs] == [b"3", b"4", b"5", b"6"]
    expected = [int(np.asarray(Image.open(io.BytesIO(content)))[0, 0, 0]) for _, content, _ in theirs]
    assert values(split) == expected
    assert [key for key, _, _ in theirs] == [
        split.images.describe(i).split("example ")[1].strip("'") for i in range(4)
    ]


def test_the_order_of_formats_is_theirs(tmp_path):
    files = [(f"a.{name}", image(i)) for i, name in enumerate(("jpeg", "png", "webp"))]
    assert values(read_split(split_of(tmp_path, [*files, ("a.cls", b"0")]), "cls", 8)) == [2]


def test_scanned_once_and_again_when_a_shard_changes(tmp_path, monkeypatch):
    folder = split_of(tmp_path / "test", pair("a", 1), pair("b", 2))
    first = read_split(folder, "cls", 8)
    with monkeypatch.context() as patch:
        patch.setattr(benchmarks, "_scan", None)
        again = read_split(folder, "cls", 8)
    assert again.targets == first.targets == [b"1", b"2"]
    assert values(again) == values(first) == [10, 20]
    assert again.images.describe(1) == first.images.describe(1) == f"{folder / '1.tar'}, example 'b'"
    shard(folder / "1.tar", [*pair("b", 2), *pair("c", 3)])
    assert read_split(folder, "cls", 8).targets == [b"1", b"2", b"3"]
    (folder / "nshards.txt").write_text("1")
    assert read_split(folder, "cls", 8).targets == [b"1"]


def test_a_damaged_index_is_made_again(tmp_path):
    folder = split_of(tmp_path, pair("a", 1))
    read_split(folder, "cls", 8)
    (kept,) = (folder / ".jestlab").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    assert read_split(folder, "cls", 8).targets == [b"1"]


def test_a_missing_shard(tmp_path):
    folder = split_of(tmp_path, pair("a", 1), pair("b", 1), pair("c", 1))
    (folder / "1.tar").unlink()
    with pytest.raises(FileNotFoundError, match=r"1\.tar: missing, and nshards\.txt counts 3 shards: fetch"):
        read_split(folder, "cls", 8)
    (folder / "nshards.txt").write_text("many")
    with pytest.raises(ValueError, match=r"nshards\.txt: 'many' is not a number of shards"):
        read_split(folder, "cls", 8)
    (folder / "nshards.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"nshards\.txt: missing"):
        read_split(folder, "cls", 8)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("x.png", image(0))], r"0\.tar, example 'x': no \.cls among its files: \['png'\]"),
        ([("x.cls", b"0")], r"0\.tar, example 'x': no \.webp or \.png or \.jpg or \.jpeg among its files"),
        ([*pair("x", 0), ("x.cls", b"1")], r"0\.tar: holds 'x\.cls' twice"),
        ([], "its shards hold no examples"),
    ],
)
def test_what_is_not_whole_is_named(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        read_split(split_of(tmp_path, files), "cls", 8)


def test_a_shard_cut_short(tmp_path):
    folder = split_of(tmp_path, [pair("a", 1)[0], ("a.cls", b"1" * 2000)])
    path = folder / "0.tar"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"0\.tar: .*cut short"):
        read_split(folder, "cls", 8)
