"""Change pictures a little each time they are read: flips and crops, so that few examples last longer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]

_STREAM = 0xA06  # apart from other draws under the same seed


@dataclass(frozen=True)
class Augmenter:
    """Flips and crops the images of a batch; what happens to a row depends on seed, batch and row alone.

    Attributes:
        flip: Chance of an image to be mirrored, left and right exchanged.
        crop: Smallest side of the square that is cut out and enlarged to the whole, as a share of the
            image's; side and place are drawn uniformly. 1: nothing is cut off.
        batch_size: B, of the batch that all processes load together.
        rows: int64[k], which of its rows are loaded here.
        seed: Of all draws.
    """

    flip: float
    crop: float
    batch_size: int
    rows: npt.NDArray[np.int64]
    seed: int

    def __call__(self, number: int, images: Pixels) -> None:
        """Change images in place.

        Args:
            number: Of the batch, from 0.
            images: uint8[k, s, s, 3], its rows that are loaded here.
        """
        rng = np.random.Generator(np.random.PCG64([self.seed, _STREAM, number]))
        drawn = rng.random((4, self.batch_size))[:, self.rows]
        mirrored = drawn[0] < self.flip
        images[mirrored] = images[mirrored, :, ::-1]
        if self.crop == 1.0:
            return
        whole = images.shape[1]
        sides = whole * (self.crop + (1.0 - self.crop) * drawn[1])
        left, top = (whole - sides) * drawn[2], (whole - sides) * drawn[3]
        for i, box in enumerate(zip(left, top, left + sides, top + sides, strict=True)):
            cut = Image.fromarray(images[i]).resize((whole, whole), Image.Resampling.BILINEAR, box)
            images[i] = np.asarray(cut)
