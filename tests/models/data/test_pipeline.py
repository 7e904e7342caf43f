"""The training pipeline: every example once an epoch, resumable at an exact batch, as the shards say."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jestlab.models.data import pipeline
from jestlab.models.data.curation import select
from jestlab.models.data.images import decode
from jestlab.models.data.metadata import load_metadata
from jestlab.models.data.pipeline import Later, training_batches
from jestlab.models.data.shapes import encode_jpeg
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
        "damaged": ((), "int64"),
    }
    assert batch["damaged"] == 0
    source = ShardSource(web)
    assert np.array_equal(batch["image"], [decode(file, 16) for file in source.images(batch["index"])])
    assert np.array_equal(batch["text"], tokenizer(source.captions(batch["index"]), 12))


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


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing_but_time(web, tokenizer, threads):
    one, other = (take(batches(web, tokenizer, threads=count), 14) for count in (1, threads))
    for first, second in zip(one, other, strict=True):
        assert all(np.array_equal(first[part], second[part]) for part in first)


def test_each_process_loads_its_rows_alone(web, tokenizer, monkeypatch):
    whole = take(batches(web, tokenizer), 12)
    read: dict[ShardSource, set[int]] = {}

    class Counted(ShardSource):
        """Threads that load ahead outlive the test: what they run must not be taken from under them."""

        def images(self, index):
            read.setdefault(self, set()).add(len(index))
            return super().images(index)

    monkeypatch.setattr(pipeline, "ShardSource", Counted)
    for rows in (slice(0, 16), slice(16, 64), slice(None, None, 3)):
        for all_rows, some in zip(whole, take(batches(web, tokenizer, rows=rows), 12), strict=True):
            for part in ("image", "text", "index"):
                assert np.array_equal(all_rows[part][rows], some[part])
    # Batches are loaded ahead, so the first iterator may still have been loading.
    assert {frozenset(sizes) for sizes in read.values()} - {frozenset({64})} == {
        frozenset({size}) for size in (16, 48, 22)
    }


def test_lookups_get_the_numbers_of_the_batch(web, tokenizer):
    table = np.random.default_rng(0).normal(size=(700, 5))
    lookups = {"embedding": lambda index: table[index], "twice": lambda index: 2 * index}
    for batch in take(batches(web, tokenizer, lookups=lookups, rows=slice(8, 24)), 3):
        assert np.array_equal(batch["embedding"], table[batch["index"]])
        assert np.array_equal(batch["twice"], 2 * batch["index"])


def test_a_reference_that_reads_other_tokens(web, tokenizer):
    small = ensure_tokenizer(web, 64)
    (batch,) = take(batches(web, tokenizer, reference_tokenizer=(small, 20)), 1)
    captions = ShardSource(web).captions(batch["index"])
    assert np.array_equal(batch["reference_text"], small(captions, 20))
    assert np.array_equal(batch["text"], tokenizer(captions, 12))


def worn_web(folder, broken, count=90):
    """Examples of which some have an image that cannot be decoded; captions and pixels say which is which."""
    folder.mkdir()
    with TarWriter(folder / "0.tar") as tar:
        for i in range(count):
            whole = encode_jpeg(np.full((16, 16, 3), i % 256, np.uint8))
            tar.add(f"{i:04d}.jpg", whole[: len(whole) // 2] if i in broken else whole)
            tar.add(f"{i:04d}.txt", f"number {i}".encode())
    return folder


def is_whole(batch, tokenizer):
    """Image, text and number of each row belong together."""
    expected = tokenizer([f"number {i}" for i in batch["index"]], 12)
    means = batch["image"].astype(float).mean(axis=(1, 2, 3))
    return np.array_equal(batch["text"], expected) and np.abs(means - batch["index"]).max() < 3


def test_a_broken_image_gives_way_to_the_same_row_of_a_later_batch(tmp_path, tokenizer):
    broken = set(range(0, 90, 4))  # so many that a replacement is broken, too, now and then
    healthy = order(take(batches(worn_web(tmp_path / "healthy", ()), tokenizer, batch_size=9), 60))
    folder = worn_web(tmp_path / "worn", broken)
    found = take(batches(folder, tokenizer, batch_size=9, damaged_share=0.5), 20)
    damaged = 0
    for k, batch in enumerate(found):
        assert is_whole(batch, tokenizer)
        replaced = np.isin(healthy[9 * k : 9 * k + 9], list(broken))
        assert batch["damaged"] == replaced.sum()
        damaged += int(replaced.sum())
        for row, example in enumerate(batch["index"]):
            place = 9 * k + row
            while healthy[place] in broken:
                place += 9
            assert example == healthy[place]
        if k % 10 < 5:  # all of one epoch, so no example twice
            assert len(set(batch["index"])) == 9
    assert damaged == 2 * len(broken)  # in two epochs


def test_replaced_examples_are_the_same_in_parts_and_after_a_resume(tmp_path, tokenizer):
    folder = worn_web(tmp_path / "worn", {3, 40, 41})
    lookups = {"number": lambda index: index.astype(np.float32)}
    options = {"batch_size": 16, "damaged_share": 0.1, "lookups": lookups}
    whole = take(batches(folder, tokenizer, **options), 14)
    for batch in whole:
        assert np.array_equal(batch["number"], batch["index"])  # after the replacement
    resumed = batches(folder, tokenizer, **options)
    resumed.set_state({"next_index": 7})
    for one, other in zip(whole[7:], take(resumed, 7), strict=True):
        assert all(np.array_equal(one[part], other[part]) for part in one)
    halves = [take(batches(folder, tokenizer, rows=rows, **options), 14) for rows in (slice(8), slice(8, 16))]
    for k, batch in enumerate(whole):
        assert np.array_equal(batch["index"], np.concatenate([half[k]["index"] for half in halves]))
        assert batch["damaged"] == sum(half[k]["damaged"] for half in halves)


def test_too_many_broken_images_end_the_run(tmp_path, tokenizer):
    folder = worn_web(tmp_path / "worn", set(range(0, 90, 9)))
    with pytest.raises(ValueError) as error:
        take(batches(folder, tokenizer, batch_size=30), 6)
    assert re.fullmatch(
        r"\d+ of \d+ examples read have a damaged image, above runtime\.damaged_share 1\.00%: "
        r".*0\.tar, example '00\d\d': not a readable image.*: fetch these shards again, or raise .*",
        str(error.value),
    )
    take(batches(folder, tokenizer, batch_size=30, damaged_share=0.12), 20)


def test_broken_images_are_noticed_at_once(tmp_path, tokenizer):
    folder = worn_web(tmp_path / "worn", set(range(400)), 400)
    with pytest.raises(ValueError) as error:
        take(batches(folder, tokenizer, batch_size=8, damaged_share=0.2), 1)
    read = re.search(r"of (\d+) examples read", str(error.value))
    assert read and int(read[1]) <= 40


def test_one_broken_image_of_a_few_is_no_error_however_often_it_is_read(tmp_path, tokenizer):
    folder = worn_web(tmp_path / "worn", {5}, count=10)
    for batch in take(batches(folder, tokenizer, batch_size=4), 100):
        assert is_whole(batch, tokenizer) and 5 not in batch["index"]


@pytest.mark.parametrize("share, count", [(0.01, 3), (1.0, 3), (0.0, 90)])
def test_nothing_but_broken_images_ends(tmp_path, tokenizer, share, count):
    folder = worn_web(tmp_path / "worn", set(range(count)), count)
    with pytest.raises(ValueError, match=r"damaged image.*0\.tar, example"):
        take(batches(folder, tokenizer, batch_size=8, damaged_share=share), 40)


def test_synthetic_captions_are_read_in_place_of_the_text(web, own_web, tokenizer, caplog):
    chosen = select(web, "noise == 'vague'")
    for path in sorted(own_web.glob("*.parquet")):
        table = pq.read_table(path)
        captions: list[str | None] = [f"{key[-3:]} small red" for key in table["key"].to_pylist()]
        if path.name == "00000.parquet":
            captions[int(chosen[0])] = None
        table = table.drop_columns("synthetic_caption")
        pq.write_table(table.append_column("synthetic_caption", pa.array(captions)), path)
    found = take(batches(own_web, tokenizer, recaption="noise == 'vague'", batch_size=699), 1)[0]
    assert sorted(found["index"]) == sorted(set(range(700)) - {chosen[0]})
    assert "left out because they have no synthetic caption: 1" in caplog.text
    raw = ShardSource(own_web).captions(found["index"])
    keys = {int(i): f"{i % 300:03d} small red" for i in chosen}
    expected = [keys.get(int(i), caption) for i, caption in zip(found["index"], raw, strict=True)]
    assert np.array_equal(found["text"], tokenizer(expected, 12))
    assert sum(caption != text for caption, text in zip(raw, expected, strict=True)) == len(chosen) - 1
    both = take(batches(own_web, tokenizer, filter="noise != 'blank'", recaption="noise == 'vague'"), 1)
    assert not np.isin(both[0]["index"], select(web, "noise == 'blank'")).any()


def test_recaption_without_any_synthetic_caption(own_web, tokenizer):
    for path in own_web.glob("*.parquet"):
        table = pq.read_table(path)
        nothing = pa.array([None] * len(table), pa.string())
        table = table.drop_columns("synthetic_caption")
        pq.write_table(table.append_column("synthetic_caption", nothing), path)
    with pytest.raises(ValueError, match=r"none of the 700 examples .* has a synthetic caption"):
        batches(own_web, tokenizer, recaption="similarity > -2")


def test_later_batches_of_another_size_go_on_in_the_same_order(web, tokenizer):
    changes = {"later": Later(3, 20, slice(None)), "flip": 0.5, "crop": 0.5}
    iterator = batches(web, tokenizer, **changes)
    found = take(iterator, 8)
    assert [len(batch["index"]) for batch in found] == [64] * 3 + [20] * 5
    assert np.array_equal(order(found), order(take(batches(web, tokenizer), 5))[: 3 * 64 + 5 * 20])
    for taken in (2, 3, 5):
        resumed = batches(web, tokenizer, **changes)
        take(resumed, taken)
        again = batches(web, tokenizer, **changes)
        again.set_state(resumed.get_state())
        for ours, theirs in zip(take(again, 8 - taken), found[taken:], strict=True):
            assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_process_loads_its_rows_of_later_batches(web, tokenizer):
    whole = take(batches(web, tokenizer, later=Later(1, 20, slice(None))), 3)
    part = take(batches(web, tokenizer, rows=slice(32, 64), later=Later(1, 20, slice(10, 20))), 3)
    assert np.array_equal(part[0]["index"], whole[0]["index"][32:])
    for ours, theirs in zip(part[1:], whole[1:], strict=True):
        assert np.array_equal(ours["index"], theirs["index"][10:])
