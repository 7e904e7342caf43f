"""The reference that selection scores with: a model that scores online, or its cached embeddings."""

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
    """A finished run that selection scores with."""

    directory: Path
    model: TwoTowers | None  # architecture; None if the folder has a reference's embeddings instead


@dataclass(frozen=True)
class Scorer:
    """A reference that is loaded for a run; empty if a run has no reference."""

    model: TwoTowerModel | None = None  # scores online; None if embeddings are cached
    parameters: Parameters | None = None  # for cached embeddings only `{t, b}`
    tokenizer: tuple[Tokenizer, int] | None = None  # with its length in tokens; None for the learner's
    lookups: Mapping[str, Lookup] = field(default_factory=dict)
    """Functions for more arrays of a batch, from the global numbers of its examples."""


def load(
    reference: Reference,
    data: Data,
    web: Path,
    learner: TwoTowers,
    tokenizer: Tokenizer,
    columns: Columns | None = None,
) -> Scorer:
    """Load a reference that scores the same data as a learner.

    The step embeds the learner's images by the result's model, and `reference_text` if the tokenizers differ.
    Without a model, the lookups add cached embeddings to each batch. `web` is the folder of the data's
    shards, `tokenizer` the learner's; `columns` are more columns for the data's filter.

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
    theirs, ours = reference.model.vision.image_size, learner.vision.image_size
    if theirs != ours:
        raise ValueError(
            f"the reference reads images of {theirs} px, the learner of {ours} px: set "
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
