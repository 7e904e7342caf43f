"""Images that stay on disk: decoded in order, ahead by a bounded number, once where they are kept."""

import io
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jestlab.models.data import images as image_module
from jestlab.models.data.images import LazyImages, decode, store_within

N = 100


@pytest.fixture(scope="module")
def contents():
    """PNG files of random pixels."""
    rng = np.random.default_rng(0)
    files = []
    for _ in range(N):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (9, 7, 3), np.uint8)).save(file, "PNG")
        files.append(file.getvalue())
    return files


@pytest.fixture
def make(contents, tmp_path):
    """Makes images in two files, 60 and 40; any byte string at offsets will do for a tar."""
    spans = []
    paths = (tmp_path / "0.tar", tmp_path / "1.tar")
    for path, part in zip(paths, (contents[:60], contents[60:]), strict=True):
        path.write_bytes(b"".join(part))
        ends = np.cumsum([len(content) for content in part]).tolist()
        spans += [(end - len(content), len(content)) for end, content in zip(ends, part, strict=True)]
    shard = np.repeat(np.array([0, 1], np.int64), [60, 40])
    keys = np.array([b"s%03d" % i for i in range(N)], np.bytes_)
    return lambda: LazyImages(paths, shard, keys, np.array(spans, np.int64), 8)


@pytest.fixture(scope="module")
def expected(contents):
    return np.stack([decode(content, 8) for content in contents])


@given(st.lists(st.integers(0, N - 1), max_size=70), st.integers(1, 40), st.integers(1, 3))
def test_batches_are_the_decoded_images_in_order(make, expected, indices, batch_size, threads):
    images = make().take(np.array(indices, np.int64))
    batches = list(images.batches(batch_size, threads))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    got = np.concatenate([np.empty((0, 8, 8, 3), np.uint8), *batches])
    np.testing.assert_array_equal(got, expected[indices])


@pytest.fixture
def decoded(monkeypatch):
    """Counts decoded images."""
    count, lock = [0], threading.Lock()

    def counting(content, size):
        with lock:
            count[0] += 1
        return decode(content, size)

    monkeypatch.setattr(image_module, "decode", counting)
    return count


def test_decoding_runs_ahead_by_two_batches_and_no_more(make, decoded):
    batches = make().batches(10)
    next(batches)
    batches.close()  # waits for what has begun
    assert decoded[0] <= 30
    assert len(list(make().batches(10))) == 10


def test_kept_images_are_decoded_once_for_all_runs(make, expected, decoded):
    images = make()
    for passes in (1, 2):
        list(images.batches(30))
        assert decoded[0] == passes * N
    for kept in (images, make()):
        kept.store()
        for batch_size in (30, 7, 100):
            np.testing.assert_array_equal(np.concatenate(list(kept.batches(batch_size))), expected)
        assert decoded[0] == 3 * N
    chosen = np.array([5, 0, 3])
    few = make().take(chosen)
    few.store()
    np.testing.assert_array_equal(np.concatenate(list(few.batches(2))), expected[chosen])
    assert decoded[0] == 3 * N + 3


def test_kept_images_of_tars_that_have_changed_are_decoded_again(make, decoded):
    make().store()
    for tar in make()._tars:
        os.utime(tar, ns=(1, 1))
    make().store()
    assert decoded[0] == 2 * N
    assert len([*make()._tars[0].parent.rglob("decoded-*")]) == 1


def test_the_smallest_sets_are_kept_within_the_budget(make, decoded):
    sizes = (45, 30, 20)
    sets = [make().take(np.arange(size)) for size in sizes]
    store_within(55 * 8 * 8 * 3, sets)
    for _ in range(2):
        for images in sets:
            list(images.batches(100))
    assert decoded[0] == 2 * 45 + 30 + 20


def test_damage_is_named(tmp_path):
    tar = tmp_path / "0.tar"
    tar.write_bytes(b"broken")
    keys, spans = np.array([b"a"], np.bytes_), np.array([[0, 6]], np.int64)
    images = LazyImages((tar,), np.zeros(1, np.int64), keys, spans, 8)
    with pytest.raises(ValueError, match=r"0\.tar, example 'a': not a readable image"):
        list(images.batches(4))
    tar.write_bytes(b"brok")
    for read in (lambda: list(images.batches(4)), images.store):
        with pytest.raises(ValueError, match=r"0\.tar, example 'a': not a readable image"):
            read()
