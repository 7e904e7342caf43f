"""The training pipeline: every example once an epoch, resumable at an exact batch, as the shards say."""

import errno
import itertools
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jestlab.models.config import Augmentation, Data, TextTower, TwoTowers, VisionTower
from jestlab.models.config.base import LoaderRuntime
from jestlab.models.data import images, pipeline
from jestlab.models.data.augmentation import augment
from jestlab.models.data.curation import select
from jestlab.models.data.images import decode, ensure_decoded
from jestlab.models.data.pipeline import BatchLayout, training_batches
from jestlab.models.data.shapes import encode_jpeg
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tars import TarWriter
from jestlab.models.data.tokenizer import ensure_tokenizer


@pytest.fixture(scope="module")
def tokenizer(web):
    return ensure_tokenizer(web, 256)


LIMIT = 10**6  # bytes of decoded images


def batches(folder, tokenizer, **changes):
    def section(whole, **names):
        given = {field: changes.pop(name) for name, field in names.items() if name in changes}
        return whole.model_copy(update=given)

    data = section(Data(), filter="filter", recaption="recaption", repeat="repeat")
    vision = section(VisionTower(image_size=16, patch_size=1), image_size="image_size")
    towers = TwoTowers(vision=vision, text=section(TextTower(length=12), text_length="length"))
    runtime = section(LoaderRuntime(), threads="loader_threads", damaged_share="damaged_share")
    options = {"batch_size": 64, "seed": 3, "tokenizer": tokenizer, **changes}
    return training_batches(folder, data, towers, runtime, **options)


def take(iterator, count):
    return list(itertools.islice(iterator, count))


def order(found):
    return np.concatenate([batch["index"] for batch in found])


def assert_same(found, expected):
    for batch, other in zip(found, expected, strict=True):
        assert batch.keys() == other.keys()
        assert all(np.array_equal(batch[part], other[part]) for part in batch)


def test_batches_hold_the_examples_they_name(web, tokenizer):
    (batch,) = take(batches(web, tokenizer), 1)
    assert {name: (part.shape, part.dtype.name) for name, part in batch.items()} == {
        "image": ((64, 16, 16, 3), "uint8"),
        "text": ((64, 12), "int32"),
        "index": ((64,), "int64"),
    }
    source = ShardIndex.load(web)
    assert np.array_equal(batch["image"], [decode(file, 16) for file in source.images(batch["index"])])
    assert np.array_equal(batch["text"], tokenizer(source.captions(batch["index"]), 12))


def test_each_example_once_an_epoch_in_an_order_that_depends_on_the_seed_only(web, tokenizer):
    found = order(take(batches(web, tokenizer), 33))  # three epochs of 700, and 12
    epochs = [found[start : start + 700].tolist() for start in (0, 700, 1400)]
    assert all(sorted(epoch) == list(range(700)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    small, other = (
        order(take(batches(web, tokenizer, **changes), 3))
        for changes in ({"image_size": 8, "text_length": 5}, {"seed": 4})
    )
    assert np.array_equal(found[:192], small) and not np.array_equal(found[:192], other)
    assert_same(*(take(batches(web, tokenizer, threads=count), 6) for count in (1, 3)))


@pytest.mark.parametrize("taken", [0, 13])
def test_state_resumes_at_the_exact_batch(web, tokenizer, taken):
    iterator = batches(web, tokenizer)
    take(iterator, taken)  # prefetching runs ahead of what was taken
    resumed = batches(web, tokenizer)
    resumed.set_state(iterator.get_state())
    assert_same(take(resumed, 4), take(iterator, 4))


def test_only_what_the_filter_keeps_is_seen(web, tokenizer):
    kept = select(web, "noise == 'clean'")
    found = order(take(batches(web, tokenizer, filter="noise == 'clean'", batch_size=2 * len(kept)), 1))
    assert sorted(found) == np.repeat(kept, 2).tolist()  # a batch may span two epochs


@pytest.mark.parametrize("copies", [None, 40])
def test_more_examples_to_compare_than_are_left_to_read_are_refused(web, tokenizer, copies):
    """Either a filter leaves few, or a column with the number of times that each is read."""
    left = select(web, "noise == 'vague'")
    options = {"filter": "noise == 'vague'", "batch_size": len(left)}
    if copies is not None:
        counts = np.zeros(700)
        counts[left] = copies
        options |= {"filter": None, "repeat": "n", "columns": {"n": counts}}
    assert len(take(batches(web, tokenizer, together=len(left), **options), 1)) == 1
    for together, others, different in ((len(left) + 1, options, len(left)), (701, {}, 700)):
        with pytest.raises(ValueError, match=rf"a batch of {together} .* the training set: {different} diff"):
            batches(web, tokenizer, together=together, **others)


def test_a_batch_that_would_mostly_hold_copies_is_refused(web, tokenizer):
    counts = np.ones(700)
    options = {"repeat": "n", "columns": {"n": counts}, "together": 64}
    counts[:20] = 20
    assert len(np.unique(order(take(batches(web, tokenizer, **options), 1)))) < 64
    counts[:20] = 500
    with pytest.raises(ValueError, match=r"repeat 'n': a batch of 64 .* would have 21 different"):
        batches(web, tokenizer, **options)


@pytest.mark.parametrize("rows", [slice(0, 16), slice(16, 64), slice(None, None, 3)])
def test_each_process_loads_only_its_rows(web, tokenizer, rows):
    loaded: list[int] = []

    def look_up(index):
        loaded.append(len(index))
        return index

    some = take(batches(web, tokenizer, rows=rows, lookups={"again": look_up}), 3)
    for all_rows, part in zip(take(batches(web, tokenizer), 3), some, strict=True):
        for name in ("image", "text", "index"):
            assert np.array_equal(all_rows[name][rows], part[name])
    assert set(loaded) == {len(range(*rows.indices(64)))}


@pytest.mark.parametrize("stored", [700 * 32, 0], ids=["stored", "each_time"])
def test_lookups_and_reference_tokens_belong_to_the_examples(web, tokenizer, monkeypatch, stored):
    monkeypatch.setattr(pipeline, "_MOST_TOKENS", stored)
    table, small = np.random.default_rng(0).normal(size=(700, 5)), ensure_tokenizer(web, 64)
    options = {"lookups": {"embedding": lambda index: table[index]}, "reference_tokenizer": (small, 20)}
    for batch in take(batches(web, tokenizer, rows=slice(8, 24), **options), 3):
        assert np.array_equal(batch["embedding"], table[batch["index"]])
        captions = ShardIndex.load(web).captions(batch["index"])
        assert np.array_equal(batch["reference_text"], small(captions, 20))
        assert np.array_equal(batch["text"], tokenizer(captions, 12))


def worn_web(folder, broken, count=90, shards=1):
    """Examples of which some have an image that can't be decoded; captions and pixels show which is which."""
    folder.mkdir(exist_ok=True)
    for shard, numbers in enumerate(np.array_split(np.arange(count), shards)):
        with TarWriter(folder / f"{shard}.tar") as tar:
            for i in numbers.tolist():
                whole = encode_jpeg(np.full((16, 16, 3), i % 256, np.uint8))
                tar.add(f"{i:04d}.jpg", whole[: len(whole) // 2] if i in broken else whole)
                tar.add(f"{i:04d}.txt", f"number {i}".encode())
    return folder


def is_whole(batch, tokenizer):
    """Image, text and number of each row belong together."""
    expected = tokenizer([f"number {i}" for i in batch["index"]], 12)
    means = batch["image"].astype(float).mean(axis=(1, 2, 3))
    return np.array_equal(batch["text"], expected) and np.abs(means - batch["index"]).max() < 3


def test_a_broken_image_gives_way_to_the_same_row_of_a_later_batch(tmp_path, tokenizer, caplog):
    broken = set(range(0, 90, 4))  # so many that a replacement is broken, too, now and then
    healthy = order(take(batches(worn_web(tmp_path / "healthy", ()), tokenizer, batch_size=9), 60))
    folder = worn_web(tmp_path / "worn", broken)
    found = take(batches(folder, tokenizer, batch_size=9, damaged_share=0.5), 20)
    for k, batch in enumerate(found):
        assert is_whole(batch, tokenizer)
        for row, example in enumerate(batch["index"]):
            place = 9 * k + row
            while healthy[place] in broken:
                place += 9
            assert example == healthy[place]
        if k % 10 < 5:  # all of one epoch, so no example twice
            assert len(set(batch["index"])) == 9
    named = re.findall(r"0\.tar, example '(\d+)': not a readable image.*: replaced", caplog.text)
    assert len(named) == len(set(named)) == 3 and broken.issuperset(map(int, named))
    assert caplog.text.count(f"{folder}: 10 damaged images replaced so far") == 1


def test_replaced_examples_are_the_same_in_parts_and_after_a_resume(tmp_path, tokenizer):
    folder = worn_web(tmp_path / "worn", {3, 40, 41})
    lookups = {"number": lambda index: index.astype(np.float32)}
    options = {"batch_size": 16, "damaged_share": 0.1, "lookups": lookups}
    whole = take(batches(folder, tokenizer, **options), 14)
    for batch in whole:
        assert np.array_equal(batch["number"], batch["index"])  # after the replacement
    resumed = batches(folder, tokenizer, **options)
    resumed.set_state({"next_index": 7})
    assert_same(take(resumed, 7), whole[7:])
    halves = [take(batches(folder, tokenizer, rows=rows, **options), 14) for rows in (slice(8), slice(8, 16))]
    for k, batch in enumerate(whole):
        assert np.array_equal(batch["index"], np.concatenate([half[k]["index"] for half in halves]))


def test_images_that_cannot_be_decoded_are_no_examples_to_compare(tmp_path, tokenizer):
    folder = worn_web(tmp_path / "worn", set(range(6, 10)), count=10)
    options = {"damaged_share": 1.0, "decoded_bytes": LIMIT}
    assert batches(folder, tokenizer, together=6, **options)
    with pytest.raises(ValueError, match=r"a batch of 7 .*: 6 different"):
        batches(folder, tokenizer, together=7, **options)


def test_too_many_broken_images_end_the_run(tmp_path, tokenizer):
    folder = worn_web(tmp_path / "worn", set(range(0, 90, 9)))
    message = r"\.damaged_share 1\.00%: .*0\.tar, example '00\d\d': not a readable image"
    with pytest.raises(ValueError, match=message):
        take(batches(folder, tokenizer, batch_size=30), 6)
    take(batches(folder, tokenizer, batch_size=30, damaged_share=0.12), 20)


def test_one_broken_image_of_a_few_is_no_error_however_often_it_is_read(tmp_path, tokenizer, caplog):
    folder = worn_web(tmp_path / "worn", {5}, count=10)
    for batch in take(batches(folder, tokenizer, batch_size=4), 100):
        assert is_whole(batch, tokenizer) and 5 not in batch["index"]
    assert caplog.text.count("example '0005': not a readable image") == 1


@pytest.mark.parametrize("share, count", [(0.01, 3), (1.0, 3), (0.0, 90), (0.2, 400)])
def test_nothing_but_broken_images_ends_at_once(tmp_path, tokenizer, share, count):
    folder = worn_web(tmp_path / "worn", set(range(count)), count)
    with pytest.raises(ValueError, match=r"damaged image.*0\.tar, example") as error:
        take(batches(folder, tokenizer, batch_size=8, damaged_share=share), 40)
    read = re.match(r"(\d+) of \d+ examples read", str(error.value))
    assert read and int(read[1]) <= 40


def test_synthetic_captions_are_read_in_place_of_the_text(tmp_path, tokenizer, caplog):
    folder, numbers = worn_web(tmp_path / "web", ()), range(90)
    captions = [None if i in (1, 2) else f"{('small', 'large')[i % 2]} red" for i in numbers]
    columns = {"key": [f"{i:04d}" for i in numbers], "n": numbers, "synthetic_caption": captions}
    pq.write_table(pa.table(columns), folder / "0.parquet")
    (found,) = take(batches(folder, tokenizer, recaption="n < 30", batch_size=88), 1)
    assert sorted(found["index"]) == [0, *range(3, 90)]
    assert "2 examples have no synthetic caption: left out" in caplog.text
    expected = [captions[i] if i < 30 else f"number {i}" for i in found["index"]]
    assert np.array_equal(found["text"], tokenizer(expected, 12))
    with pytest.raises(ValueError, match=r"2 examples have no synthetic caption, and no other"):
        batches(folder, tokenizer, filter="n in (1, 2)", recaption="n < 30")


def test_later_batches_of_another_size_go_on_in_the_same_order(web, tokenizer):
    changes = {"later": BatchLayout(3, 20, slice(None)), "augmentation": Augmentation(flip=0.5, crop=0.5)}
    found, plain = take(batches(web, tokenizer, **changes), 8), take(batches(web, tokenizer), 5)
    assert [len(batch["index"]) for batch in found] == [64] * 3 + [20] * 5
    assert np.array_equal(order(found), order(plain)[: 3 * 64 + 5 * 20])
    assert np.array_equal(found[0]["text"], plain[0]["text"])
    assert not np.array_equal(found[0]["image"], plain[0]["image"])
    halves = {**changes, "rows": slice(32, 64), "later": BatchLayout(3, 20, slice(10, 20))}
    for whole, half in zip(found, take(batches(web, tokenizer, **halves), 8), strict=True):
        for part in ("image", "index"):
            assert np.array_equal(half[part], whole[part][len(whole[part]) // 2 :])
    for taken in (2, 3):
        resumed = batches(web, tokenizer, **changes)
        resumed.set_state({"next_index": taken})
        assert_same(take(resumed, 8 - taken), found[taken:])


EXAMPLES = 24


def ten_batches(folder, tokenizer, first, **changes) -> list[object]:
    """Ten batches after the first ones, as bytes, and the error that ended them."""
    found: list[object] = []
    try:
        iterator = batches(folder, tokenizer, **changes)
        iterator.set_state({"next_index": first})
        for batch in take(iterator, 10):
            found.append({name: (part.dtype, part.shape, part.tobytes()) for name, part in batch.items()})
    except ValueError as error:
        found.append(str(error))
    return found


@given(
    broken=st.sets(st.integers(0, EXAMPLES - 1), max_size=EXAMPLES) | st.sets(st.integers(0, 3)),
    first=st.integers(0, 9),
    options=st.fixed_dictionaries(
        {
            "rows": st.sampled_from([None, slice(0, 4), slice(4, 8)]),
            "image_size": st.integers(1, 24),
            "batch_size": st.integers(8, 40),
            "seed": st.integers(0, 9),
            "damaged_share": st.sampled_from([0.0, 0.01, 0.2, 1.0]),
        }
    ),
)
def test_images_decoded_before_give_the_same_batches(tokenizer, tmp_path_factory, broken, first, options):
    folder = worn_web(tmp_path_factory.mktemp("worn"), broken, EXAMPLES, shards=2)
    each_time = ten_batches(folder, tokenizer, first, **options)
    assert not kept_images(folder)
    for _ in range(2):  # as the images are decoded, and as they are found
        assert ten_batches(folder, tokenizer, first, decoded_bytes=LIMIT, **options) == each_time
        assert kept_images(folder)


def test_stored_images_are_not_decoded_again(own_web, tokenizer, monkeypatch):
    first = take(batches(own_web, tokenizer, decoded_bytes=LIMIT), 1)
    monkeypatch.setattr(images, "decode", None)  # not called
    assert_same(take(batches(own_web, tokenizer, decoded_bytes=LIMIT), 1), first)


def test_a_full_disk_stops_no_training(own_web, tokenizer, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(images, "read_images", full)  # of the images that are stored
    one, other = (next(batches(own_web, tokenizer, decoded_bytes=limit)) for limit in (LIMIT, 0))
    assert np.array_equal(one["image"], other["image"])
    assert "No space left on device): decoding them each time" in caplog.text
    assert not [path for path in own_web.glob(".jestlab/*decoded-*") if path.suffix != ".lock"]


def kept_images(folder):
    return list(folder.glob(".jestlab/decoded-*"))


def test_images_are_stored_up_to_a_limit_until_shards_change(own_web):
    def pixels(size, budget=LIMIT):
        kept = ensure_decoded(ShardIndex.load(own_web), size, budget)
        return None if kept is None else kept.pixels.copy()

    bytes_of_all = 700 * 8 * 8 * 3
    assert pixels(8, bytes_of_all - 1) is None and not kept_images(own_web)
    before = pixels(8, bytes_of_all)
    [kept] = kept_images(own_web)
    assert sum(path.stat().st_size for path in kept.iterdir()) == bytes_of_all + 700
    pixels(4)
    assert len(kept_images(own_web)) == 2  # runs of either size need theirs
    shutil.copy(own_web / "00001.tar", own_web / "00000.tar")
    assert np.array_equal(pixels(8)[:300], before[300:600])
    assert len(kept_images(own_web)) == 1


# ---- flips and crops

ALL = np.arange(64)


def noise(count=64, size=8):
    return np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)


def test_flips_about_the_requested_share():
    before = noise()
    after = before.copy()
    augment(after, 0, Augmentation(flip=0.5), batch_size=64, rows=ALL, seed=1)
    flipped = np.array([np.array_equal(a, b[:, ::-1]) for a, b in zip(after, before, strict=True)])
    same = np.array([np.array_equal(a, b) for a, b in zip(after, before, strict=True)])
    assert (flipped ^ same).all()
    assert 16 <= flipped.sum() <= 48


def test_a_crop_is_a_square_of_the_image_resized():
    picture = noise(1, 16)
    after = picture.copy()
    augment(after, 7, Augmentation(crop=0.6), batch_size=1, rows=np.arange(1), seed=5)
    drawn = np.random.Generator(np.random.PCG64([5, 0xA06, 7])).random((4, 1))[:, 0]
    side = 16 * (0.6 + 0.4 * drawn[1])
    left, top = (16 - side) * drawn[2], (16 - side) * drawn[3]
    box = (left, top, left + side, top + side)
    expected = Image.fromarray(picture[0]).resize((16, 16), Image.Resampling.BILINEAR, box)
    assert np.array_equal(after[0], np.asarray(expected))


def test_rows_are_changed_independently():
    whole = noise()
    part = whole[16:32].copy()
    for changed, rows in ((whole, ALL), (part, ALL[16:32])):
        augment(changed, 9, Augmentation(flip=0.5, crop=0.7), batch_size=64, rows=rows, seed=2)
    assert np.array_equal(whole[16:32], part)
