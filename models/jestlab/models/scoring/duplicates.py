"""SemDeDup: semantic duplicates among images (Abbas et al., 2023, arXiv:2303.09540).

Images are clustered by k-means on their embeddings. In each cluster they are put in order, the one farthest
from the centroid first, and an image is a duplicate if one before it is more alike than 1 − ε. What is
computed here is that largest cosine, so that a filter chooses ε: `semdedup < 0.95` keeps what ε = .05 does.

As in the authors' code (github.com/facebookresearch/SemDeDup), the order keeps hard examples, cosines below 0
count as 0, and an image that is a duplicate itself still makes duplicates of others.

Letters: n images, k clusters, E width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]

ROWS = 4_096
"""Images that are assigned to clusters, or compared with others of theirs, at a time."""


def duplicate_similarity(
    images: Rows,
    *,
    clusters: int,
    iterations: int,
    seed: int,
    advance: Callable[[], Any] = lambda: None,
) -> Rows:
    """Compute how alike each image is to the most similar one before it in its cluster.

    Args:
        images: float32 [n, E], unit embeddings.
        clusters: k, at most n.
        iterations: Of k-means.
        seed: Of the first centroids.
        advance: Called after each iteration, and at the end.

    Returns:
        float32 [n], from 0 to 1; 0 for the first of a cluster.
    """
    centroids = images[np.random.default_rng(seed).choice(len(images), clusters, replace=False)]
    for _ in range(iterations):
        centroids = _moved(images, centroids)
        advance()
    members, nearness = _assigned(images, centroids)
    found = np.zeros(len(images), np.float32)
    for cluster in range(clusters):
        inside = np.flatnonzero(members == cluster)
        order = inside[np.argsort(nearness[inside], kind="stable")]
        rows = images[order]
        for first in range(0, len(order), ROWS):
            part = slice(first, first + ROWS)
            similar = rows[: first + ROWS] @ rows[part].T  # of those before, and of the part itself
            before = np.arange(len(similar))[:, None] < np.arange(first, first + similar.shape[1])
            found[order[part]] = np.max(np.where(before, similar, 0.0), axis=0)
    advance()
    return found


@jax.jit
def _nearest(rows: jax.Array, centroids: jax.Array) -> tuple[jax.Array, jax.Array]:
    products = jnp.dot(rows, centroids.T, precision="highest")
    return jnp.argmax(products, axis=1), jnp.max(products, axis=1)


def _assigned(images: Rows, centroids: Rows) -> tuple[npt.NDArray[np.int64], Rows]:
    """Return int64 [n], the cluster of each image, and float32 [n], its cosine with the centroid."""
    members, nearness = np.empty(len(images), np.int64), np.empty(len(images), np.float32)
    on_device = jnp.asarray(centroids)
    for first in range(0, len(images), ROWS):
        part = images[first : first + ROWS]
        padded = np.zeros((ROWS, images.shape[1]), np.float32)  # one shape, compiled once
        padded[: len(part)] = part
        inside, cosines = _nearest(padded, on_device)
        members[first : first + len(part)] = np.asarray(inside)[: len(part)]
        nearness[first : first + len(part)] = np.asarray(cosines)[: len(part)]
    return members, nearness


def _moved(images: Rows, centroids: Rows) -> Rows:
    """Return the centroids after one iteration: unit means of their images; one without any stays."""
    members, _ = _assigned(images, centroids)
    sums = np.zeros(centroids.shape)
    np.add.at(sums, members, images)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centroids).astype(np.float32)
