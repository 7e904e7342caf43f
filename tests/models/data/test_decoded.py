"""Images decoded once for all runs: the batches are those of images decoded each time, byte for byte."""

from __future__ import annotations

import errno
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.data import images
from jestlab.models.data.images import decode, ensure_decoded
from jestlab.models.data.pipeline import training_batches
from jestlab.models.data.shapes import encode_jpeg
from jestlab.models.data.shards import ShardSource
from jestlab.models.data.tars import TarWriter
from jestlab.models.data.tokenizer import ensure_tokenizer, train_tokenizer

TOKENIZER = train_tokenizer([f"number {i}" for i in range(100)], 64)
EXAMPLES = 24
KEPT = 10**6


def worn_web(folder, broken):
    """Two shards of noise, some of it cut off in the middle."""
    rng = np.random.default_rng(7)
    for shard in range(2):
        with TarWriter(folder / f"{shard}.tar") as tar:
            for i in range(shard * EXAMPLES // 2, (shard + 1) * EXAMPLES // 2):
                whole = encode_jpeg(rng.integers(0, 256, (20, 20, 3), np.uint8))
                tar.add(f"{i:04d}.jpg", whole[: len(whole) // 2] if i in broken else whole)
                tar.add(f"{i:04d}.txt", f"number {i}".encode())


def batches(folder, tokenizer=TOKENIZER, **changes):
    options = {"filter": None, "image_size": 8, "text_length": 6, "batch_size": 8, "seed": 3}
    return training_batches(folder, tokenizer=tokenizer, **(options | changes))


def pixels(folder, size):
    kept = ensure_decoded(ShardSource(folder), size, KEPT)
    assert kept is not None
    return kept.pixels


def seen(folder, first, **changes) -> list[object]:
    """Ten batches from some place on, as bytes, and what ended them."""
    found: list[object] = []
    try:
        iterator = batches(folder, **changes)
        iterator.set_state({"next_index": first})
        for batch in itertools.islice(iterator, 10):
            found.append({name: (part.dtype, part.shape, part.tobytes()) for name, part in batch.items()})
    except ValueError as error:
        found.append(str(error))
    return found


@given(
    broken=st.sets(st.integers(0, EXAMPLES - 1), max_size=EXAMPLES) | st.sets(st.integers(0, 3)),
    first=st.integers(0, 9),
    rows=st.sampled_from([None, slice(0, 4), slice(4, 8)]),
    how=st.fixed_dictionaries(
        {
            "image_size": st.integers(1, 24),
            "batch_size": st.integers(8, 40),
            "seed": st.integers(0, 9),
            "damaged_share": st.sampled_from([0.0, 0.01, 0.2, 1.0]),
        }
    ),
)
def test_batches_are_the_same_with_and_without(broken, first, rows, how, tmp_path_factory):
    folder = tmp_path_factory.mktemp("worn")
    worn_web(folder, broken)
    each_time = seen(folder, first, rows=rows, **how)
    assert not list(folder.glob(".jestlab/decoded-*"))
    for _ in range(2):  # as they are made, and as they are found
        assert seen(folder, first, rows=rows, decoded_bytes=KEPT, **how) == each_time
        assert list(folder.glob(".jestlab/decoded-*"))


def test_what_is_decoded_is_not_decoded_again(own_web, monkeypatch):
    tokenizer = ensure_tokenizer(own_web, 256)
    first = next(batches(own_web, tokenizer, decoded_bytes=KEPT))

    def refuse(file, size):
        raise AssertionError("decoded again")

    monkeypatch.setattr(images, "decode", refuse)
    again = next(batches(own_web, tokenizer, decoded_bytes=KEPT))
    assert np.array_equal(first["image"], again["image"])
    files = ShardSource(own_web).images(first["index"])
    monkeypatch.undo()
    assert np.array_equal(first["image"], [decode(file, 8) for file in files])


def test_no_more_is_kept_than_was_said(own_web):
    source, bytes_of_all = ShardSource(own_web), 700 * 8 * 8 * 3
    assert ensure_decoded(source, 8, bytes_of_all - 1) is None
    assert not list(own_web.glob(".jestlab/decoded-*"))
    assert ensure_decoded(source, 8, bytes_of_all) is not None
    [kept] = own_web.glob(".jestlab/decoded-*")
    assert sum(path.stat().st_size for path in kept.iterdir()) == bytes_of_all + 700


def test_other_shards_are_decoded_anew_and_what_was_kept_of_them_goes(own_web):
    before = pixels(own_web, 8)
    pixels(own_web, 4)
    assert len(list(own_web.glob(".jestlab/decoded-*"))) == 2  # runs of either size need theirs
    shutil.copy(own_web / "00001.tar", own_web / "00000.tar")
    after = pixels(own_web, 8)
    assert len(list(own_web.glob(".jestlab/decoded-*"))) == 1
    assert np.array_equal(after[:300], before[300:600])


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"x"), Path.unlink])
@pytest.mark.parametrize("name", ["pixels.uint8", "whole.bool"])
def test_a_damaged_copy_is_made_again(own_web, spoil, name, caplog):
    before = pixels(own_web, 8).copy()
    [kept] = own_web.glob(".jestlab/decoded-*")
    spoil(kept / name)
    assert np.array_equal(pixels(own_web, 8), before)
    assert "built again" in caplog.text


def test_a_full_disk_stops_no_training(own_web, monkeypatch, caplog):
    def full(source, size, folder):
        (folder / "pixels.uint8").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(images, "_decode_all", full)
    tokenizer = ensure_tokenizer(own_web, 256)
    (one, other) = (next(batches(own_web, tokenizer, decoded_bytes=size)) for size in (KEPT, 0))
    assert np.array_equal(one["image"], other["image"])
    assert "No space left on device): decoding them each time" in caplog.text
    assert not [path for path in own_web.glob(".jestlab/*decoded-*") if path.suffix != ".lock"]
