"""jestlab's own programs: train, embed, score, weights and diagnose, as plans know them.

What a worker executes for them is in `execution`, which imports JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jestlab.analysis.metrics import OF_PROGRAM
from jestlab.models.config import (
    BenchmarkFolder,
    Data,
    DiagnoseConfig,
    EmbedConfig,
    OwnReader,
    ScoreConfig,
    ShardFolder,
    TrainConfig,
    TwoTowers,
    WeightsConfig,
)
from jestlab.platform import plugins
from jestlab.platform.errors import UserError
from jestlab.platform.programs import memory, pricing, roles
from jestlab.platform.programs.fits import check_fits
from jestlab.platform.programs.program import Contents, Price, Program

if TYPE_CHECKING:
    from jestlab.models.weights import Weights

_IMPORTS = (
    "jestlab.models.training.loop",
    "grain",
    "simplejpeg",
    "sentencepiece",
    "scipy.linalg",
    "sqlalchemy.dialects.sqlite",
)
"""Slow imports of all that trains, embeds or diagnoses: JAX imports SciPy's when it loads a kept program. Not
PyArrow, which starts a thread."""


# ---- completing configs with what only the data can tell


Config = TypeVar("Config", TrainConfig, EmbedConfig, DiagnoseConfig)


def _complete_data(config: Config, contents: Contents) -> Config:
    """Add the content digests of the data folders and of code; only training runs use the benchmark.

    Raises:
        UserError: A folder is missing or holds no shards, or the config does not fit its data.
        ValueError: The filter leaves nothing.
    """
    parts = ("train", "benchmark") if isinstance(config, TrainConfig) else ("train",)
    data = _with_digests(config.data, contents, parts)
    found: dict[str, Any] = {} if data is config.data else {"data": data}
    if code := plugins.identify(config, lambda file: contents.passes_over(file, "file of code")):
        found["code"] = code
    if contents.where != "nowhere":
        check_fits(config, contents)
    return config.model_copy(update=found) if found else config


def _complete_weights(config: WeightsConfig, contents: Contents) -> WeightsConfig:
    """Add the towers, and the digests of what its paths hold, unless it is missing and only noted.

    Raises:
        UserError: There is no tokenizer, or the content differs from the recorded digest.
        ValueError: There are no such weights; the message says what is wrong with them.
    """
    if config.model and config.digest and config.tokenizer_digest:
        return config.model_copy(update={"model": _computing(config.model, config)})
    places = {"checkpoint": config.path, "tokenizer": config.tokenizer}
    if [what for what, path in places.items() if path and contents.passes_over(Path(path), what)]:
        return config
    found = open_source(config)
    check_digest("path", config.path, config.digest, content := found.digest())
    _, tokenizer = read_source_tokenizer(config, found)
    model = _computing(found.model, config)
    return config.model_copy(update={"digest": content, "tokenizer_digest": tokenizer, "model": model})


def _computing(model: TwoTowers, config: WeightsConfig) -> TwoTowers:
    """Towers that compute as the config says."""
    return model.model_copy(update={"compute_dtype": config.compute_dtype})


def _with_digests(data: Data, contents: Contents, parts: Sequence[str]) -> Data:
    """Return the same data with the content digest of each folder among the parts, unless it is only noted.

    Raises:
        UserError: A folder is missing or holds no shards.
    """
    found: dict[str, Any] = {}
    for part in parts:
        folder = getattr(data, part)
        if isinstance(folder, ShardFolder | BenchmarkFolder) and folder.digest is None:
            path = Path(folder.path)
            if contents.passes_over(path, "folder"):
                continue
            if not path.is_dir():
                what = "image–text tar shards" if part == "train" else "a benchmark's datasets"
                raise UserError(
                    f"data.{part}.path: no folder {path}: expected {what}, which `jestlab data fetch` "
                    "downloads, and `jestlab data pack` makes of your own files"
                )
            found[part] = folder.model_copy(update={"digest": contents.digest(path)})
    if isinstance(data.train, OwnReader) and data.train.path is not None and data.train.path_digest is None:
        path = Path(data.train.path)
        if not contents.passes_over(path, "what a reader reads"):
            found["train"] = data.train.model_copy(update={"path_digest": contents.path_digest(path)})
    return data.model_copy(update=found) if found else data


def open_source(config: WeightsConfig) -> Weights:
    """Open the weights that a config names."""
    from jestlab.models.weights import open_weights  # imports NumPy, which few plans need

    return open_weights(Path(config.path), config.model)


def read_source_tokenizer(config: WeightsConfig, found: Weights) -> tuple[bytes, str]:
    """Return the serialised tokenizer of weights, and its digest."""
    from jestlab.models.weights import read_tokenizer

    path = Path(config.tokenizer) if config.tokenizer is not None else found.tokenizer
    if path is None:
        raise UserError(
            f"tokenizer: no spiece.model or tokenizer.model beside {config.path}: "
            "put it there, or give its path as `tokenizer`"
        )
    content = read_tokenizer(path, found.model)
    digest = sha256(content).hexdigest()
    check_digest("tokenizer", str(path), config.tokenizer_digest, digest)
    return content, digest


def check_digest(field: str, path: str, recorded: str | None, found: str) -> None:
    """Raise UserError if a file's digest is not the recorded one."""
    if recorded is not None and recorded != found:
        raise UserError(
            f"{field}: {path} has changed (digest {found[:12]}, recorded {recorded[:12]}): "
            "restore it, or drop the digest to use what it holds now"
        )


# ---- what runs record


def _of_training(config: TrainConfig) -> list[str]:
    """Return patterns of what a training run logs, and of the evaluations of its benchmark's datasets."""
    logged = [name for name in OF_PROGRAM["train"] if not name.startswith("*/")]
    return [
        *logged,
        *(f"{name}/{metric}" for name, metrics in _datasets(config).items() for metric in metrics),
        *(f"{name}/*" for name in config.evaluation.extra),
    ]


def _datasets(config: TrainConfig) -> dict[str, list[str]]:
    """Return patterns of the metrics of each dataset that a training run is evaluated on."""
    accuracies = ["zero_shot", f"{config.evaluation.shots}_shot"]
    recalls = ["i2t_r*", "t2i_r*"]
    if not isinstance(config.data.benchmark, BenchmarkFolder):
        return {"shapes": accuracies, "shapes_retrieval": recalls}
    folder = Path(config.data.benchmark.path)
    if not folder.is_dir():  # in a plan that is only to look at
        return {"*": [*accuracies, *recalls]}
    from jestlab.models.data.benchmarks import datasets_in  # imports NumPy, which few plans need

    found: dict[str, list[str]] = {}
    for _, name, for_retrieval in datasets_in(folder):
        found.setdefault(name, []).extend(recalls if for_retrieval else accuracies)
    return found


def _logged(name: str, _: Any) -> Collection[str]:
    """Say that every run of a program records the metrics that are declared for it."""
    return OF_PROGRAM[name]


# ---- the programs


def _own(
    name: str, schema: type[Any], price: Callable[[Any, Mapping[str, Any]], Price | None], **options: Any
) -> Program:
    return Program(
        name=name,
        entry_point=f"jestlab.platform.programs.execution:run_{name}",
        version=schema.version,
        schema=schema,
        identity_of=schema.identity,
        price_of=price,
        **({"records": functools.partial(_logged, name)} | options),
    )


TRAIN = _own(
    "train",
    TrainConfig,
    pricing.price_train,
    memory_of=memory.of_training,
    fits_needs=roles.check_train,
    extent=("schedule", "examples_seen"),
    complete=_complete_data,
    imports=_IMPORTS,
    records=_of_training,
)
"""Contrastive training of two towers: a reference model or a learner."""

EMBED = _own(
    "embed",
    EmbedConfig,
    pricing.price_embed,
    memory_of=memory.of_embedding,
    fits_needs=roles.check_embed,
    complete=_complete_data,
    inherits=("data",),
    imports=_IMPORTS,
)
"""A reference's embeddings of a whole training set, for runs to select with."""

WEIGHTS = _own(
    "weights",
    WeightsConfig,
    pricing.price_weights,
    memory_of=memory.of_weights,
    complete=_complete_weights,
    collective=False,
    imports=("jestlab.models.training.loop",),
)
"""Imports public weights, so that they serve as the reference like a trained run."""

SCORE = _own(
    "score",
    ScoreConfig,
    pricing.price_score,
    memory_of=memory.of_scoring,
    fits_needs=roles.check_score,
    collective=False,
    imports=_IMPORTS,
)
"""Scores a data set by its cached embeddings, for filters to read."""

DIAGNOSE = _own(
    "diagnose",
    DiagnoseConfig,
    pricing.price_diagnose,
    memory_of=memory.of_diagnosis,
    fits_needs=roles.check_diagnose,
    complete=_complete_data,
    collective=False,
    inherits=("data", "loss"),
    subjects=(pricing.DIAGNOSE_LEARNER,),
    imports=_IMPORTS,
)
"""Measures how learnable the batches are that the rules select (paper, Figure 2)."""
