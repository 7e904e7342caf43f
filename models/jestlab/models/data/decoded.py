"""Images of small training sets, decoded once for all runs: nine tenths of the cost of small batches."""

from __future__ import annotations

import importlib.metadata
import logging
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jestlab.models.data.files import build_derived
from jestlab.models.data.images import Pixels, decode
from jestlab.models.data.shards import ShardSource

Ints = npt.NDArray[np.int64]

_FORMAT = 1
_PIXELS, _WHOLE = "pixels.uint8", "whole.bool"
_BLOCK = 1_024  # images that are held while they are decoded
_LOG = logging.getLogger(__name__)


class DecodedImages:
    """The n images of a folder of shards at one size, in files that all processes map.

    Attributes:
        pixels: uint8[n, size, size, 3], as `decode` gives them; zeros where it gives an error.
        whole: bool[n], whether an image could be decoded.
    """

    def __init__(self, folder: Path, examples: int, size: int) -> None:
        """Map the files.

        Args:
            folder: Where they lie.
            examples: n.
            size: Side in pixels.

        Raises:
            OSError: They cannot be read.
            ValueError: They are not of that size.
        """
        self.pixels: Pixels = _map(folder / _PIXELS, np.dtype(np.uint8), (examples, size, size, 3))
        self.whole: npt.NDArray[np.bool_] = _map(folder / _WHOLE, np.dtype(np.bool_), (examples,))

    def fill(self, examples: Ints, images: Pixels, rows: Ints) -> Ints:
        """Fill rows of a batch with the images that could be decoded.

        Args:
            examples: int64[k], global numbers.
            images: uint8[b, size, size, 3], the batch; written to.
            rows: int64[k], the row of each example in it.

        Returns:
            The rows that are left.
        """
        known = self.whole[examples]
        images[rows[known]] = self.pixels[examples[known]]
        return rows[~known]


def ensure_decoded(source: ShardSource, size: int, budget: int) -> DecodedImages | None:
    """The decoded images of a folder of shards, decoded on first use.

    They are kept beside the shards' index, by what decides them: shards, size, and the versions of what
    decodes; those of earlier shards are removed.

    Args:
        source: The shards.
        size: Side in pixels.
        budget: Largest size of all pixels together, in bytes.

    Returns:
        None where they would be larger, or cannot be kept: then they are to be decoded each time.
    """
    if len(source) * size * size * 3 > budget:
        return None
    decoders = "-".join(importlib.metadata.version(name) for name in ("pillow", "simplejpeg"))
    signature = source.index.signature[:16]
    name = f"decoded-{_FORMAT}-{size}-{decoders}-{signature}"

    def build(partial: Path) -> None:
        for stale in partial.parent.glob("decoded-*"):
            if not stale.name.endswith(signature):
                shutil.rmtree(stale, ignore_errors=True)
        _decode_all(source, size, partial)

    try:
        kept = build_derived(source.index.folder, name, build)
        try:
            return DecodedImages(kept, len(source), size)
        except (OSError, ValueError) as error:
            _LOG.warning("%s: damaged (%s), built again", kept, error)
        shutil.rmtree(kept, ignore_errors=True)  # another process may have done so
        kept = build_derived(source.index.folder, name, build)
        return DecodedImages(kept, len(source), size)
    except OSError as error:
        _LOG.warning("%s: decoded images cannot be kept (%s): decoding them each time", name, error)
        return None


def _decode_all(source: ShardSource, size: int, folder: Path) -> None:
    """Decode all images into a folder."""
    _LOG.info("%s: decoding %s images to %d px, once", source.index.folder, f"{len(source):,}", size)
    with (folder / _PIXELS).open("wb") as pixels_file, (folder / _WHOLE).open("wb") as whole_file:
        for start in range(0, len(source), _BLOCK):
            examples = np.arange(start, min(start + _BLOCK, len(source)))
            pixels = np.zeros((len(examples), size, size, 3), np.uint8)
            whole = np.ones(len(examples), np.bool_)
            for row, file in enumerate(source.images(examples)):
                try:
                    pixels[row] = decode(file, size)
                except ValueError:  # whoever reads it decodes it again, and sees why
                    whole[row] = False
            pixels_file.write(pixels.tobytes())
            whole_file.write(whole.tobytes())


def _map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """An array that lies in a file."""
    if path.stat().st_size != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{path.name} has another size")
    return np.asarray(np.memmap(path, dtype, "r", shape=shape))
