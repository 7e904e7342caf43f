"""What a run of program `score` computes: columns of a data set from cached embeddings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.stats

from jestlab.models.config import ScoreConfig
from jestlab.models.data.embeddings import EmbeddingCache
from jestlab.models.scoring.clip_loss import clip_scores, negative_clip_loss
from jestlab.models.scoring.columns import Column
from jestlab.models.scoring.duplicates import duplicate_similarity
from jestlab.models.scoring.norm_similarity import ROWS, norm_similarity
from jestlab.models.scoring.soft_cap import soft_cap_counts


def score(
    config: ScoreConfig, embeddings: Path, target: Path | None, progress: Callable[[int, int], Any]
) -> dict[str, Column]:
    """Compute all columns.

    Args:
        config: The run.
        embeddings: Folder of the finished run that has embedded the data.
        target: The same of the target set; None if there is none.
        progress: Called with the parts done and all parts.

    Returns:
        float32 [n] by name, NaN for examples that were not embedded. Beside each score, `<name>_rank` is the
        share of the examples whose score is lower.

    Raises:
        FileNotFoundError: A folder holds no embeddings.
        ValueError: Embeddings are not finished, or of different widths.
    """
    cache = EmbeddingCache(embeddings)
    known = cache.embedded()
    images, texts = cache.images(known), cache.texts(known)
    size = min(config.negcliploss.batch_size, len(known))
    clusters = config.semdedup.clusters_of(len(known))
    parts = config.negcliploss.repeats * -(-len(known) // size) + config.semdedup.iterations + 1
    parts += -(-len(known) // ROWS) if target is not None else 0
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        progress(done, parts)

    progress(0, parts)
    found = {
        "clip_score": clip_scores(images, texts),
        "negcliploss": negative_clip_loss(
            images,
            texts,
            temperature=config.negcliploss.temperature or 1.0 / cache.about.temperature,
            batch_size=size,
            repeats=config.negcliploss.repeats,
            seed=config.seed,
            advance=advance,
        ),
        "semdedup": duplicate_similarity(
            images,
            clusters=clusters,
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
        found["normsim"] = norm_similarity(images, targets, norm=config.normsim.norm, advance=advance)
    ranks = {f"{name}_rank": _ranks(values) for name, values in found.items()}
    found |= ranks
    if config.soft_cap.of is not None:
        found["soft_cap"] = soft_cap_counts(
            found[config.soft_cap.of],
            size=config.soft_cap.size or len(known),
            penalty=config.soft_cap.penalty,
            batch_size=config.soft_cap.batch_size,
            gain=config.soft_cap.gain,
            seed=config.seed,
        )
    return {name: _everywhere(values, known, cache.about.examples) for name, values in found.items()}


def _ranks(values: Column) -> Column:
    """Return the share of values that are lower than each, float32 [n] from 0 to below 1."""
    return np.asarray((scipy.stats.rankdata(values, "min") - 1) / len(values), np.float32)


def _everywhere(values: Column, known: npt.NDArray[np.int64], count: int) -> Column:
    """Return float32 [n]: values of the known examples, NaN of the others."""
    whole = np.full(count, np.nan, np.float32)
    whole[known] = values
    return whole
