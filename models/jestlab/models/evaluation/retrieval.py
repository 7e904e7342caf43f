"""Image→text and text→image retrieval, as big_vision's `image_text_retrieval`.

Letters: n images, m captions, E embedding width, k recall rank.
"""

from __future__ import annotations

import numpy as np

RANKS = (1, 5, 10)  # k
BLOCK = 2**23  # products that are held at a time: 32 MiB, and never n × m


def recalls(images: np.ndarray, captions: np.ndarray, image_of_caption: np.ndarray) -> dict[str, float]:
    """Recall at 1, 5 and 10 in both directions.

    Image→text counts a hit if any of the image's captions is among its k nearest captions; text→image if the
    caption's image is among its k nearest images. big_vision leaves ties to the order of a sort; here a
    target as near as the right one counts as nearer, and so does one whose product is no number: a model
    that maps everything to one point, or to NaN, scores 0 and not 1.

    Args:
        images: float32 [n, E], unit length.
        captions: float32 [m, E], unit length.
        image_of_caption: int [m], the image that each caption belongs to.

    Returns:
        `i2t_r1`, `i2t_r5`, `i2t_r10`, `t2i_r1`, `t2i_r5`, `t2i_r10`, each in 0…1.
    """
    by_image = np.argsort(image_of_caption, kind="stable")
    nearer = {
        "i2t": _nearer(images, captions, image_of_caption[by_image], by_image),
        "t2i": _nearer(captions, images, np.arange(len(captions)), image_of_caption),
    }
    return {f"{way}_r{k}": float(np.mean(count < k)) for way, count in nearer.items() for k in RANKS}


def _nearer(
    queries: np.ndarray, targets: np.ndarray, pair_query: np.ndarray, pair_target: np.ndarray
) -> np.ndarray:
    """How many wrong targets are at least as near to each query as the nearest right one.

    Args:
        queries: float32 [q, E].
        targets: float32 [t, E].
        pair_query: int [p], query of each pair that belongs together, ascending.
        pair_target: int [p], its target.

    Returns:
        int64 [q].
    """
    rows = max(1, BLOCK // len(targets))
    counts = []
    for start in range(0, len(queries), rows):
        similarity = queries[start : start + rows] @ targets.T
        pairs = slice(*np.searchsorted(pair_query, [start, start + rows]))
        row = pair_query[pairs] - start
        right = similarity[row, pair_target[pairs]]
        best = np.full(len(similarity), -np.inf, similarity.dtype)
        with np.errstate(invalid="ignore"):
            np.maximum.at(best, row, right)
        # "Not farther" instead of "as near": NaN is neither.
        not_farther = np.count_nonzero(~(similarity < best[:, None]), axis=1)
        right_not_farther = np.bincount(row, ~(right < best[row]), minlength=len(similarity))
        counts.append(not_farther - right_not_farther.astype(np.int64))
    return np.concatenate(counts)
