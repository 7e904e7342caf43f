"""A model as an evaluation of one's own sees it: images and texts in, embeddings out.

An evaluation is a function `evaluation(model, **options)` that returns numbers by name. Called at every
evaluation of a run, by all processes of a run on several hosts alike, so it must depend on nothing else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

Towers = tuple[Callable[[Iterable[np.ndarray]], Sequence[np.ndarray]], Callable[[np.ndarray], np.ndarray]]
"""Batches of pixels → embeddings and features; tokens → embeddings."""


Tokenizer = Callable[[Sequence[str], int], np.ndarray]
"""n texts and L → int32 [n, L]."""


class EvaluatedModel:
    """A model at one step of its training.

    Attributes:
        image_size: Side of the images that it sees, in pixels.
    """

    def __init__(
        self, towers: Towers, tokenizer: Tokenizer, image_size: int, length: int, batch: int
    ) -> None:
        """Wrap the compiled towers.

        Args:
            towers: Of the model, at its parameters.
            tokenizer: The run's.
            image_size: Side of the images, pixels.
            length: L, tokens a text.
            batch: Images a forward pass.
        """
        self.image_size = image_size
        self._towers, self._tokenizer, self._length, self._batch = towers, tokenizer, length, batch

    def images(self, images: Iterable[Any]) -> np.ndarray:
        """Embed images.

        Args:
            images: PIL images, or uint8 [h, w, 3] of any size, which are resized whole to the model's square;
                or one array uint8 [n, h, w, 3].

        Returns:
            float32 [n, E], unit length.
        """
        return self._towers[0](self._batches(images))[0]

    def features(self, images: Iterable[Any]) -> np.ndarray:
        """Compute the pooled features before the head, as linear probes use them: float32 [n, D]."""
        return self._towers[0](self._batches(images))[1]

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts: float32 [n, E], unit length."""
        return self._towers[1](self._tokenizer(list(texts), self._length))

    def _batches(self, images: Iterable[Any]) -> Iterator[np.ndarray]:
        square = map(self._square, images)
        while batch := list(itertools.islice(square, self._batch)):
            yield np.stack(batch)

    def _square(self, image: Any) -> np.ndarray:
        pixels = Image.fromarray(image) if isinstance(image, np.ndarray) else image
        if not isinstance(pixels, Image.Image):
            raise ValueError(f"an image must be a PIL image or uint8 [h, w, 3], not a {type(image).__name__}")
        if pixels.size != (self.image_size, self.image_size):
            side = (self.image_size, self.image_size)
            pixels = pixels.convert("RGB").resize(side, Image.Resampling.BICUBIC)
        return np.asarray(pixels.convert("RGB"))


Evaluation = Callable[..., Mapping[str, float]]


def scores_of(evaluation: Evaluation, model: EvaluatedModel, name: str) -> dict[str, float]:
    """Evaluate a model by a function of one's own.

    Args:
        evaluation: The function, its options bound.
        model: The model.
        name: First part of the names of its scores.

    Returns:
        `name/key` → number.

    Raises:
        ValueError: It returned something else than finite numbers by name.
    """
    found = evaluation(model)
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"evaluation.extra.{name} must return numbers by name, not {found!r}")
    for key, value in found.items():
        if not isinstance(key, str) or "/" in key or not math.isfinite(float(value)):
            raise ValueError(f"evaluation.extra.{name}: {key!r} is {value!r}: expected a finite number")
    return {f"{name}/{key}": float(value) for key, value in found.items()}
