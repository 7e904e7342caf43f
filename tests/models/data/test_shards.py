"""Random access to shards: right bytes, a fresh index, clear errors."""

from __future__ import annotations

import os
import pickle
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from jestlab.models.data import shards
from jestlab.models.data.files import derived_path
from jestlab.models.data.shards import ShardIndex, ShardSource
from jestlab.models.data.tars import TarWriter


def content(tar, member):
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def expected(folder):
    pairs = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            files = {member.name: content(tar, member) for member in tar}
        pairs += [
            (files[f"{key}.jpg"], files[f"{key}.txt"].decode()) for key in sorted({n[:9] for n in files})
        ]
    return pairs


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def small_folder(folder, count=3, tars=1):
    folder.mkdir(exist_ok=True)
    for number in range(tars):
        with TarWriter(folder / f"{number:05d}.tar") as tar:
            for i in range(count):
                tar.add(f"{i}.jpg", f"image {number} {i}".encode())
                tar.add(f"{i}.txt", f"caption {number} {i}".encode())
    return folder


def test_reads_any_examples_in_any_order(web):
    source, pairs = ShardSource(web), expected(web)
    assert len(source) == len(pairs) == 700
    indices = np.array([699, 0, 300, 299, 300, 12])
    assert [tuple(raw) for raw in source.read(indices)] == [pairs[i] for i in indices]


def test_threads_and_copies_read_the_same(web):
    source, pairs = ShardSource(web), expected(web)
    copy = pickle.loads(pickle.dumps(source))
    batches = [np.random.default_rng(i).integers(0, 700, 50) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for reader in (source, copy):
            for indices, read in zip(batches, pool.map(reader.read, batches), strict=True):
                assert [raw.jpeg for raw in read] == [pairs[i][0] for i in indices]


def test_few_files_stay_open_while_threads_read_many(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "_OPEN_FILES", 2)
    source = ShardSource(small_folder(tmp_path / "many", tars=12))
    before = open_files()
    batches = [np.random.default_rng(i).permutation(36) for i in range(30)]
    with ThreadPoolExecutor(6) as pool:
        for indices, read in zip(batches, pool.map(source.read, batches), strict=True):
            assert [raw.caption for raw in read] == [f"caption {i // 3} {i % 3}" for i in indices]
    assert open_files() <= before + 2


def test_index_is_kept_and_read_again(own_web, monkeypatch):
    first = ShardIndex.load(own_web)
    assert derived_path(own_web, "index.npz").exists()
    monkeypatch.setattr(ShardIndex, "build", None)  # a second load must not scan
    second = ShardIndex.load(own_web)
    for part in ("shard", "keys", "image", "text", "meta"):
        assert np.array_equal(getattr(first, part), getattr(second, part)), part


def test_index_follows_a_changed_tar(tmp_path):
    folder = small_folder(tmp_path / "web", count=3)
    assert len(ShardSource(folder)) == 3
    small_folder(folder, count=5)
    assert len(ShardSource(folder)) == 5
    small_folder(folder, count=5, tars=2)
    assert len(ShardSource(folder)) == 10


@pytest.mark.parametrize("damage", [b"", b"not an archive", None])
def test_damaged_index_is_built_again(own_web, damage):
    ShardIndex.load(own_web)
    path = derived_path(own_web, "index.npz")
    path.write_bytes(path.read_bytes()[:5000] if damage is None else damage)
    assert len(ShardSource(own_web).read(np.arange(3))) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become nobody")
def test_a_folder_that_may_not_be_written_is_read_all_the_same():
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        folder = small_folder(Path(parent) / "shared")
        try:
            os.seteuid(65534)
            assert len(ShardSource(folder)) == 3
            assert not derived_path(folder, "index.npz").exists()
        finally:
            os.seteuid(0)


def test_a_tar_cut_short_after_indexing_names_the_example(own_web):
    source = ShardSource(own_web)
    tar = own_web / "00001.tar"
    os.truncate(tar, tar.stat().st_size // 2)
    with pytest.raises(ValueError, match=r"00001\.tar, example '000010299': cut short"):
        source.read(np.array([0, 599]))


@pytest.mark.parametrize(
    "files, missing", [(["0.jpg"], "caption"), (["0.txt"], "image"), (["0.jpg", "0.json"], "cap")]
)
def test_an_incomplete_example_is_named(tmp_path, files, missing):
    with TarWriter(tmp_path / "0.tar") as tar:
        for name in files:
            tar.add(name, b"")
    with pytest.raises(ValueError, match=rf"0\.tar, example '0': no {missing}"):
        ShardSource(tmp_path)


def test_a_caption_that_is_not_text_is_named(tmp_path):
    with TarWriter(tmp_path / "0.tar") as tar:
        for i in range(2):
            tar.add(f"{i}.jpg", b"")
            tar.add(f"{i}.txt", b"fine" if i == 0 else b"\xff\xfe")
    with pytest.raises(ValueError, match=r"0\.tar, example '1': its caption is not UTF-8"):
        ShardSource(tmp_path).captions(np.arange(2))


def test_no_folder_and_no_shards(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ShardSource(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"holds no \.tar shards"):
        ShardSource(tmp_path)
