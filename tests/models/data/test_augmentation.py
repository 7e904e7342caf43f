"""Flips and crops of the images that are trained on; `test_pipeline.py` shows that batches have them."""

import numpy as np
from PIL import Image

from jestlab.models.data.augmentation import Augmenter

ALL = np.arange(64)


def images(count: int = 64, size: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)


def test_flips_about_the_requested_share():
    before = images()
    after = before.copy()
    Augmenter(0.5, 1.0, 64, ALL, seed=1)(0, after)
    flipped = np.array([np.array_equal(a, b[:, ::-1]) for a, b in zip(after, before, strict=True)])
    same = np.array([np.array_equal(a, b) for a, b in zip(after, before, strict=True)])
    assert (flipped ^ same).all()
    assert 16 <= flipped.sum() <= 48


def test_a_crop_is_a_square_of_the_image_resized():
    picture = images(1, 16)
    after = picture.copy()
    Augmenter(0.0, 0.6, 1, np.arange(1), seed=5)(7, after)
    drawn = np.random.Generator(np.random.PCG64([5, 0xA06, 7])).random((4, 1))[:, 0]
    side = 16 * (0.6 + 0.4 * drawn[1])
    left, top = (16 - side) * drawn[2], (16 - side) * drawn[3]
    box = (left, top, left + side, top + side)
    expected = Image.fromarray(picture[0]).resize((16, 16), Image.Resampling.BILINEAR, box)
    assert np.array_equal(after[0], np.asarray(expected))


def test_rows_are_changed_independently():
    whole = images()
    part = whole[16:32].copy()
    Augmenter(0.5, 0.7, 64, ALL, seed=2)(9, whole)
    Augmenter(0.5, 0.7, 64, ALL[16:32], seed=2)(9, part)
    assert np.array_equal(whole[16:32], part)
