"""Zero-shot classification by class names in prompt templates, as big_vision's `discriminative_classifier`.

Letters: n images, C classes, T templates, E embedding width.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

import numpy as np

BLOCK = 4_096  # images compared with all classes at a time
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def canonical(text: str, keep: str) -> str:
    """`_` to space, punctuation stripped except for the string `keep`, lower case, spaces collapsed."""
    parts = text.replace("_", " ").split(keep)
    text = keep.join(part.translate(_NO_PUNCTUATION) for part in parts)
    return re.sub(r"\s+", " ", text.lower()).strip()


def prompts(class_names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Every class in every template, class by class; names and templates are made canonical first.

    Args:
        class_names: C names; of aliases separated by commas the first counts.
        templates: T templates with `{c}` (CLIP_benchmark's) or `{}` (big_vision's) where the name goes.

    Returns:
        C × T prompts.
    """
    names = [canonical(name, keep=",").split(",")[0] for name in class_names]
    forms = [canonical(template.replace("{c}", "{}"), keep="{}") for template in templates]
    return [form.replace("{}", name) for name in names for form in forms]


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
    right = 0
    for start in range(0, len(labels), BLOCK):
        block = slice(start, start + BLOCK)
        right += int(np.sum(np.argmax(images[block] @ classes.T, axis=-1) == labels[block]))
    return right / len(labels)
