"""The reference of a run's selection: a trained model that scores online, or its embeddings, cached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..config import Data, TrainConfig, TwoTowers
from ..data.embeddings import EmbeddingCache
from ..data.pipeline import Lookup
from ..data.tokenizer import Tokenizer
from ..two_towers import Parameters, TwoTowerModel
from .checkpoints import load_parameters

TOKENIZER = "tokenizer.model"
"""In the folder of every run with a model: how whoever uses the model has to read captions."""


@dataclass(frozen=True)
class Reference:
    """A finished run that the selection scores with.

    Attributes:
        directory: Its folder.
        model: Its architecture; None where it holds a reference's embeddings and no model.
    """

    directory: Path
    model: TwoTowers | None


@dataclass(frozen=True)
class Scorer:
    """A reference made ready for a run.

    Attributes:
        model: The model to score with online; None where embeddings are looked up.
        parameters: Of the model; of looked-up embeddings `{t, b}` alone.
        tokenizer: Tokenizer and length in tokens, where the model reads otherwise than the learner.
        lookups: What batches carry besides, from examples' global numbers.
    """

    model: TwoTowerModel | None = None
    parameters: Parameters | None = None
    tokenizer: tuple[Tokenizer, int] | None = None
    lookups: Mapping[str, Lookup] | None = None


def prepare(config: TrainConfig, web: Path, tokenizer: Tokenizer, reference: Reference | None) -> Scorer:
    """Load what a run needs of its reference; nothing where it scores without one.

    Args:
        config: The run.
        web: Its folder of shards.
        tokenizer: The run's.
        reference: The finished run that `selection.reference` names.

    Raises:
        ValueError: There is none though the selection needs one, or as `load`.
    """
    if not config.needs_reference:
        return Scorer()
    if reference is None:
        raise ValueError("selection.reference names no finished run")
    return load(reference, config.data, web, config.model, tokenizer)


def load(reference: Reference, data: Data, web: Path, learner: TwoTowers, tokenizer: Tokenizer) -> Scorer:
    """Load what it takes to score with a reference beside a learner.

    Args:
        reference: The finished run.
        data: What is scored.
        web: Its folder of shards.
        learner: Architecture of the learner, whose images the reference gets.
        tokenizer: The learner's.

    Raises:
        ValueError: It reads images of another size, or its cached embeddings are not of the data.
    """
    if reference.model is None:
        cache = EmbeddingCache.open(reference.directory)
        cache.check(data, web)
        return _cached(cache)
    theirs, ours = reference.model.vision.image_size, learner.vision.image_size
    if theirs != ours:
        raise ValueError(
            f"the reference reads images of {theirs} px, the learner of {ours} px: set "
            "model.vision.image_size alike, or cache the reference's embeddings in an `embed` run"
        )
    reads = Tokenizer((reference.directory / TOKENIZER).read_bytes())
    length = reference.model.text.length
    alike = (reads.digest, length) == (tokenizer.digest, learner.text.length)
    return Scorer(
        TwoTowerModel(reference.model),
        load_parameters(reference.directory / "checkpoints", reference.model),
        None if alike else (reads, length),
    )


def _cached(cache: EmbeddingCache) -> Scorer:
    parameters = {
        "t": np.log(np.array([cache.temperature], np.float32)),
        "b": np.array([cache.bias], np.float32),
    }
    lookups = {"reference_image_embedding": cache.images, "reference_text_embedding": cache.texts}
    return Scorer(parameters=parameters, lookups=lookups)
