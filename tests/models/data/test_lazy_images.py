"""Images that stay in tars: decoded in order, some batches ahead, or once for all runs."""

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
    files = [io.BytesIO() for _ in range(N)]
    for file in files:
        Image.fromarray(rng.integers(0, 256, (9, 7, 3), np.uint8)).save(file, "PNG")
    return [file.getvalue() for file in files]


@pytest.fixture
def make(contents, tmp_path):
    """Makes images in two files of 60 and 40. They needn't be tars, because only locations are used."""
    paths, spans = (tmp_path / "0.tar", tmp_path / "1.tar"), []
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


@given(st.lists(st.integers(0, N - 1), max_size=70), st.integers(1, 40), st.integers(1, 3), st.booleans())
def test_batches_are_the_decoded_images_in_order(make, expected, indices, batch_size, threads, stored):
    images = make().take(np.array(indices, np.int64))
    if stored:
        images.store(threads)
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


def test_two_batches_at_most_are_decoded_ahead(make, decoded):
    batches = make().batches(10)
    next(batches)
    batches.close()  # waits for the started ones
    assert decoded[0] <= 30
    assert len(list(make().batches(10))) == 10


def test_stored_images_are_decoded_once_until_the_tars_change(make, decoded):
    images = make()
    for passes in (1, 2):
        list(images.batches(30))
        assert decoded[0] == passes * N
    for stored in (images, make()):
        stored.store()
        list(stored.batches(30))
        assert decoded[0] == 3 * N
    os.utime(images.folder / "0.tar", ns=(1, 1))
    make().store()
    assert decoded[0] == 4 * N
    assert len([*images.folder.rglob("decoded-*")]) == 1


def test_the_smallest_sets_are_stored_within_the_budget(make, decoded):
    sets = [make().take(np.arange(size)) for size in (45, 30, 20)]
    store_within(55 * 8 * 8 * 3, sets)
    for _ in range(2):
        for images in sets:
            list(images.batches(100))
    assert decoded[0] == 2 * 45 + 30 + 20


@pytest.mark.parametrize("content", [b"broken", b"brok"])
def test_errors_name_the_damaged_example(tmp_path, content):
    (tmp_path / "0.tar").write_bytes(content)
    keys, spans = np.array([b"a"], np.bytes_), np.array([[0, 6]], np.int64)
    images = LazyImages((tmp_path / "0.tar",), np.zeros(1, np.int64), keys, spans, 8)
    for read in (lambda: list(images.batches(4)), images.store):
        with pytest.raises(ValueError, match=r"0\.tar, example 'a': not a readable image"):
            read()
