"""The columns that a run of the program `score` computes from cached embeddings."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from jestlab.models.config import ScoreConfig
from jestlab.models.data.embeddings import EmbeddingCache
from jestlab.models.scoring import methods
from jestlab.models.scoring.columns import Column


def score(
    config: ScoreConfig, embeddings: Path, target: Path | None, progress: Callable[[int, int], Any]
) -> dict[str, Column]:
    """Compute all columns.

    Args:
        config: The run.
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
    cache = EmbeddingCache(embeddings)
    known = cache.embedded()
    images, texts = cache.images(known), cache.texts(known)
    parts, completed = config.negcliploss.repeats + config.semdedup.iterations, itertools.count(1)
    progress(0, parts)

    def advance() -> None:
        progress(next(completed), parts)

    found = {
        "clip_score": methods.clip_scores(images, texts),
        "negcliploss": methods.negative_clip_loss(
            images,
            texts,
            temperature=config.negcliploss.temperature or 1.0 / cache.about.temperature,
            batch_size=config.negcliploss.batch_size,
            repeats=config.negcliploss.repeats,
            seed=config.seed,
            advance=advance,
        ),
        "semdedup": methods.duplicate_similarity(
            images,
            clusters=config.semdedup.clusters_of(len(known)),
            iterations=config.semdedup.iterations,
            seed=config.seed,
            advance=advance,
        ),
    }
    if target is not None:
        theirs = EmbeddingCache(target)
        if theirs.about.width != cache.about.width:
            raise ValueError(
                f"target: its embeddings are {theirs.about.width} wide, those of the data "
                f"{cache.about.width}: embed both with the same reference"
            )
        targets = theirs.images(theirs.embedded())
        found["normsim"] = methods.norm_similarity(images, targets, config.normsim.norm)
    for name, values in list(found.items()):
        lower = scipy.stats.rankdata(values, "min") - 1
        found[f"{name}_rank"] = np.asarray(lower / len(values), np.float32)
    soft_cap = config.soft_cap
    if soft_cap.of is not None:
        found["soft_cap"] = methods.soft_cap_counts(
            found[soft_cap.of],
            size=soft_cap.size or len(known),
            penalty=soft_cap.penalty,
            batch_size=soft_cap.batch_size,
            gain=soft_cap.gain,
            seed=config.seed,
        )
    columns = {name: np.full(cache.about.examples, np.nan, np.float32) for name in found}
    for name, values in found.items():
        columns[name][known] = values
    return columns
