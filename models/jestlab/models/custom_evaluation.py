"""The model that a custom evaluation gets: images and texts in, embeddings out.

A custom evaluation is a function `evaluation(model, **options)` that returns numbers by name. All processes
of a run call it at every evaluation, and must get the same numbers.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class EvaluatedModel:
    """A model at one step of training.

    Attributes:
        image_size: Side of the images that the model reads, in pixels.
        batch_size: Images per forward pass.
        image_tower: Batches uint8 [k, h, h, 3] → embeddings float32 [n, E] and features float32 [n, D].
        text_tower: n texts → embeddings float32 [n, E].
    """

    image_size: int
    batch_size: int
    image_tower: Callable[[Iterable[np.ndarray]], Sequence[np.ndarray]]
    text_tower: Callable[[list[str]], np.ndarray]

    def images(self, images: Iterable[Any]) -> np.ndarray:
        """Embed images.

        Args:
            images: PIL images or uint8 [h, w, 3] of any size, which are resized to squares without cropping;
                or one array uint8 [n, h, w, 3].

        Returns:
            float32 [n, E], unit length.
        """
        return self.image_tower(self._batches(images))[0]

    def features(self, images: Iterable[Any]) -> np.ndarray:
        """Compute the pooled features before the head, as linear probes use them: float32 [n, D]."""
        return self.image_tower(self._batches(images))[1]

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts: float32 [n, E], unit length."""
        return self.text_tower(list(texts))

    def _batches(self, images: Iterable[Any]) -> Iterator[np.ndarray]:
        pixels = map(self._resized, images)
        while batch := list(itertools.islice(pixels, self.batch_size)):
            yield np.stack(batch)

    def _resized(self, image: Any) -> np.ndarray:
        if isinstance(image, np.ndarray):
            image = Image.fromarray(image)
        size = (self.image_size, self.image_size)
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.BICUBIC))


def scores_of(evaluation: Callable[..., Any], model: EvaluatedModel, name: str) -> dict[str, float]:
    """Evaluate a model by a custom function, whose options are bound.

    Returns:
        `name/key` → number.

    Raises:
        ValueError: The function returned anything else than finite numbers by name.
    """
    scores = evaluation(model)
    if not isinstance(scores, Mapping) or not scores:
        raise ValueError(f"evaluation.extra.{name} must return numbers by name, not {scores!r}")
    for key, value in scores.items():
        if not isinstance(key, str) or "/" in key or not math.isfinite(float(value)):
            raise ValueError(f"evaluation.extra.{name}: {key!r} is {value!r}: expected a finite number")
    return {f"{name}/{key}": float(value) for key, value in scores.items()}
