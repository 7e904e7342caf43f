"""Decoding: the right size, form and range, from any image file."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from jestlab.models.data.images import decode


def encoded(pixels, form="JPEG", mode=None, **options):
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, form, **options)
    return file.getvalue()


def gradient(height, width):
    y, x = np.mgrid[:height, :width]
    return np.stack([255 * x / width, 255 * y / height, 0 * x + 128], -1).astype(np.uint8)


@pytest.mark.parametrize("shape", [(32, 32), (64, 64), (16, 16), (8, 8), (50, 90), (33, 31)])
def test_resized_to_a_square(shape):
    pixels = decode(encoded(gradient(*shape), quality=95, subsampling=0), 16)
    assert pixels.shape == (16, 16, 3) and pixels.dtype == np.uint8
    assert np.abs(pixels.astype(float) - gradient(16, 16)).mean() < 10


OTHERS = [("PNG", None), ("PNG", "P"), ("PNG", "RGBA"), ("JPEG", "L"), ("JPEG", "CMYK"), ("WEBP", None)]


@pytest.mark.parametrize("form, mode", OTHERS)
def test_other_files_become_rgb(form, mode):
    assert decode(encoded(gradient(32, 32), form, mode), 16).shape == (16, 16, 3)


def test_scaling_while_decoding_keeps_the_picture():
    big = gradient(256, 256)
    slow = np.asarray(Image.fromarray(big).resize((16, 16), Image.Resampling.BILINEAR)).astype(float)
    assert np.abs(decode(encoded(big, quality=95), 16) - slow).max() < 8


@pytest.mark.parametrize(
    "bad", [b"", b"not an image", encoded(gradient(32, 32))[:400], b"\x89PNG\r\n\x1a\n" + b"x" * 40]
)
def test_unreadable_bytes(bad):
    with pytest.raises(ValueError, match="not a readable image"):
        decode(bad, 16)
