"""Random flips and crops of images, drawn again each time that an image is read."""

import numpy as np
import numpy.typing as npt
from PIL import Image

from jestlab.models.config import Augmentation

_STREAM = 0xA06  # separates these random numbers from others with the same seed


def augment(
    images: npt.NDArray[np.uint8],
    number: int,
    augmentation: Augmentation,
    *,
    batch_size: int,
    rows: npt.NDArray[np.int64],
    seed: int,
) -> None:
    """Flip and crop images in place, by random numbers that depend only on seed, batch, and row.

    Args:
        images: uint8[k, s, s, 3], some rows of a batch.
        number: The number of the batch.
        augmentation: How to change them. The side and the position of a crop are drawn uniformly.
        batch_size: B, the number of rows of a batch in all processes.
        rows: int64[k], the rows of the batch that the images are.
        seed: Seed of all batches.
    """
    rng = np.random.Generator(np.random.PCG64([seed, _STREAM, number]))
    drawn = rng.random((4, batch_size))[:, rows]
    mirrored = drawn[0] < augmentation.flip
    images[mirrored] = images[mirrored, :, ::-1]
    if (crop := augmentation.crop) == 1.0:
        return
    size = images.shape[1]
    sides = size * (crop + (1.0 - crop) * drawn[1])
    left, top = (size - sides) * drawn[2], (size - sides) * drawn[3]
    for i, box in enumerate(zip(left, top, left + sides, top + sides, strict=True)):
        resized = Image.fromarray(images[i]).resize((size, size), Image.Resampling.BILINEAR, box)
        images[i] = np.asarray(resized)
