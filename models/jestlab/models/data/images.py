"""Decode image files, or report why one is damaged; resize to squares, a whole folder once for all runs."""

import contextlib
import hashlib
import importlib.metadata
import io
import itertools
import logging
import shutil
import struct
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from jestlab.models.data.files import compute_ahead, map_array, open_derived
from jestlab.models.data.shards import Ints, ShardIndex, read_spans

Pixels = npt.NDArray[np.uint8]
Box = tuple[float, float, float, float]

_JPEG = b"\xff\xd8"
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")  # others of PIL start programs, for example EPS
_TURNED = (b"Exif\0\0", b"tiff:Orientation")  # a JPEG with an orientation contains one of these
_ORIENTATION = 0x0112  # tag of EXIF
# PIL raises SyntaxError for a bad PNG, and others for damaged fields.
_DAMAGED = (OSError, SyntaxError, ValueError, OverflowError, struct.error, Image.DecompressionBombError)
_MOST_PIXELS = 2 * (Image.MAX_IMAGE_PIXELS or 2**27)  # PIL's limit for decompression bombs
_LARGE = 2**24  # pixels: such images are scaled down in tiles, and decoded one at a time
_TILE = 2**11  # pixels, approximate side of a tile
_ONE_LARGE = threading.Lock()
_LOG = logging.getLogger(__name__)


def decode(file: bytes, size: int) -> Pixels:
    """Decode an image and resize it to a square without keeping the aspect ratio, like big_vision's `resize`.

    JPEGs of more than twice `size` are scaled down in the frequency domain, to no less than twice `size`;
    other images above 16 megapixels are averaged in blocks. Then images are resized bilinearly with
    antialiasing. Compared with resizing the whole image, this changes the pixels of a photograph by at most 2
    of 255 in the mean and 9 at the 99th percentile.

    JPEGs with warnings of libjpeg are decoded by Pillow, unless they are cut short. Images are turned
    according to EXIF. 16-bit gray values keep their upper byte. Transparent pixels become white, as in
    img2dataset. Pillow converts CMYK.

    Decoding takes up to 4 bytes per pixel of the file (8 for a progressive JPEG, 18 for WebP).

    Args:
        file: Content of an image file: JPEG, PNG, WebP, GIF, or BMP. Of an animation, the first frame counts.
        size: Side of the result in pixels.

    Returns:
        uint8[size, size, 3], RGB.

    Raises:
        ValueError: The file isn't a complete, readable image.
    """
    pixels = _decode_jpeg(file, size) if file.startswith(_JPEG) else None
    return _decode_with_pillow(file, size) if pixels is None else pixels


def _decode_jpeg(file: bytes, size: int) -> Pixels | None:
    """Decode a JPEG with libjpeg-turbo; None for those that only Pillow can decode."""
    import simplejpeg

    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(file)
        if colors not in ("YCbCr", "RGB", "Gray") or height * width > _MOST_PIXELS:
            return None
        with _one_large_at_a_time(width, height):
            scaled = simplejpeg.decode_jpeg(file, min_height=2 * size, min_width=2 * size)
    except ValueError:  # damaged, maybe only slightly, or unsupported chroma subsampling
        return None
    orientation = 1
    if any(mark in file for mark in _TURNED):
        # A JPEG that Pillow can't open counts as upright.
        with contextlib.suppress(*_DAMAGED), Image.open(io.BytesIO(file), formats=_FORMATS) as image:
            orientation = _orientation(image)
    # Scaled by M/8, M = 1 … 8, and rounded up: half of the last row or column may be outside of the image.
    eighths = 8 * max(scaled.shape[:2]) // max(height, width)
    box = (0.0, 0.0, width * eighths / 8, height * eighths / 8)
    return _square(Image.fromarray(scaled), size, orientation, box)


def _decode_with_pillow(file: bytes, size: int) -> Pixels:
    """Decode an image of any format."""
    try:
        with Image.open(io.BytesIO(file), formats=_FORMATS) as image, _one_large_at_a_time(*image.size):
            # Scales a JPEG while decoding, and returns the part of the result that is the image.
            drafted = image.draft(image.mode, (2 * size, 2 * size))
            small, box = _reduce(image, size, drafted[1] if drafted else (0.0, 0.0, *image.size))
            return _square(small, size, _orientation(image), box)
    except UnidentifiedImageError:  # the message contains a memory address
        raise ValueError(f"not a readable image: none of {', '.join(_FORMATS)}") from None
    except _DAMAGED as error:
        raise ValueError(f"not a readable image: {error}") from error


def _one_large_at_a_time(width: int, height: int) -> contextlib.AbstractContextManager[object]:
    """Return a lock that keeps threads from decoding several large images at once."""
    return _ONE_LARGE if width * height > _LARGE else contextlib.nullcontext()


def _reduce(image: Image.Image, size: int, box: Box) -> tuple[Image.Image, Box]:
    """Convert an image to RGB; scale down a large one, and `box` with it, without copying it as a whole."""
    width, height = image.size
    if width * height <= _LARGE:
        return _rgb(image), box
    across, down = (max(1, side // (2 * size)) for side in image.size)
    small = Image.new("RGB", (-(-width // across), -(-height // down)))
    # A tile consists of whole blocks, so that all blocks except the last of a row or column have one size.
    wide, high = (block * max(1, _TILE // block) for block in (across, down))
    for left, top in itertools.product(range(0, width, wide), range(0, height, high)):
        tile = image.crop((left, top, min(left + wide, width), min(top + high, height)))
        small.paste(_rgb(tile).reduce((across, down)), (left // across, top // down))
    return small, (box[0] / across, box[1] / down, box[2] / across, box[3] / down)


def _rgb(image: Image.Image) -> Image.Image:
    """Convert an image to three channels of eight bits."""
    if image.mode.startswith("I"):
        # NOTE: Pillow would cut 16-bit gray values at 255, which gives a white image.
        gray = np.asarray(image).clip(0, 2**16 - 1) >> 8
        return Image.fromarray(gray.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        visible = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", visible.size, "white"), visible).convert("RGB")
    return image.convert("RGB")


def _square(image: Image.Image, size: int, orientation: int, box: Box) -> Pixels:
    """Resize a box of an image, then turn it upright, which is cheaper in this order."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR, box)
    if orientation != 1:
        image.getexif()[_ORIENTATION] = orientation
        ImageOps.exif_transpose(image, in_place=True)
    return np.asarray(image)


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an image; 1 is upright."""
    try:
        number = image.getexif().get(_ORIENTATION)
    except _DAMAGED:  # the image itself may be undamaged
        return 1
    return number if isinstance(number, int) else 1


_AHEAD = 2  # batches that are decoded while one is used


def _parts(count: int, size: int) -> list[Ints]:
    """Divide the numbers 0 … `count` − 1 into parts of `size` numbers."""
    return [np.arange(start, min(start + size, count)) for start in range(0, count, size)]


class LazyImages:
    """Images in tars of one folder. Only their locations are in memory.

    Args:
        tars: The tars.
        shard: int64[n], the tar of each image.
        keys: bytes[n], names of the examples, for messages.
        spans: int64[n, 2], offset and size of each image file in its tar.
        size: Side in pixels of the decoded images.
    """

    def __init__(
        self, tars: tuple[Path, ...], shard: Ints, keys: npt.NDArray[np.bytes_], spans: Ints, size: int
    ) -> None:
        self.size, self.folder = size, tars[0].parent
        self._tars, self._shard, self._keys, self._spans = tars, shard, keys, spans
        self._decoded: DecodedImages | None = None

    def __len__(self) -> int:
        return len(self._shard)

    @property
    def signature(self) -> str:
        """32 digits: 16 that change with the tars, and 16 for the choice of images."""
        stats = [(tar.name, stat.st_size, stat.st_mtime_ns) for tar in self._tars for stat in [tar.stat()]]
        parts = repr(stats).encode(), self._shard.tobytes() + self._spans.tobytes()
        return "".join(hashlib.sha256(part).hexdigest()[:16] for part in parts)

    def describe(self, image: int) -> str:
        """Return the shard and example of an image, for messages."""
        return f"{self._tars[self._shard[image]]}, example {self._keys[image].decode(errors='replace')!r}"

    def take(self, indices: npt.NDArray[np.integer[Any]]) -> "LazyImages":
        """Return some of the images, in the order of `indices`, int[k]."""
        return LazyImages(
            self._tars, self._shard[indices], self._keys[indices], self._spans[indices], self.size
        )

    def images(self, indices: Ints) -> list[bytes]:
        """Read image files; see `shards.read_spans`. `indices` is int64[k]."""
        shard, spans = self._shard[indices], self._spans[indices]
        return read_spans(self._tars.__getitem__, shard, spans, lambda row: self.describe(int(indices[row])))

    def store(self, threads: int = 2) -> None:
        """Decode the images once for all runs: see `ensure_decoded`. Raises as `batches`."""
        self._decoded = ensure_decoded(self, self.size, threads=threads) if len(self) else None
        if self._decoded is not None:
            self._decode(np.flatnonzero(~self._decoded.whole))

    def batches(self, batch_size: int, threads: int = 2) -> Iterator[Pixels]:
        """Yield all images in order, uint8[k, size, size, 3]; threads decode at most two batches ahead.

        Raises:
            ValueError: An image is damaged.
        """
        parts = _parts(len(self), batch_size)
        with contextlib.closing(compute_ahead(self._decode, parts, threads, _AHEAD)) as batches:
            yield from batches

    def _decode(self, part: Ints) -> Pixels:
        """Decode some of the images."""
        pixels = np.empty((len(part), self.size, self.size, 3), np.uint8)
        for row, error in read_images(self, self._decoded, part, pixels, np.arange(len(part))).items():
            raise ValueError(f"{self.describe(part[row])}: {error}")
        return pixels


def store_within(budget: int, sets: Iterable[LazyImages], threads: int = 2) -> None:
    """Decode the smallest sets of images once for all runs, as many as fit into a budget in bytes."""
    for images in sorted(sets, key=lambda images: len(images) * images.size**2):
        budget -= len(images) * images.size**2 * 3
        if budget < 0:
            return
        images.store(threads)


_FORMAT = 3  # increase it if `decode` gives other pixels
_PIXELS, _WHOLE = "pixels.uint8", "whole.bool"
_DECODED_AT_ONCE = 64  # images


class DecodedImages(NamedTuple):
    """The n decoded images of a source, in files that all processes map.

    Attributes:
        pixels: uint8[n, size, size, 3]; zeros for damaged images.
        whole: bool[n], whether an image could be decoded.
    """

    pixels: Pixels
    whole: npt.NDArray[np.bool_]


def ensure_decoded(
    source: ShardIndex | LazyImages, size: int, budget: float = float("inf"), threads: int = 2
) -> DecodedImages | None:
    """Return the decoded images of a source; decode them on first use.

    They are stored next to the tars. Their name contains the versions of the decoders. Decoded images of
    earlier tars in the same folder are removed.

    Args:
        source: The images.
        size: Side in pixels.
        budget: Largest size of all decoded images, in bytes.
        threads: Number of threads that decode.

    Returns:
        None if they would be larger than the budget or can't be stored.
    """
    shape = (len(source), size, size, 3)
    if np.prod(shape) > budget:
        return None
    decoders = "-".join(importlib.metadata.version(name) for name in ("pillow", "simplejpeg"))
    signature = source.signature
    tars, images = f"decoded-{signature[:16]}", signature[16:32]

    def decode_part(examples: Ints) -> DecodedImages:
        pixels = np.zeros((len(examples), *shape[1:]), np.uint8)
        whole = np.ones(len(examples), np.bool_)
        whole[[*read_images(source, None, examples, pixels, np.arange(len(examples)))]] = False
        return DecodedImages(pixels, whole)

    def build(partial: Path) -> None:
        for stale in partial.parent.glob("decoded-*"):
            if not stale.name.startswith(tars):
                shutil.rmtree(stale, ignore_errors=True)
        _LOG.info("%s: decoding %s images to %d px, once", source.folder, f"{len(source):,}", size)
        parts = _parts(len(source), _DECODED_AT_ONCE)
        with (partial / _PIXELS).open("wb") as pixels_file, (partial / _WHOLE).open("wb") as whole_file:
            for part in compute_ahead(decode_part, parts, threads, threads):
                part.pixels.tofile(pixels_file)
                part.whole.tofile(whole_file)

    def map_files(folder: Path) -> DecodedImages:
        whole = map_array(folder / _WHOLE, np.bool_, shape[:1])
        return DecodedImages(map_array(folder / _PIXELS, np.uint8, shape), whole)

    name = f"{tars}-{images}-{size}-{_FORMAT}-{decoders}"
    try:
        return open_derived(source.folder, name, build, map_files)
    except OSError as error:
        reason = error.strerror or error
        _LOG.warning("%s: decoded images can't be stored (%s): decoding them each time", name, reason)
        return None


def read_images(
    source: ShardIndex | LazyImages,
    decoded: DecodedImages | None,
    examples: Ints,
    images: Pixels,
    rows: Ints,
) -> dict[int, str]:
    """Fill rows of a batch with decoded images.

    Args:
        source: The images.
        decoded: The images that are decoded already, if any.
        examples: int64[k], numbers of images in the source.
        images: uint8[b, size, size, 3], the batch, which is changed.
        rows: int64[k], the row of each example in the batch.

    Returns:
        The rows of damaged images, with the reason. These rows aren't changed.
    """
    if decoded is not None:
        whole = decoded.whole[examples]
        images[rows[whole]] = decoded.pixels[examples[whole]]
        examples, rows = examples[~whole], rows[~whole]
    damaged = {}
    for row, file in zip(rows.tolist(), source.images(examples), strict=True):
        try:
            images[row] = decode(file, images.shape[1])
        except ValueError as error:
            damaged[row] = str(error)
    return damaged
