"""Zero-shot classification by class names in prompt templates, as big_vision does it.

Letters: n images, C classes, T templates, E embedding width.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

import numpy as np


def canonical_class_name(name: str) -> str:
    """The first alias: `_` to space, punctuation stripped, lower case, spaces collapsed."""
    name = name.split(",")[0].replace("_", " ").lower()
    name = name.translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\s+", " ", name).strip()


def prompts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Every class in every template, class by class.

    Args:
        class_names: C names.
        templates: T templates with `{c}` (CLIP_benchmark's) or `{}` where the name goes.

    Returns:
        C × T prompts.
    """
    return [
        template.replace("{c}", canonical_class_name(name)).replace("{}", canonical_class_name(name))
        for name in class_names
        for template in templates
    ]


def class_embeddings(prompt_embeddings: np.ndarray, templates: int) -> np.ndarray:
    """Mean over a class's templates, normalised again: z / (‖z‖ + 1e-8).

    Args:
        prompt_embeddings: float32 [C × T, E], unit length, in the order of `prompts`.
        templates: T.

    Returns:
        float32 [C, E].
    """
    z = prompt_embeddings.reshape(-1, templates, prompt_embeddings.shape[-1]).mean(axis=1)
    result: np.ndarray = z / (np.linalg.norm(z, axis=-1, keepdims=True) + 1e-8)
    return result


def zero_shot_accuracy(images: np.ndarray, classes: np.ndarray, labels: np.ndarray) -> float:
    """Share of images whose nearest class embedding is their class's.

    Args:
        images: float32 [n, E].
        classes: float32 [C, E].
        labels: int [n].

    Returns:
        Accuracy in 0…1.
    """
    return float(np.mean(np.argmax(images @ classes.T, axis=-1) == labels))
