"""Flips and crops of the images that are trained on."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from jestlab.models.config import TrainConfig
from jestlab.models.data.augmentation import Augmenter
from jestlab.models.data.pipeline import training_batches
from jestlab.models.data.tokenizer import ensure_tokenizer, train_tokenizer
from jestlab.models.training.reference import Reference, prepare

ALL = np.arange(64)


def images(count: int = 64, size: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)


def test_a_flip_exchanges_left_and_right_of_about_the_share_that_was_asked():
    before = images()
    after = before.copy()
    Augmenter(0.5, 1.0, 64, ALL, seed=1)(0, after)
    flipped = np.array([np.array_equal(a, b[:, ::-1]) for a, b in zip(after, before, strict=True)])
    same = np.array([np.array_equal(a, b) for a, b in zip(after, before, strict=True)])
    assert (flipped ^ same).all()
    assert 16 <= flipped.sum() <= 48


def test_a_crop_is_a_square_of_the_picture_enlarged():
    size, least = 32, 0.5
    ramp = np.broadcast_to(np.linspace(0, 248, size).astype(np.uint8)[None, :, None], (size, size, 3))
    after = np.stack([ramp] * 64)
    Augmenter(0.0, least, 64, ALL, seed=3)(0, after)
    # A horizontal ramp stays one; what is cut off shortens its range to the side of the square.
    spans = (after[:, 0, -1, 0].astype(int) - after[:, 0, 0, 0]) / 248
    assert (np.diff(after[:, 5, :, 0].astype(int), axis=1) >= 0).all()
    assert spans.min() >= least - 0.05 and spans.max() <= 1.0
    assert 0.65 < spans.mean() < 0.85, "sides are uniform from the least to the whole"
    starts = after[:, 0, 0, 0] / 248
    assert starts.min() < 0.05 and 0.2 < starts.max() <= 0.5, "anywhere in the picture"


def test_an_oracle_for_one_crop():
    picture = images(1, 16)
    after = picture.copy()
    Augmenter(0.0, 0.6, 1, np.arange(1), seed=5)(7, after)
    drawn = np.random.Generator(np.random.PCG64([5, 0xA06, 7])).random((4, 1))[:, 0]
    side = 16 * (0.6 + 0.4 * drawn[1])
    left, top = (16 - side) * drawn[2], (16 - side) * drawn[3]
    box = (left, top, left + side, top + side)
    expected = Image.fromarray(picture[0]).resize((16, 16), Image.Resampling.BILINEAR, box)
    assert np.array_equal(after[0], np.asarray(expected))


def test_what_happens_to_a_row_does_not_depend_on_which_rows_are_loaded_with_it():
    whole = images()
    part = whole[16:32].copy()
    Augmenter(0.5, 0.7, 64, ALL, seed=2)(9, whole)
    Augmenter(0.5, 0.7, 64, ALL[16:32], seed=2)(9, part)
    assert np.array_equal(whole[16:32], part)


def batches(web, **more):
    return training_batches(
        web, filter=None, tokenizer=ensure_tokenizer(web, 256), image_size=16, text_length=8, batch_size=32,
        seed=4, **more,
    )  # fmt: skip


def test_batches_are_changed_each_time_and_resume_to_the_same(web):
    plain, changed = batches(web), batches(web, flip=0.5, crop=0.7)
    first, second = next(plain), next(plain)
    changed_first = next(changed)
    assert np.array_equal(first["index"], changed_first["index"])
    assert np.array_equal(first["text"], changed_first["text"])
    assert not np.array_equal(first["image"], changed_first["image"])
    state = changed.get_state()
    after = next(changed)
    assert not np.array_equal(second["image"], after["image"])
    again = batches(web, flip=0.5, crop=0.7)
    again.set_state(state)
    assert np.array_equal(next(again)["image"], after["image"])


def test_augmentation_is_part_of_a_runs_identity():
    plain = TrainConfig().identity()
    assert TrainConfig.model_validate({"augmentation": {"flip": 0.0, "crop": 1.0}}).identity() == plain
    assert TrainConfig.model_validate({"augmentation": {"flip": 0.5}}).identity() != plain
    with pytest.raises(ValueError, match="crop"):
        TrainConfig.model_validate({"augmentation": {"crop": 0.0}})


def test_cached_embeddings_do_not_go_with_changed_images(tmp_path):
    """They are of the images as they are."""
    sections = {"selection": {"rule": "joint", "reference": "cache"}, "augmentation": {"flip": 0.5}}
    config = TrainConfig.model_validate(sections)
    tokenizer = train_tokenizer(["a dog", "a cat"], 64)
    with pytest.raises(ValueError, match=r"^augmentation: .* name the reference itself"):
        prepare(config, tmp_path, tokenizer, Reference(tmp_path, None))
