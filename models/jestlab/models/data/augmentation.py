"""Random flips and crops of images, drawn again each time that an image is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

_STREAM = 0xA06  # separates these random numbers from others with the same seed


@dataclass(frozen=True)
class Augmenter:
    """Flips and crops images; the changes depend only on the seed, the number of the batch, and the row.

    Attributes:
        flip: Probability that an image is mirrored horizontally.
        crop: Smallest side of square crops, as a share of the side of the image; 1 for no crops. Side and
            position are drawn uniformly.
        batch_size: B, the number of rows of a batch in all processes.
        rows: int64[k], the rows of a batch that this process loads.
        seed: Seed of all batches.
    """

    flip: float
    crop: float
    batch_size: int
    rows: npt.NDArray[np.int64]
    seed: int

    def __call__(self, number: int, images: npt.NDArray[np.uint8]) -> None:
        """Change the images of batch `number`, uint8[k, s, s, 3], in place."""
        rng = np.random.Generator(np.random.PCG64([self.seed, _STREAM, number]))
        drawn = rng.random((4, self.batch_size))[:, self.rows]
        mirrored = drawn[0] < self.flip
        images[mirrored] = images[mirrored, :, ::-1]
        if self.crop == 1.0:
            return
        size = images.shape[1]
        sides = size * (self.crop + (1.0 - self.crop) * drawn[1])
        left, top = (size - sides) * drawn[2], (size - sides) * drawn[3]
        for i, box in enumerate(zip(left, top, left + sides, top + sides, strict=True)):
            crop = Image.fromarray(images[i]).resize((size, size), Image.Resampling.BILINEAR, box)
            images[i] = np.asarray(crop)
