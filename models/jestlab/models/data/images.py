"""Decode image files: one by one or in batches from tars or once for all runs."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import itertools
import logging
import shutil
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from jestlab.models.data.files import compute_ahead, map_array, open_derived
from jestlab.models.data.shards import ShardSource

Pixels = npt.NDArray[np.uint8]
Box = tuple[float, float, float, float]

_JPEG = b"\xff\xd8"
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")  # PIL has others that start programs, as EPS does
_TURNED = (b"Exif\0\0", b"tiff:Orientation")  # one of these is in a JPEG with an orientation
_ORIENTATION = 0x0112  # of EXIF
# PIL raises SyntaxError for a bad PNG, and others where damaged fields mislead it.
_DAMAGED = (OSError, SyntaxError, ValueError, OverflowError, struct.error, Image.DecompressionBombError)
_MOST_PIXELS = 2 * (Image.MAX_IMAGE_PIXELS or 2**27)  # where PIL, too, takes a file for a bomb
_LARGE = 2**24  # pixels: such an image is scaled down in tiles, and only one is decoded at a time
_TILE = 2**11  # pixels, about the side of a tile
_ONE_LARGE = threading.Lock()


def decode(file: bytes, size: int) -> Pixels:
    """Decode an image and resize it to a square, aspect ratio not kept, as big_vision's `resize` does.

    JPEGs of more than twice `size` are scaled down in the frequency domain while decoding, to no less than
    twice `size`, then all are resized bilinearly with antialiasing. Against resizing the whole picture that
    changes a photograph's pixels by at most 2 of 255 in the mean and 9 at the 99th percentile (1 and 6 from
    256 pixels to 64); scaling to `size` itself would be a third faster and change them by 4 and 26. Other
    images above 16 megapixels are averaged in blocks, also to no less than twice `size`. Training and
    evaluation both decode here, so they see the same pixels.

    JPEGs that libjpeg warns about are decoded by Pillow, which reads them unless they are cut short. Images
    are turned as EXIF says; 16-bit grey values keep their upper byte; transparent pixels become white, as in
    img2dataset; CMYK is converted by Pillow.

    Decoding takes up to four bytes per pixel of the file (eight for a progressive JPEG, eighteen for WebP, by
    their decoders). Of images above 16 megapixels only one is decoded at a time.

    Args:
        file: An image file's bytes (JPEG, PNG, WebP, GIF or BMP; of an animation the first frame).
        size: Side of the result in pixels.

    Returns:
        uint8[size, size, 3], RGB.

    Raises:
        ValueError: The bytes are not a complete, readable image.
    """
    pixels = _jpeg(file, size) if file.startswith(_JPEG) else None
    return _other(file, size) if pixels is None else pixels


def _jpeg(file: bytes, size: int) -> Pixels | None:
    """Decode a JPEG with libjpeg-turbo; None for those that only PIL can decode."""
    import simplejpeg

    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(file)
        if colours not in ("YCbCr", "RGB", "Gray") or height * width > _MOST_PIXELS:
            return None
        with _large_one_by_one(width, height):
            scaled = simplejpeg.decode_jpeg(file, min_height=2 * size, min_width=2 * size)
    except ValueError:  # damaged, maybe only a little, or colours sampled in a way that this binding lacks
        return None
    orientation = 1
    if any(mark in file for mark in _TURNED):
        # A JPEG that PIL cannot open is taken for upright.
        with contextlib.suppress(*_DAMAGED), Image.open(io.BytesIO(file), formats=_FORMATS) as image:
            orientation = _orientation(image)
    # Scaled by M/8, M = 1 … 8, and rounded up: half of the last row or column may be outside the picture.
    eighths = 8 * max(scaled.shape[:2]) // max(height, width)
    box = (0.0, 0.0, width * eighths / 8, height * eighths / 8)
    return _square(Image.fromarray(scaled), size, orientation, box)


def _other(file: bytes, size: int) -> Pixels:
    """Decode any image that PIL can read."""
    try:
        with Image.open(io.BytesIO(file), formats=_FORMATS) as image, _large_one_by_one(*image.size):
            # Scales a JPEG while decoding, and returns the part of it that is the picture.
            drafted = image.draft(image.mode, (2 * size, 2 * size))
            small, box = _reduced(image, size, drafted[1] if drafted else (0.0, 0.0, *image.size))
            return _square(small, size, _orientation(image), box)
    except UnidentifiedImageError:  # whose message names an object in memory
        raise ValueError(f"not a readable image: none of {', '.join(_FORMATS)}") from None
    except _DAMAGED as error:
        raise ValueError(f"not a readable image: {error}") from error


def _large_one_by_one(width: int, height: int) -> contextlib.AbstractContextManager[object]:
    """Return what to hold while an image is decoded, so that threads don't hold several large ones."""
    return _ONE_LARGE if width * height > _LARGE else contextlib.nullcontext()


def _reduced(image: Image.Image, size: int, box: Box) -> tuple[Image.Image, Box]:
    """Convert an image to RGB; scale a large one to no less than twice `size`, without copying it whole.

    Returns:
        The image, and the box in it that `box` was.
    """
    width, height = image.size
    if width * height <= _LARGE:
        return _rgb(image), box
    across, down = (max(1, side // (2 * size)) for side in image.size)
    small = Image.new("RGB", (-(-width // across), -(-height // down)))
    # A tile is made of whole blocks, so that all blocks but the last of a row or column have one size.
    wide, high = (block * max(1, _TILE // block) for block in (across, down))
    for left, top in itertools.product(range(0, width, wide), range(0, height, high)):
        tile = image.crop((left, top, min(left + wide, width), min(top + high, height)))
        small.paste(_rgb(tile).reduce((across, down)), (left // across, top // down))
    return small, (box[0] / across, box[1] / down, box[2] / across, box[3] / down)


def _rgb(image: Image.Image) -> Image.Image:
    """Convert an image to three channels of eight bits."""
    if image.mode.startswith("I"):
        # NOTE: footgun: PIL converts 16-bit grey by cutting at 255, which leaves a white picture.
        grey = np.asarray(image).clip(0, 2**16 - 1) >> 8
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
    return image.convert("RGB")


def _square(image: Image.Image, size: int, orientation: int, box: Box) -> Pixels:
    """Resize the part of an image within a box, then turn it upright, which is cheaper in this order."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR, box)
    if orientation != 1:
        image.getexif()[_ORIENTATION] = orientation
        ImageOps.exif_transpose(image, in_place=True)
    return np.asarray(image)


def _orientation(image: Image.Image) -> int:
    """Return an image's orientation as an EXIF number; 1 is upright."""
    try:
        number = image.getexif().get(_ORIENTATION)
    except _DAMAGED:  # but the picture may still be whole
        return 1
    return number if isinstance(number, int) else 1


Ints = npt.NDArray[np.int64]

_AHEAD = 2  # batches that are decoded while one is being used


class LazyImages:
    """Images in tars, of which only the locations are held in memory; see `batches`.

    Attributes:
        size: Side in pixels of the decoded images.
    """

    def __init__(
        self, tars: tuple[Path, ...], shard: Ints, keys: npt.NDArray[np.bytes_], spans: Ints, size: int
    ) -> None:
        """Create images from their locations.

        Args:
            tars: The tars.
            shard: int64[n], the tar that holds each image.
            keys: bytes[n], names of the examples, for messages.
            spans: int64[n, 2], offset and size of each image file in its tar.
            size: See above.
        """
        self.size = size
        self._tars, self._shard, self._keys, self._spans = tars, shard, keys, spans
        self._kept: Pixels | None = None

    def __len__(self) -> int:
        return len(self._shard)

    @property
    def decoded_bytes(self) -> int:
        """The size of all images when decoded."""
        return len(self) * self.size * self.size * 3

    def describe(self, image: int) -> str:
        """Return the shard and example of an image, for messages."""
        return f"{self._tars[self._shard[image]]}, example {self._keys[image].decode(errors='replace')!r}"

    def take(self, indices: npt.NDArray[np.integer[Any]]) -> LazyImages:
        """Return some of the images, in the order of `indices`, int[k]."""
        return LazyImages(
            self._tars, self._shard[indices], self._keys[indices], self._spans[indices], self.size
        )

    def keep(self, threads: int = 2) -> None:
        """Have the images decoded once for all runs: their pixels are kept beside the tars.

        They are decoded now unless they were before; raises as `batches` does. Where they cannot be kept,
        they are decoded each time.
        """
        if not len(self):
            return
        content = hashlib.sha256(self._shard.tobytes() + self._spans.tobytes()).hexdigest()
        stats = [(tar.name, tar.stat().st_size, tar.stat().st_mtime_ns) for tar in self._tars]
        signature = f"{content[:16]}-{hashlib.sha256(repr(stats).encode()).hexdigest()[:16]}"

        def build(partial: Path) -> None:
            with (partial / _PIXELS).open("wb") as file:
                for pixels in self.batches(_DECODED_AT_ONCE, threads):
                    file.write(pixels.tobytes())

        shape = (len(self), self.size, self.size, 3)
        self._kept = _kept_decoded(
            self._tars[0].parent,
            self.size,
            signature,
            build,
            lambda folder: map_array(folder / _PIXELS, np.uint8, shape),
        )

    def batches(self, batch_size: int, threads: int = 2) -> Iterator[Pixels]:
        """Yield all images in order, uint8[k, size, size, 3]; threads decode at most two batches ahead.

        Raises:
            ValueError: A damaged image, or a tar that has become shorter than it was when indexed.
        """
        parts = [range(len(self))[start : start + batch_size] for start in range(0, len(self), batch_size)]
        if self._kept is not None:
            yield from (self._kept[part.start : part.stop] for part in parts)
            return
        with contextlib.closing(compute_ahead(self._decode, parts, threads, _AHEAD)) as batches:
            yield from batches

    def _decode(self, part: range) -> Pixels:
        """Decode some of the images."""
        pixels = np.empty((len(part), self.size, self.size, 3), np.uint8)
        for row, i in enumerate(part):
            offset, length = self._spans[i].tolist()
            with self._tars[self._shard[i]].open("rb", buffering=0) as file:
                file.seek(offset)
                content = file.read(length)
            if len(content) != length:
                raise ValueError(f"{self.describe(i)}: cut short, {len(content)} of {length} bytes")
            try:
                pixels[row] = decode(content, self.size)
            except ValueError as error:
                raise ValueError(f"{self.describe(i)}: {error}") from error
        return pixels


def keep_within(budget: int, sets: Iterable[LazyImages], threads: int = 2) -> None:
    """Keep the pixels of the smallest sets of images, as many sets as fit into a budget of bytes."""
    for images in sorted(sets, key=lambda images: images.decoded_bytes):
        budget -= images.decoded_bytes
        if budget < 0:
            return
        images.keep(threads)


_DECODED_FORMAT = 2  # raise it when `decode` gives other pixels
_PIXELS, _WHOLE = "pixels.uint8", "whole.bool"
_DECODED_AT_ONCE = 64  # images that are held while they are decoded
_LOG = logging.getLogger(__name__)


class DecodedImages:
    """The n images of a folder of shards at one size, in files that all processes map.

    Attributes:
        pixels: uint8[n, size, size, 3], as `decode` gives them; zeros where it gives an error.
        whole: bool[n], whether an image could be decoded.
    """

    def __init__(self, folder: Path, examples: int, size: int) -> None:
        """Map the files in a folder; raises OSError or ValueError if they are damaged."""
        self.pixels: Pixels = map_array(folder / _PIXELS, np.uint8, (examples, size, size, 3))
        self.whole: npt.NDArray[np.bool_] = map_array(folder / _WHOLE, np.bool_, (examples,))


def ensure_decoded(source: ShardSource, size: int, budget: int) -> DecodedImages | None:
    """Return the decoded images of a folder of shards; decode them on first use.

    They are kept beside the shards' index, under a name that depends on the shards, the size, and the
    versions of the decoders; those of earlier shards are removed.

    Args:
        source: The shards.
        size: Side in pixels.
        budget: Largest size of all pixels together, in bytes.

    Returns:
        None if they would be larger or cannot be kept: then they have to be decoded each time.
    """
    if len(source) * size * size * 3 > budget:
        return None
    return _kept_decoded(
        source.index.folder,
        size,
        source.index.signature[:16],
        lambda partial: _decode_all(source, size, partial),
        lambda kept: DecodedImages(kept, len(source), size),
    )


Opened = TypeVar("Opened")


def _kept_decoded(
    folder: Path,
    size: int,
    signature: str,
    build: Callable[[Path], None],
    open_: Callable[[Path], Opened],
) -> Opened | None:
    """Open decoded images that are kept beside a folder's tars, as `open_derived` does.

    Args:
        folder: The folder of tars.
        size: Side in pixels.
        signature: Of the images, with sixteen digits at its end that change when the tars do: what was made
            of earlier tars is removed.
        build: Decodes the images into a folder.
        open_: Opens that folder.

    Returns:
        None if they cannot be kept.
    """
    decoders = "-".join(importlib.metadata.version(name) for name in ("pillow", "simplejpeg"))
    name = f"decoded-{_DECODED_FORMAT}-{size}-{decoders}-{signature}"

    def build_anew(partial: Path) -> None:
        for stale in partial.parent.glob("decoded-*"):
            if not stale.name.endswith(signature[-16:]):
                shutil.rmtree(stale, ignore_errors=True)
        build(partial)

    try:
        return open_derived(folder, name, build_anew, open_)
    except OSError as error:
        reason = error.strerror or error
        _LOG.warning("%s: decoded images cannot be kept (%s): decoding them each time", name, reason)
        return None


def _decode_all(source: ShardSource, size: int, folder: Path) -> None:
    """Decode all images into a folder."""
    _LOG.info("%s: decoding %s images to %d px, once", source.index.folder, f"{len(source):,}", size)
    with (folder / _PIXELS).open("wb") as pixels_file, (folder / _WHOLE).open("wb") as whole_file:
        for start in range(0, len(source), _DECODED_AT_ONCE):
            examples = np.arange(start, min(start + _DECODED_AT_ONCE, len(source)))
            pixels = np.zeros((len(examples), size, size, 3), np.uint8)
            whole = np.ones(len(examples), np.bool_)
            # The reader of a damaged image decodes it again, and gets the reason.
            whole[[*read_images(source, None, examples, pixels, np.arange(len(examples)))]] = False
            pixels_file.write(pixels.tobytes())
            whole_file.write(whole.tobytes())


def read_images(
    source: ShardSource, decoded: DecodedImages | None, examples: Ints, images: Pixels, rows: Ints
) -> dict[int, str]:
    """Fill rows of a batch with decoded images.

    Args:
        source: The shards.
        decoded: Images that are decoded already, if there are any.
        examples: int64[k], global numbers.
        images: uint8[b, size, size, 3], the batch; written to.
        rows: int64[k], the row of each example in it.

    Returns:
        The rows whose image is damaged, with the reason; they are left as they are.
    """
    if decoded is not None:
        known = decoded.whole[examples]
        images[rows[known]] = decoded.pixels[examples[known]]
        examples, rows = examples[~known], rows[~known]
    damaged = {}
    for row, file in zip(rows.tolist(), source.images(examples), strict=True):
        try:
            images[row] = decode(file, images.shape[1])
        except ValueError as error:
            damaged[row] = str(error)
    return damaged
