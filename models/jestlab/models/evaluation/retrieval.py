"""Image→text and text→image retrieval.

Letters: n images, m captions, E embedding width, k recall rank.
"""

from __future__ import annotations

import numpy as np

BLOCK = 1_024  # queries compared with all targets at a time: no n × m matrix


def recall_at_k(
    images: np.ndarray, captions: np.ndarray, image_of_caption: np.ndarray, k: int = 1
) -> tuple[float, float]:
    """Recall at k in both directions.

    Image→text counts a hit if any of the image's captions is among its k nearest captions; text→image if the
    caption's image is among its k nearest images. A target as near as the right one counts as nearer, so that
    a model that maps everything to one point scores 0 and not 1.

    Args:
        images: float32 [n, E], unit length.
        captions: float32 [m, E], unit length.
        image_of_caption: int [m], the image that each caption belongs to.
        k: Rank.

    Returns:
        (image→text recall, text→image recall), each in 0…1.
    """
    image_ids = np.arange(len(images))
    image_to_text = _recall(images, captions, image_ids, image_of_caption, k)
    text_to_image = _recall(captions, images, image_of_caption, image_ids, k)
    return image_to_text, text_to_image


def _recall(
    queries: np.ndarray, targets: np.ndarray, query_ids: np.ndarray, target_ids: np.ndarray, k: int
) -> float:
    """Share of queries with a target of the same id among the k nearest."""
    hits = 0
    for start in range(0, len(queries), BLOCK):
        block = slice(start, start + BLOCK)
        similarity = queries[block] @ targets.T
        right = query_ids[block, None] == target_ids[None, :]
        best_right = np.where(right, similarity, -np.inf).max(axis=1, keepdims=True)
        nearer = (~right & (similarity >= best_right)).sum(axis=1)
        hits += int((nearer < k).sum())
    return hits / len(queries)
