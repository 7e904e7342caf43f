"""The reference that selection scores with: a model that scores online, or its cached embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jestlab.models.config import Data, TwoTowers
from jestlab.models.data.curation import Columns
from jestlab.models.data.embeddings import EmbeddingCache
from jestlab.models.data.pipeline import Lookup
from jestlab.models.data.tokenizer import Tokenizer
from jestlab.models.training.checkpoints import load_parameters
from jestlab.models.two_towers import Parameters, TwoTowerModel

TOKENIZER = "tokenizer.model"
"""File in the folder of every run with a model: the tokenizer of the model's captions."""


@dataclass(frozen=True)
class Reference:
    """A finished run that selection scores with.

    Attributes:
        directory: Folder of the run.
        model: Architecture; None if the folder has a reference's embeddings instead of a model.
    """

    directory: Path
    model: TwoTowers | None


@dataclass(frozen=True)
class Scorer:
    """A reference that is loaded for a run.

    Attributes:
        model: The model that scores online; None if embeddings are cached, or without a reference.
        parameters: The model's parameters; for cached embeddings only `{t, b}`.
        tokenizer: Tokenizer and length in tokens, if they differ from the learner's.
        lookups: Functions for more arrays of a batch, from the global numbers of its examples.
    """

    model: TwoTowerModel | None = None
    parameters: Parameters | None = None
    tokenizer: tuple[Tokenizer, int] | None = None
    lookups: Mapping[str, Lookup] = field(default_factory=dict)


def load(
    reference: Reference,
    data: Data,
    web: Path,
    learner: TwoTowers,
    tokenizer: Tokenizer,
    columns: Columns | None = None,
) -> Scorer:
    """Load a reference that scores the same data as a learner.

    The reference gets the learner's images. `web` is the folder of the data's shards, `tokenizer` the
    learner's; `columns` are more columns for the data's filter.

    Raises:
        ValueError: The reference has another image size, or its cached embeddings belong to other data.
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
    sizes = reference.model.vision.image_size, learner.vision.image_size
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"the reference reads images of {sizes[0]} px, the learner of {sizes[1]} px: set "
            "model.vision.image_size to the same value, or cache the reference's embeddings in an `embed` run"
        )
    own = Tokenizer((reference.directory / TOKENIZER).read_bytes())
    length = reference.model.text.length
    is_same = (own.digest, length) == (tokenizer.digest, learner.text.length)
    return Scorer(
        TwoTowerModel(reference.model),
        load_parameters(reference.directory / "checkpoints", reference.model),
        None if is_same else (own, length),
    )
