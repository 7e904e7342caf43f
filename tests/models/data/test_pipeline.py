"""The training pipeline: every example once an epoch, resumable at an exact batch, as the shards say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jestlab.models.data.curation import load_metadata, select
from jestlab.models.data.images import decode
from jestlab.models.data.pipeline import training_batches
from jestlab.models.data.shards import ShardSource
from jestlab.models.data.tars import TarWriter
from jestlab.models.data.tokenizer import ensure_tokenizer


@pytest.fixture(scope="module")
def tokenizer(web):
    return ensure_tokenizer(web, 256)


def batches(folder, tokenizer, **changes):
    options = {"filter": None, "image_size": 16, "text_length": 12, "batch_size": 64, "seed": 3}
    return training_batches(folder, tokenizer=tokenizer, **(options | changes))


def take(iterator, count):
    return list(itertools.islice(iterator, count))


def order(found):
    return np.concatenate([batch["index"] for batch in found])


def test_batches_hold_the_examples_they_name(web, tokenizer):
    (batch,) = take(batches(web, tokenizer), 1)
    assert {name: (part.shape, part.dtype.name) for name, part in batch.items()} == {
        "image": ((64, 16, 16, 3), "uint8"),
        "text": ((64, 12), "int32"),
        "index": ((64,), "int64"),
    }
    raw = ShardSource(web).read(batch["index"])
    assert np.array_equal(batch["image"], [decode(example.jpeg, 16) for example in raw])
    assert np.array_equal(batch["text"], tokenizer([example.caption for example in raw], 12))


def test_each_example_once_an_epoch_and_epochs_differ(web, tokenizer):
    found = order(take(batches(web, tokenizer), 33))  # 2,112 examples: three epochs of 700, and 12
    epochs = found[: 3 * 700].reshape(3, 700)
    for epoch in epochs:
        assert sorted(epoch) == list(range(700))
    assert not np.array_equal(epochs[0], epochs[1]) and not np.array_equal(epochs[1], epochs[2])


def test_same_seed_same_order_other_seed_other_order(web, tokenizer):
    first, again, other = (order(take(batches(web, tokenizer, seed=seed), 3)) for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_order_does_not_depend_on_image_size_or_text_length(web, tokenizer):
    found = [
        order(take(batches(web, tokenizer, image_size=i, text_length=t), 3)) for i, t in ((16, 12), (8, 5))
    ]
    assert np.array_equal(*found)


@pytest.mark.parametrize("taken", [0, 1, 10, 25])
def test_state_resumes_at_the_exact_batch(web, tokenizer, taken):
    iterator = batches(web, tokenizer)
    take(iterator, taken)  # prefetching runs ahead of what was taken
    state = iterator.get_state()
    expected = take(iterator, 4)
    resumed = batches(web, tokenizer)
    resumed.set_state(state)
    for one, other in zip(expected, take(resumed, 4), strict=True):
        assert all(np.array_equal(one[part], other[part]) for part in one)


def test_only_what_the_filter_keeps_is_seen(web, tokenizer):
    kept = select(web, "noise == 'clean'")
    found = order(take(batches(web, tokenizer, filter="noise == 'clean'", batch_size=len(kept)), 1))
    assert sorted(found) == kept.tolist()
    assert {load_metadata(web, ["noise"])["noise"][i] for i in found} == {"clean"}


def test_batches_larger_than_the_data(web, tokenizer):
    (batch,) = take(batches(web, tokenizer, batch_size=1500), 1)
    assert np.bincount(batch["index"]).min() == 2


def test_an_unreadable_image_is_named(web, tokenizer, tmp_path):
    (good,) = ShardSource(web).read(np.array([0]))
    with TarWriter(tmp_path / "00007.tar") as tar:
        for i, jpeg in enumerate((good.jpeg, good.jpeg[:300], good.jpeg)):
            tar.add(f"{i:04d}.jpg", jpeg)
            tar.add(f"{i:04d}.txt", b"caption")
    with pytest.raises(ValueError, match=r"00007\.tar, example '0001': not a readable image"):
        take(batches(tmp_path, tokenizer, batch_size=3), 1)
