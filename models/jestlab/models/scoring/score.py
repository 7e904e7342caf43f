"""Score each example of a data set from cached embeddings: CLIP score, NegCLIPLoss, NormSim, SemDeDup.

Letters: n examples, E embedding width, b batch, K divisions into batches, τ temperature, m targets.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from jestlab.models.config import ScoreConfig
from jestlab.models.config.programs import NegClipLoss, SemDeDup, SoftCap
from jestlab.models.data.embeddings import EmbeddingCache, Rows
from jestlab.models.scoring.columns import Column
from jestlab.models.selection import Embeddings
from jestlab.models.selection.scores import softmax_sums

ROWS = 4_096  # images that are compared with centroids, or with others of their cluster, at a time
TARGET_ROWS = 1_024  # images that are compared with all targets at a time


def score(
    config: ScoreConfig, embeddings: Path, target: Path | None, progress: Callable[[int, int], Any]
) -> dict[str, Column]:
    """Compute all columns.

    Args:
        embeddings: Folder of the completed run that embedded the data.
        target: Folder of the completed run that embedded the target set, if there is one.
        progress: Called with the number of completed parts and the number of all parts.

    Returns:
        float32 [n] by name, NaN for examples that were not embedded. For each score, `<name>_rank` is the
        share of the examples with a lower score.

    Raises:
        FileNotFoundError: A folder holds no embeddings.
        ValueError: Embeddings are incomplete, or of different widths.
    """
    cache, seed = EmbeddingCache(embeddings), config.seed
    known = cache.embedded()
    images, texts = cache.images(known), cache.texts(known)
    theirs = None if target is None else EmbeddingCache(target)
    if theirs is not None and theirs.about.width != cache.about.width:
        raise ValueError(
            f"target: its embeddings are {theirs.about.width} wide, those of the data "
            f"{cache.about.width}: embed both with the same reference"
        )
    parts = config.negcliploss.repeats + config.semdedup.iterations + 1 + (theirs is not None)
    completed = itertools.count()

    def advance() -> None:
        progress(next(completed), parts)

    advance()
    found = {
        "clip_score": clip_scores(images, texts),
        "negcliploss": negative_clip_loss(
            images, texts, config.negcliploss, 1.0 / cache.about.temperature, seed, advance
        ),
        "semdedup": duplicate_similarity(images, config.semdedup, seed, advance),
    }
    advance()
    if theirs is not None:
        targets = theirs.images(theirs.embedded())
        found["normsim"] = norm_similarity(images, targets, config.normsim.norm)
        advance()
    for name, values in list(found.items()):
        lower = scipy.stats.rankdata(values, "min") - 1
        found[f"{name}_rank"] = np.asarray(lower / len(values), np.float32)
    soft_cap = config.soft_cap
    if soft_cap.of is not None:
        found["soft_cap"] = soft_cap_counts(found[soft_cap.of], soft_cap, seed)
    columns = {name: np.full(cache.about.examples, np.nan, np.float32) for name in found}
    for name, values in found.items():
        columns[name][known] = values
    return columns


def clip_scores(images: Rows, texts: Rows) -> Rows:
    """Return the cosine c_ii of each pair, float32 [n], for unit embeddings float32 [n, E]."""
    return np.asarray(np.einsum("ne,ne->n", images, texts), np.float32)


def negative_clip_loss(
    images: Rows,
    texts: Rows,
    settings: NegClipLoss,
    temperature: float,
    seed: int,
    advance: Callable[[], Any] = lambda: None,
) -> Rows:
    """Compute negCLIPLoss: quality of a pair by a contrastive loss (Wang et al., 2024, arXiv:2405.19547).

        negCLIPLoss_i = c_ii − τ/K Σ_k ½ [ log Σ_{j ∈ B_k} exp(c_ij / τ) + log Σ_{j ∈ B_k} exp(c_ji / τ) ]

    for the cosine c_ij of image i and text j, and K random divisions of the data set into batches. B_k is the
    batch of division k that contains i. The first term is CLIPScore. The second term lowers the score of
    captions and images that match everything, such as a caption that says little.

    Departure from the authors' code (github.com/ypwang61/negCLIPLoss_NormSim): the last batch of a division
    is filled up with other examples, so that all batches have the same size.

    Args:
        images: float32 [n, E], unit embeddings.
        texts: float32 [n, E], of the same pairs.
        settings: b, K, and τ; a data set smaller than b is one batch.
        temperature: τ if the settings don't have it.
        advance: Called after each division.

    Returns:
        float32 [n]; higher is better.
    """
    n = len(images)
    size, repeats = min(settings.batch_size, n), settings.repeats
    norms, rng = np.zeros(n), np.random.default_rng(seed)
    temperature = settings.temperature or temperature

    @jax.jit
    def log_sums(image: jax.Array, text: jax.Array) -> jax.Array:
        z = Embeddings(image, text, jnp.float32(1.0 / temperature), jnp.float32(0.0))
        over_texts, over_images = softmax_sums(z, z)
        return 0.5 * (over_texts + over_images)

    for _ in range(repeats):
        order = rng.permutation(n)
        for first in range(0, n, size):
            batch = order[first : first + size]
            filled = np.concatenate([batch, order[: size - len(batch)]])
            norms[batch] += np.asarray(log_sums(images[filled], texts[filled]))[: len(batch)]
        advance()
    return np.asarray(clip_scores(images, texts) - temperature * norms / repeats, np.float32)


def norm_similarity(images: Rows, targets: Rows, norm: Literal[2, "inf"] = "inf") -> Rows:
    """Compute NormSim: similarity of images to a target set (Wang et al., 2024, arXiv:2405.19547).

        NormSim_p(x) = ( Σ_t |f(x) · f(t)|^p )^(1/p),        NormSim_∞(x) = max_t |f(x) · f(t)|

    over the images t of the target set, by the image embeddings f of a model. The target set needs no labels.

    Args:
        images: float32 [n, E], unit embeddings.
        targets: float32 [m, E], of the target set, by the same model.
        norm: p.

    Returns:
        float32 [n].
    """

    @jax.jit
    def norms(rows: jax.Array, targets: jax.Array) -> jax.Array:
        similar = jnp.abs(jnp.dot(rows, targets.T, precision="highest"))
        return jnp.max(similar, axis=1) if norm == "inf" else jnp.sqrt(jnp.sum(similar**2, axis=1))

    similarity: Rows = _by_rows(norms, images, targets, TARGET_ROWS)
    return similarity


def duplicate_similarity(
    images: Rows, settings: SemDeDup, seed: int, advance: Callable[[], Any] = lambda: None
) -> Rows:
    """Compute SemDeDup: the largest cosine of each image with an earlier image of its cluster.

    Abbas et al., 2023, arXiv:2303.09540.

    Images are clustered by k-means on their embeddings, and ordered within each cluster from the farthest
    from the centroid to the nearest. An image is a duplicate if its cosine with an earlier image is above
    1 − ε. This function returns the largest such cosine, so that a filter chooses ε: `semdedup < 0.95`
    corresponds to ε = .05.

    As in the authors' code (github.com/facebookresearch/SemDeDup), the order keeps hard examples, cosines
    below 0 count as 0, and later images are also compared with images that are duplicates themselves.

    Args:
        images: float32 [n, E], unit embeddings.
        settings: The clusters and the iterations of k-means.
        seed: Seed of the first centroids.
        advance: Called after each iteration.

    Returns:
        float32 [n], from 0 to 1; 0 for the first image of a cluster.
    """
    clusters = settings.clusters_of(len(images))
    centroids = images[np.random.default_rng(seed).choice(len(images), clusters, replace=False)]
    for _ in range(settings.iterations):
        members, _ = _by_rows(_nearest, images, centroids, ROWS)
        sums = np.zeros(centroids.shape)
        np.add.at(sums, members, images)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        # The centroid of an empty cluster stays.
        centroids = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centroids).astype(np.float32)
        advance()
    members, cosines = _by_rows(_nearest, images, centroids, ROWS)
    found = np.zeros(len(images), np.float32)
    for cluster in range(clusters):
        inside = np.flatnonzero(members == cluster)
        order = inside[np.argsort(cosines[inside], kind="stable")]
        rows = images[order]
        for first in range(0, len(order), ROWS):
            part = slice(first, first + ROWS)
            similar = rows[: first + ROWS] @ rows[part].T  # with those before, and within the part
            before = np.arange(len(similar))[:, None] < np.arange(first, first + similar.shape[1])
            found[order[part]] = np.max(np.where(before, similar, 0.0), axis=0)
    return found


@jax.jit
def _nearest(rows: jax.Array, centroids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the nearest centroid of each row, int32 [rows], and its cosine, float32 [rows]."""
    products = jnp.dot(rows, centroids.T, precision="highest")
    return jnp.argmax(products, axis=1), jnp.max(products, axis=1)


def _by_rows(function: Callable[..., Any], images: Rows, others: Rows, size: int) -> Any:
    """Apply a function to blocks of images and all others; the last block is padded to compile once."""
    on_device, n = jnp.asarray(others), len(images)

    def apply(block: Rows) -> Any:
        return function(np.pad(block, ((0, size - len(block)), (0, 0))), on_device)

    results = [apply(images[first : first + size]) for first in range(0, n, size)]
    return jax.tree.map(lambda *blocks: np.concatenate(blocks)[:n], *results)


def soft_cap_counts(scores: Rows, settings: SoftCap, seed: int) -> Rows:
    """Draw a data set by soft-capped sampling, and count how often each example is drawn.

    Filter Like You Test (Shechter & Carmon, 2025, arXiv:2503.08805): good examples may be drawn again, but
    each draw makes the next one less likely. Batches are drawn without replacement in proportion to
    exp(score); then the scores of the drawn examples are lowered by a penalty α, until enough are drawn. As
    in the authors' notebook (github.com/formll/FLYT), whose scores are the logits of a learned scoring model;
    here they are any column times a gain.

    Args:
        scores: float32 [n]; −inf for examples that are never drawn.
        settings: α is the penalty. Batches are at most as large as the number of examples that can be drawn.

    Returns:
        float32 [n], whole numbers whose sum is the size, by default n.

    Raises:
        ValueError: All scores are −inf.
    """
    logits = settings.gain * scores.astype(np.float64)
    able = int(np.isfinite(logits).sum())
    if not able:
        raise ValueError("soft-capped sampling of no example: all scores are −inf")
    counts, rng = np.zeros(len(scores), np.int64), np.random.default_rng(seed)
    while left := (settings.size or len(scores)) - int(counts.sum()):
        # Gumbel top-k: k successive draws without replacement in proportion to exp(logits).
        k, perturbed = min(settings.batch_size, able, left), logits + rng.gumbel(size=len(logits))
        batch = np.argpartition(-perturbed, k - 1)[:k]
        counts[batch] += 1
        logits[batch] -= settings.penalty
    return counts.astype(np.float32)
