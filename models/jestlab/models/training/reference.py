"""The reference that selection scores with: a model that scores online or its cached embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jestlab.models.config import Data, TrainConfig, TwoTowers
from jestlab.models.data.curation import Columns
from jestlab.models.data.embeddings import EmbeddingCache
from jestlab.models.data.pipeline import Lookup
from jestlab.models.data.tokenizer import Tokenizer
from jestlab.models.training.checkpoints import load_parameters
from jestlab.models.two_towers import Parameters, TwoTowerModel

TOKENIZER = "tokenizer.model"
"""File in the folder of every run with a model: the tokenizer that the model's captions need."""


@dataclass(frozen=True)
class Reference:
    """A finished run that selection scores with.

    Attributes:
        directory: Its folder.
        model: Its architecture; None if it holds a reference's embeddings instead of a model.
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
        lookups: Functions for further arrays of a batch, from its examples' global numbers.
    """

    model: TwoTowerModel | None = None
    parameters: Parameters | None = None
    tokenizer: tuple[Tokenizer, int] | None = None
    lookups: Mapping[str, Lookup] | None = None


def prepare(
    config: TrainConfig,
    web: Path,
    tokenizer: Tokenizer,
    reference: Reference | None,
    columns: Columns | None = None,
) -> Scorer:
    """Load what a run needs of its reference; an empty scorer if it scores without one.

    Raises:
        ValueError: There is none though the selection needs one, its embeddings are cached and the images are
            augmented, or as `load`.
    """
    if not config.needs_reference:
        return Scorer()
    if reference is None:
        raise ValueError("selection.reference: not a finished run")
    if reference.model is None and (problem := config.problem_with_cache) is not None:
        raise ValueError(problem)
    return load(reference, config.data, web, config.model, tokenizer, columns)


def load(
    reference: Reference,
    data: Data,
    web: Path,
    learner: TwoTowers,
    tokenizer: Tokenizer,
    columns: Columns | None = None,
) -> Scorer:
    """Load what is needed to score with a reference beside a learner.

    Args:
        reference: The finished run.
        data: What is scored.
        web: Its folder of shards.
        learner: Architecture of the learner, whose images the reference gets.
        tokenizer: The learner's.
        columns: What the data's filter can read beside the metadata.

    Raises:
        ValueError: It reads images of another size, or its cached embeddings are not of the data.
    """
    if reference.model is None:
        cache = EmbeddingCache(reference.directory)
        cache.check(data, web, columns)
        parameters = {
            "t": np.log(np.array([cache.about.temperature], np.float32)),
            "b": np.array([cache.about.bias], np.float32),
        }
        lookups = {"reference_image_embedding": cache.images, "reference_text_embedding": cache.texts}
        return Scorer(parameters=parameters, lookups=lookups)
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
