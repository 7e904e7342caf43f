"""Image files to pixels."""

from __future__ import annotations

import io
import struct

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]

_JPEG = b"\xff\xd8"
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")  # PIL has others that start programs, as EPS does
_EXIF = b"Exif\0\0"
_EXIF_WITHIN = 4096  # bytes: the standard puts it first
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_MOST_PIXELS = 2 * (Image.MAX_IMAGE_PIXELS or 2**27)  # where PIL, too, takes a file for a bomb


def decode(file: bytes, size: int) -> Pixels:
    """Decode an image and resize it to a square, aspect ratio not kept, as big_vision's `resize` does.

    JPEGs of more than twice `size` are scaled down in the frequency domain while decoding, to no less than
    twice `size`, then all are resized bilinearly with antialiasing. Against resizing the whole picture that
    changes a photograph's pixels by at most 2 of 255 in the mean and 9 at the 99th percentile (1 and 6 from
    256 pixels to 64); scaling to `size` itself would be a third faster and change them by 4 and 26. Training
    and evaluation both decode here, so they see the same pixels.

    Turned as EXIF says; 16-bit grey values keep their upper byte; what is transparent shows white, as
    img2dataset saves it; CMYK as PIL converts it.

    Args:
        file: An image file's bytes (JPEG, PNG, WebP, GIF or BMP; of an animation the first frame).
        size: Side of the result in pixels.

    Returns:
        uint8[size, size, 3], RGB.

    Raises:
        ValueError: The bytes are no whole, readable image.
    """
    pixels = _jpeg(file, size) if file.startswith(_JPEG) else None
    return _other(file, size) if pixels is None else pixels


def _jpeg(file: bytes, size: int) -> Pixels | None:
    """A JPEG by libjpeg-turbo; None for those that only PIL reads."""
    import simplejpeg

    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(file)
    except ValueError:  # damaged, or colours sampled in a way that this binding does not know
        return None
    if colours not in ("YCbCr", "RGB", "Gray") or height * width > _MOST_PIXELS:
        return None
    try:
        scaled = simplejpeg.decode_jpeg(file, min_height=2 * size, min_width=2 * size)
    except ValueError as error:
        raise ValueError(f"not a readable image: {error}") from error
    orientation = _orientation_of(file) if file.find(_EXIF, 0, _EXIF_WITHIN) >= 0 else 1
    # Scaled by M/8, M = 1 … 8, and rounded up: the last row or column may lie half outside the picture.
    eighths = 8 * max(scaled.shape[:2]) // max(height, width)
    box = (0.0, 0.0, width * eighths / 8, height * eighths / 8)
    return _square(Image.fromarray(scaled), size, orientation, box)


def _other(file: bytes, size: int) -> Pixels:
    """Any image that PIL reads."""
    try:
        with Image.open(io.BytesIO(file), formats=_FORMATS) as image:
            return _square(_rgb(image), size, _orientation(image))
    # PIL raises SyntaxError for a bad PNG, and others where damaged fields mislead it.
    except (
        OSError,
        SyntaxError,
        ValueError,
        OverflowError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        raise ValueError(f"not a readable image: {error}") from error


def _rgb(image: Image.Image) -> Image.Image:
    """Three channels of eight bits."""
    if image.mode.startswith("I"):
        # NOTE: footgun: PIL converts 16-bit grey by cutting at 255, which leaves a white picture.
        grey = np.asarray(image).astype(np.int64).clip(0, 2**16 - 1) >> 8
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
    return image.convert("RGB")


def _square(
    image: Image.Image, size: int, orientation: int, box: tuple[float, float, float, float] | None = None
) -> Pixels:
    """What lies within a box resized, and turned upright, which is cheaper after than before."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR, box)
    turn = _UPRIGHT.get(orientation)
    return np.asarray(image if turn is None else image.transpose(turn))


def _orientation(image: Image.Image) -> int:
    """How a picture lies, in EXIF's numbers; 1 is upright."""
    try:
        number = image.getexif().get(0x0112)
    except (OSError, SyntaxError, ValueError, struct.error):  # damaged, but the picture may still be whole
        return 1
    return number if isinstance(number, int) else 1


def _orientation_of(file: bytes) -> int:
    """How a JPEG lies; upright where PIL cannot say."""
    try:
        with Image.open(io.BytesIO(file), formats=_FORMATS) as image:
            return _orientation(image)
    except (OSError, SyntaxError, ValueError, struct.error):
        return 1
