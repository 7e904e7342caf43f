"""JPEG bytes to pixels."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


def decode(jpeg: bytes, size: int) -> Pixels:
    """Decode an image and resize it to a square, aspect ratio not kept, as big_vision's `resize` does.

    Large JPEGs are scaled down while decoding, to no less than `size`, then resized bilinearly with
    antialiasing. Training and evaluation both decode here, so they see the same pixels.

    Args:
        jpeg: An image file's bytes (JPEG, PNG or WebP).
        size: Side of the result in pixels.

    Returns:
        uint8[size, size, 3], RGB.

    Raises:
        ValueError: The bytes are no readable image.
    """
    try:
        with Image.open(io.BytesIO(jpeg)) as image:
            image.draft("RGB", (size, size))
            pixels = image if image.mode == "RGB" else image.convert("RGB")
            if pixels.size != (size, size):
                pixels = pixels.resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(pixels)
    except (
        OSError,
        SyntaxError,
        Image.DecompressionBombError,
    ) as error:  # PIL raises SyntaxError for a bad PNG
        raise ValueError(f"not a readable image: {error}") from error
